"""Documents cut into rows: windows of one document, and pairs of neighbouring segments."""

import numpy as np

from components.encode import Shard
from components.errors import SesameError
from components.objectives.scoring import IGNORED


def spans(text: Shard, max_length: int) -> np.ndarray:
    """Examples of one segment, (n, 5) like `pairs` with an empty B: windows of a document, max_length - 2 tokens each."""
    first, last = text.document_tokens[:-1] + 1, text.document_tokens[1:] - 1  # without [CLS] and the last [SEP]
    counts = -(-(last - first) // (max_length - 2))
    starts = ranges(first, counts, max_length - 2)
    stops = np.minimum(starts + max_length - 2, np.repeat(last, counts))
    return np.stack([starts, stops, stops, stops, np.full_like(starts, IGNORED)], 1)


def whole_sentences(text: Shard, max_length: int, across: bool) -> np.ndarray:
    """Examples like those of `spans`, of as many whole segments as fit, over the ends of documents or (`across` False) not
    (Liu et al. 2019, section 4.2)."""
    room, (firsts, ends) = max_length - 2, np.asarray(text.segments).T
    documents = np.asarray(text.documents)
    opens = np.zeros(len(firsts), int)
    opens[documents[1:-1]] = 1
    document = np.cumsum(opens)
    # what all segments up to each one take: their tokens, and a [SEP] for each document that ends before it
    taken = np.cumsum(ends - firsts) + document
    chosen, segment = [], 0
    while segment < len(firsts):
        chosen.append(segment)
        before = taken[segment] - (ends[segment] - firsts[segment])
        following = max(segment + 1, int(np.searchsorted(taken, before + room, side="right")))
        segment = following if across else min(following, int(documents[document[segment] + 1]))
    first, last = np.array(chosen), np.append(chosen[1:], len(firsts)) - 1
    stops = np.where(first == last, np.minimum(ends[last], firsts[first] + room), ends[last])
    return np.stack([firsts[first], stops, stops, stops, np.full_like(stops, IGNORED)], 1)


def ranges(firsts: np.ndarray, counts: np.ndarray, step: int = 1) -> np.ndarray:
    """first, first + step, ... of each first, so many as its count, one after another."""
    counts = np.maximum(counts, 0)
    return np.repeat(firsts, counts) + step * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def pairs(text: Shard, max_length: int, rng: np.random.Generator, single: bool = False, swapped: bool = False) -> np.ndarray:
    """Examples for next-sentence prediction, (n, 5): A's first token and end, B's first token and end, 1 where B is random.

    With `single` A and B are a segment each; with `swapped` B is always what follows, and 1 says that the two were exchanged
    (sentence-order prediction, Lan et al. 2020, section 3.1).

    As in BERT's data (Devlin et al. 2019, appendix A.2): segments of a document are gathered up to max_length, split at a random
    place into A and B, and half of the time B is text of another document instead; the segments B would have had go back and open
    the next example. Unlike there,
    - random examples change their Bs among each other (`exchanged`), so that B alone, or its length, says nothing of the answer:
      drawn from anywhere, a random B would often open its document, which a true one never does;
    - a segment left alone is an example of its own without a B and without a question (IGNORED): paired with random text it would
      make "random" the answer nine times in ten where a document does not open with A.
    """
    limit = max_length - 3
    if len(text) < 2 and not swapped:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends = np.asarray(text.segments).T
    segment, split, stop, answer, document = _gathered(starts, ends, np.asarray(text.documents), limit, rng, single, swapped)
    a_end = np.minimum(ends[segment], starts[segment] + max_length - 2)  # of a segment left alone
    rows = np.stack([starts[segment], a_end, a_end, a_end, answer], 1)

    [asked] = np.nonzero(answer != IGNORED)
    b, b_end = starts[split[asked]], ends[stop[asked] - 1]
    [random] = np.nonzero(answer[asked] == 1)
    if not swapped:
        other = np.arange(len(asked))
        other[random] = exchanged(random, b_end - b, document[asked], rng)
        b, b_end = b[other], b_end[other]
    a = starts[segment[asked]]
    a_size, b_size = fitted(ends[split[asked] - 1] - a, b_end - b, limit)
    rows[asked, 1:4] = np.stack([a + a_size, b, b + b_size], 1)
    if swapped:
        turned = asked[random]
        rows[turned, :4] = rows[turned][:, [2, 3, 0, 1]]
    return rows


def fitted(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """`tokenizer.fit_pair` of many pairs."""
    kept = np.minimum(first, np.maximum(room - second, room - room // 2))
    return kept, np.minimum(second, room - kept)


def _gathered(
    starts: np.ndarray, ends: np.ndarray, firsts: np.ndarray, limit: int, rng: np.random.Generator, single: bool, swapped: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Of each example the first segment of A, of B, the one after B, the answer, the document. All documents are read side by side."""
    document, segment, drawn = np.arange(len(firsts) - 1), firsts[:-1], []
    last = firsts[1:]
    while len(document):
        stop = np.searchsorted(ends, starts[segment] + limit) + 1  # the segment that reaches the limit is the last one
        stop = np.minimum(segment + 2 if single else stop, last)
        size = stop - segment
        # after the first segment, or a later one but the last
        split = segment + 1 + (rng.random(len(segment)) * np.maximum(1, size - 1)).astype(int)
        answer = np.where(size == 1, IGNORED, rng.random(len(segment)) < 0.5)
        drawn.append(np.stack([segment, split, stop, answer, document]))
        segment = stop if swapped else np.where(answer == 1, split, stop)
        left = segment < last
        document, segment, last = document[left], segment[left], last[left]
    found = np.concatenate(drawn, axis=1)
    return tuple(found[:, np.argsort(found[0])])


def exchanged(rows: np.ndarray, sizes: np.ndarray, documents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each of `rows` the example whose B it gets: one of another document, whose B is about as long as its own.

    `sizes` (tokens) and `documents` are those of the Bs of all examples, among which the few that are left over choose.
    Raises SesameError where all Bs stand in one document.
    """
    ordered = rows[np.lexsort((rng.random(len(rows)), sizes[rows]))]
    others = np.full(len(sizes), -1)
    even = len(ordered) // 2 * 2
    one, other = ordered[:even:2], ordered[1:even:2]  # neighbours in length
    apart = documents[one] != documents[other]
    others[one[apart]], others[other[apart]] = other[apart], one[apart]
    waiting: list[int] = []  # always of one document
    for row in ordered[others[ordered] < 0].tolist():
        if waiting and documents[waiting[0]] != documents[row]:
            nearest = waiting.pop()  # in length
            others[row], others[nearest] = nearest, row
        else:
            waiting.append(row)
    if waiting:  # the odd one, or what a document has that is longer than all others together
        [elsewhere] = np.nonzero(documents != documents[waiting[0]])
        if not len(elsewhere):
            raise SesameError("next-sentence prediction needs two documents of more than one segment")
        elsewhere = elsewhere[np.argsort(sizes[elsewhere], kind="stable")]
        nearest = np.searchsorted(sizes[elsewhere], sizes[waiting]).clip(max=len(elsewhere) - 1)
        others[waiting] = elsewhere[nearest]
    return others[rows]
