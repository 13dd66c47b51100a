"""Documents cut into rows: windows of one document, and pairs of neighbouring segments."""

import numpy as np

from components.encode import Split
from components.errors import SesameError
from components.objectives.scoring import IGNORED
from components.tokenizer import fit_pair


def spans(text: Split, max_length: int) -> np.ndarray:
    """Examples of one segment, (n, 5) like `pairs` with an empty B: windows of a document, max_length - 2 tokens each."""
    first, last = text.document_tokens[:-1] + 1, text.document_tokens[1:] - 1  # without [CLS] and the last [SEP]
    windows = [(a, end) for start, end in zip(first, last, strict=True) for a in range(start, end, max_length - 2)]
    rows = [(a, min(a + max_length - 2, end), end, end, IGNORED) for a, end in windows]
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def pairs(text: Split, max_length: int, rng: np.random.Generator) -> np.ndarray:
    """Examples for next-sentence prediction, (n, 5): A's first token and end, B's first token and end, 1 where B is random.

    As in BERT's data (Devlin et al. 2019, appendix A.2): segments of a document are gathered up to max_length, split at a random
    place into A and B, and half of the time B is text of another document instead; the segments B would have had go back and open
    the next example. Unlike there,
    - random examples change their Bs among each other (`exchanged`), so that B alone, or its length, says nothing of the answer:
      drawn from anywhere, a random B would often open its document, which a true one never does;
    - a segment left alone is an example of its own without a B and without a question (IGNORED): paired with random text it would
      make "random" the answer nine times in ten where a document does not open with A.
    """
    limit, documents = max_length - 3, len(text)
    if documents < 2:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends, firsts = text.segments[:, 0].tolist(), text.segments[:, 1].tolist(), text.documents.tolist()
    drawn = []  # of each example the first segment of A, of B, the one after B, the answer, the document
    for document in range(documents):
        segment, last = firsts[document], firsts[document + 1]
        while segment < last:
            stop = segment + 1
            while stop < last and ends[stop - 1] - starts[segment] < limit:
                stop += 1
            if stop - segment == 1:
                drawn.append((segment, stop, stop, IGNORED, document))
                segment = stop
                continue
            split = segment + 1 if stop - segment < 3 else int(rng.integers(segment + 1, stop))
            is_random = rng.random() < 0.5
            drawn.append((segment, split, stop, int(is_random), document))
            segment = split if is_random else stop
    second = {row: (starts[split], ends[stop - 1]) for row, (_, split, stop, answer, _) in enumerate(drawn) if answer != IGNORED}
    sizes = {row: end - start for row, (start, end) in second.items()}
    others = exchanged([row for row in second if drawn[row][3]], sizes, {row: drawn[row][4] for row in second}, rng)
    rows = []
    for row, (segment, split, _, answer, _) in enumerate(drawn):
        if answer == IGNORED:
            end = min(ends[segment], starts[segment] + max_length - 2)
            rows.append((starts[segment], end, end, end, IGNORED))
            continue
        b, b_end = second[others.get(row, row)]
        a_size, b_size = fit_pair(ends[split - 1] - starts[segment], b_end - b, limit)
        rows.append((starts[segment], starts[segment] + a_size, b, b + b_size, answer))
    return np.array(rows, dtype=np.int64)


def exchanged(rows: list[int], sizes: dict[int, int], documents: dict[int, int], rng: np.random.Generator) -> dict[int, int]:
    """For each of `rows` the example whose B it gets: one of another document, whose B is about as long as its own.

    `sizes` (tokens) and `documents` are those of the Bs of all examples, among which the few that are left over choose.
    Raises SesameError where all Bs stand in one document.
    """
    ordered = [rows[i] for i in np.lexsort((rng.random(len(rows)), [sizes[row] for row in rows]))]
    others: dict[int, int] = {}
    waiting: list[int] = []  # always of one document
    for row in ordered:
        if waiting and documents[waiting[0]] != documents[row]:
            other = waiting.pop()  # the nearest in length
            others |= {row: other, other: row}
        else:
            waiting.append(row)
    if waiting:  # the odd one, or what a document has that is longer than all others together
        elsewhere = sorted((sizes[row], row) for row in sizes if documents[row] != documents[waiting[0]])
        if not elsewhere:
            raise SesameError("next-sentence prediction needs two documents of more than one segment")
        nearest = np.searchsorted([size for size, _ in elsewhere], [sizes[row] for row in waiting]).clip(max=len(elsewhere) - 1)
        others |= {row: elsewhere[i][1] for row, i in zip(waiting, nearest, strict=True)}
    return others
