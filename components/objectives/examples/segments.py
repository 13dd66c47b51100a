"""Documents cut into examples: windows of one document, and pairs of neighbouring segments.

An example is (n, 5): the first token and the end of segment A, those of segment B (empty if equal), and the answer about the pair,
IGNORED if there is none.
"""

import numpy as np

from components.core.errors import SesameError
from components.objectives.scoring import IGNORED
from components.text.encode import Shard


def document_windows(text: Shard, max_length: int) -> np.ndarray:
    """Return examples of one segment: windows of a document, max_length - 2 tokens each."""
    first, last = text.document_tokens[:-1] + 1, text.document_tokens[1:] - 1  # without [CLS] and the last [SEP]
    counts = -(-(last - first) // (max_length - 2))
    starts = ranges(first, counts, max_length - 2)
    stops = np.minimum(starts + max_length - 2, np.repeat(last, counts))
    return _single(starts, stops)


def _single(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return examples (n, 5) with an empty B."""
    return np.stack([starts, stops, stops, stops, np.full_like(starts, IGNORED)], 1)


def split_segments(text: Shard, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the segments, those of more than `longest` tokens split into as few parts as possible, of about equal length.

    Returns the first token of each part, (n,), its end, (n,), and for each document its first part, like `Shard.documents`.
    """
    firsts, ends = np.asarray(text.segments, np.int64).T
    sizes = ends - firsts
    counts = np.maximum(1, -(-sizes // longest))
    segment, number = np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
    bounds = [firsts[segment] + (number + i) * sizes[segment] // counts[segment] for i in (0, 1)]
    return *bounds, np.append(0, np.cumsum(counts))[text.documents]


def full_sentences(text: Shard, max_length: int, across: bool) -> np.ndarray:
    """Return examples of one segment, of as many complete sentences as fit (Liu et al. 2019, section 4.2).

    They go across the ends of documents if `across`. A sentence that is longer than an example is split.
    """
    room = max_length - 2
    firsts, ends, documents = split_segments(text, room)
    opens = np.zeros(len(firsts), int)
    opens[documents[1:-1]] = 1
    document = np.cumsum(opens)
    # tokens of all segments up to each one, and a [SEP] for each document that ends before it
    used = np.cumsum(ends - firsts) + document
    starts, segment = [], 0
    while segment < len(firsts):
        starts.append(segment)
        before = used[segment] - (ends[segment] - firsts[segment])
        following = max(segment + 1, int(np.searchsorted(used, before + room, side="right")))
        segment = following if across else min(following, int(documents[document[segment] + 1]))
    first, last = np.array(starts), np.append(starts[1:], len(firsts)) - 1
    return _single(firsts[first], ends[last])


def ranges(firsts: np.ndarray, counts: np.ndarray, step: int = 1) -> np.ndarray:
    """Return the ranges first, first + step, ..., `count` numbers each, one after another."""
    counts = np.maximum(counts, 0)
    return np.repeat(firsts, counts) + step * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def segment_pairs(text: Shard, max_length: int, rng: np.random.Generator, single: bool = False, swapped: bool = False) -> np.ndarray:
    """Return examples for next-sentence prediction; the answer is 1 where B is random.

    With `single` A and B are one segment each; with `swapped` B always follows A, and 1 means that the two were exchanged
    (sentence-order prediction, Lan et al. 2020, section 3.1).

    As in BERT's data (Devlin et al. 2019, appendix A.2): segments of a document are gathered up to max_length, split at
    a random position into A and B, and half of the time B is replaced by text of another document; the segments that B would
    have had open the next example. Unlike there,
    - nothing is cut off: as many segments are gathered as fit, and one that would leave no room for a second is split. Only a
      random B, which is also read in its document, loses its last segments where A leaves it less room;
    - random examples exchange their Bs with each other (`match_partners`), so that neither B alone nor its length reveals the
      answer: a B drawn from anywhere would often open its document, which a true one never does;
    - a segment left alone is an example without a B and without an answer: paired with random text it would make
      "random" the answer in nine of ten examples whose A does not open a document.
    """
    limit = max_length - 3
    if len(text) < 2 and not swapped:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends, documents = split_segments(text, max(1, limit // 2))
    used = np.append(0, np.cumsum(ends - starts))  # tokens of all segments before each one
    segment, split, stop, answer, document = _gather_pairs(used, documents, limit, rng, single, swapped)
    a_end = ends[split - 1]
    examples = np.stack([starts[segment], a_end, a_end, a_end, answer], 1)

    [paired] = np.nonzero(answer != IGNORED)
    first, after = split[paired], stop[paired]  # the segments of each B
    b, b_end = starts[first], ends[after - 1]
    [random] = np.nonzero(answer[paired] == 1)
    if not swapped:
        other = match_partners(random, used[after] - used[first], document[paired], rng)
        room = limit - (used[split] - used[segment])[paired[random]]
        fits = np.minimum(after[other], np.searchsorted(used, used[first[other]] + room, side="right") - 1)
        b[random] = starts[first[other]]
        # if not even its first segment fits, the beginning of that segment
        b_end[random] = np.where(fits > first[other], ends[np.maximum(fits, 1) - 1], b[random] + room)
    examples[paired, 2:4] = np.stack([b, b_end], 1)
    if swapped:
        exchanged = paired[random]
        examples[exchanged, :4] = examples[exchanged][:, [2, 3, 0, 1]]
    return examples


def _gather_pairs(
    used: np.ndarray, firsts: np.ndarray, limit: int, rng: np.random.Generator, single: bool, swapped: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return for each example the first segment of A, that of B, the one after B, the answer, the document.

    All documents are processed in parallel. `used`: tokens of all segments before each one; `firsts`: the first segment of
    each document, and the number of segments.
    """
    document, segment, gathered = np.arange(len(firsts) - 1), firsts[:-1], []
    last = firsts[1:]
    while len(document):
        stop = np.searchsorted(used, used[segment] + limit, side="right") - 1  # after the last segment that fits
        stop = np.minimum(np.minimum(stop, segment + 2) if single else stop, last)
        size = stop - segment
        # after the first segment or a later one, but not after the last
        split = segment + 1 + (rng.random(len(segment)) * np.maximum(1, size - 1)).astype(int)
        answer = np.where(size == 1, IGNORED, rng.random(len(segment)) < 0.5)
        gathered.append(np.stack([segment, split, stop, answer, document]))
        segment = stop if swapped else np.where(answer == 1, split, stop)
        unfinished = segment < last
        document, segment, last = document[unfinished], segment[unfinished], last[unfinished]
    columns = np.concatenate(gathered, axis=1)
    return tuple(columns[:, np.argsort(columns[0])])


def match_partners(examples: np.ndarray, sizes: np.ndarray, documents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return for each of `examples` the example whose B it gets: of another document, and of similar length.

    `sizes` (tokens) and `documents` are those of the Bs of all examples, from which the few without a partner choose.
    Raise SesameError if all Bs are in one document.
    """
    ordered = examples[np.lexsort((rng.random(len(examples)), sizes[examples]))]
    partners = np.full(len(sizes), -1)
    even = len(ordered) // 2 * 2
    one, other = ordered[:even:2], ordered[1:even:2]  # neighbours in length
    apart = documents[one] != documents[other]
    partners[one[apart]], partners[other[apart]] = other[apart], one[apart]
    waiting: list[int] = []  # always of one document
    for example in ordered[partners[ordered] < 0].tolist():
        if waiting and documents[waiting[0]] != documents[example]:
            nearest = waiting.pop()  # in length
            partners[example], partners[nearest] = nearest, example
        else:
            waiting.append(example)
    if waiting:  # the odd one, or those of a document that is longer than all others together
        [elsewhere] = np.nonzero(documents != documents[waiting[0]])
        if not len(elsewhere):
            raise SesameError("next-sentence prediction needs two documents of more than one segment")
        elsewhere = elsewhere[np.argsort(sizes[elsewhere], kind="stable")]
        nearest = np.searchsorted(sizes[elsewhere], sizes[waiting]).clip(max=len(elsewhere) - 1)
        partners[waiting] = elsewhere[nearest]
    return partners[examples]
