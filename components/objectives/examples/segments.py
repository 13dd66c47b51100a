"""Documents cut into rows: windows of one document, and pairs of neighbouring segments."""

import numpy as np

from components.core.errors import SesameError
from components.objectives.scoring import IGNORED
from components.text.encode import Shard


def spans(text: Shard, max_length: int) -> np.ndarray:
    """Examples of one segment, (n, 5) like `pairs` with an empty B: windows of a document, max_length - 2 tokens each."""
    first, last = text.document_tokens[:-1] + 1, text.document_tokens[1:] - 1  # without [CLS] and the last [SEP]
    counts = -(-(last - first) // (max_length - 2))
    starts = ranges(first, counts, max_length - 2)
    stops = np.minimum(starts + max_length - 2, np.repeat(last, counts))
    return np.stack([starts, stops, stops, stops, np.full_like(starts, IGNORED)], 1)


def pieces(text: Shard, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The segments, those of more than `longest` tokens cut into as few pieces as fit, about as long as each other: the
    first token of each, (n,), its end, (n,), and of each document the first one, as `Shard.documents`."""
    firsts, ends = np.asarray(text.segments, np.int64).T
    sizes = ends - firsts
    counts = np.maximum(1, -(-sizes // longest))
    segment, number = np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
    bounds = [firsts[segment] + (number + i) * sizes[segment] // counts[segment] for i in (0, 1)]
    return *bounds, np.append(0, np.cumsum(counts))[text.documents]


def whole_sentences(text: Shard, max_length: int, across: bool) -> np.ndarray:
    """Examples like those of `spans`, of as many whole segments as fit, over the ends of documents or (`across` False) not
    (Liu et al. 2019, section 4.2). Of a segment that is longer than a row its pieces are read."""
    room = max_length - 2
    firsts, ends, documents = pieces(text, room)
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
    stops = ends[last]
    return np.stack([firsts[first], stops, stops, stops, np.full_like(stops, IGNORED)], 1)


def ranges(firsts: np.ndarray, counts: np.ndarray, step: int = 1) -> np.ndarray:
    """first, first + step, ... of each first, so many as its count, one after another."""
    counts = np.maximum(counts, 0)
    return np.repeat(firsts, counts) + step * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def pairs(text: Shard, max_length: int, rng: np.random.Generator, single: bool = False, swapped: bool = False) -> np.ndarray:
    """Examples for next-sentence prediction, (n, 5): A's first token and end, B's first token and end, 1 where B is
    random.

    With `single` A and B are a segment each; with `swapped` B is always what follows, and 1 says that the two were
    exchanged (sentence-order prediction, Lan et al. 2020, section 3.1).

    As in BERT's data (Devlin et al. 2019, appendix A.2): segments of a document are gathered up to max_length, split at
    a random place into A and B, and half of the time B is text of another document instead; the segments B would have
    had go back and open the next example. Unlike there,
    - nothing is cut off: as many segments are gathered as fit, and one that would leave no room for a second is read in
      pieces. Of a random B alone, which is read in its own document too, the last segments are left out where A leaves
      it less room;
    - random examples change their Bs among each other (`exchanged`), so that B alone, or its length, says nothing of
      the answer: drawn from anywhere, a random B would often open its document, which a true one never does;
    - a segment left alone is an example without a B and without a question (IGNORED): paired with random text it would
      make "random" the answer nine times in ten where a document does not open with A.
    """
    limit = max_length - 3
    if len(text) < 2 and not swapped:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends, documents = pieces(text, max(1, limit // 2))
    taken = np.append(0, np.cumsum(ends - starts))  # by all segments before each one
    segment, split, stop, answer, document = _gathered(taken, documents, limit, rng, single, swapped)
    a_end = ends[split - 1]
    rows = np.stack([starts[segment], a_end, a_end, a_end, answer], 1)

    [asked] = np.nonzero(answer != IGNORED)
    first, after = split[asked], stop[asked]  # the segments of each B
    b, b_end = starts[first], ends[after - 1]
    [random] = np.nonzero(answer[asked] == 1)
    if not swapped:
        other = exchanged(random, taken[after] - taken[first], document[asked], rng)
        room = limit - (taken[split] - taken[segment])[asked[random]]
        fits = np.minimum(after[other], np.searchsorted(taken, taken[first[other]] + room, side="right") - 1)
        b[random] = starts[first[other]]
        # where not even its first segment fits, the beginning of that
        b_end[random] = np.where(fits > first[other], ends[np.maximum(fits, 1) - 1], b[random] + room)
    rows[asked, 2:4] = np.stack([b, b_end], 1)
    if swapped:
        turned = asked[random]
        rows[turned, :4] = rows[turned][:, [2, 3, 0, 1]]
    return rows


def _gathered(
    taken: np.ndarray, firsts: np.ndarray, limit: int, rng: np.random.Generator, single: bool, swapped: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Of each example the first segment of A, of B, the one after B, the answer, the document. All documents are read
    side by side. `taken`: the tokens of all segments before each one; `firsts`: the first segment of each document, and
    their number."""
    document, segment, drawn = np.arange(len(firsts) - 1), firsts[:-1], []
    last = firsts[1:]
    while len(document):
        stop = np.searchsorted(taken, taken[segment] + limit, side="right") - 1  # after the last segment that fits
        stop = np.minimum(np.minimum(stop, segment + 2) if single else stop, last)
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
