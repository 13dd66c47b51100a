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

    As in BERT's data: segments of a document are gathered up to max_length, split at a random place into A and B, and half
    of the time B is text of another document instead; the segments B would have had go back and open the next example.
    Unlike there, a segment left alone is an example of its own without a B and without a question (IGNORED): paired with
    random text it would make "random" the answer nine times in ten where a document does not open with A.
    """
    limit, documents = max_length - 3, len(text)
    if documents < 2:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends, firsts = text.segments[:, 0].tolist(), text.segments[:, 1].tolist(), text.documents.tolist()
    rows = []
    for document in range(documents):
        segment, last = firsts[document], firsts[document + 1]
        while segment < last:
            stop = segment + 1
            while stop < last and ends[stop - 1] - starts[segment] < limit:
                stop += 1
            if stop - segment == 1:
                end = min(ends[segment], starts[segment] + max_length - 2)
                rows.append((starts[segment], end, end, end, IGNORED))
                segment = stop
                continue
            split = segment + 1 if stop - segment < 3 else int(rng.integers(segment + 1, stop))
            is_random = rng.random() < 0.5
            if is_random:
                other = int(rng.integers(documents - 1))
                other += other >= document
                b_first, b_last = int(rng.integers(firsts[other], firsts[other + 1])), firsts[other + 1]
                stop = split
            else:
                b_first, b_last = split, stop
            a_size, b_size = ends[split - 1] - starts[segment], ends[b_last - 1] - starts[b_first]
            a_size, b_size = fit_pair(a_size, b_size, limit)
            rows.append((starts[segment], starts[segment] + a_size, starts[b_first], starts[b_first] + b_size, is_random))
            segment = stop
    return np.array(rows, dtype=np.int64)
