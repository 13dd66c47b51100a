"""Cleaning of documents: normalisation, then removal of short documents and duplicates."""

import hashlib
import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from components import params
from components.core.words import characters_apart
from components.text.corpora import Document

CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ud800-\udfff]")
"""Control characters other than white space, invisible break hints, byte-order marks and lone surrogates."""

BREAKS = re.compile("[\n\x0b\x1c-\x1f\u2028\u2029]")
"""White space that would begin another segment, or that ftfy removes from between two words."""
SHINGLE = 5
PERMUTATIONS = 128
RECALL = 0.9
"""Share of the pairs at the threshold that is compared at least; of more similar pairs it is nearly all."""


def words_of(document: Document) -> int:
    """Count the words of a document, separated by white space."""
    return sum(len(segment.split()) for segment in document)


def share_of(text: str, salt: str) -> float:
    """Return a pseudo-random number in [0, 1), a hash of the text, by which documents are sampled and split."""
    return int.from_bytes(hashlib.blake2b(f"{salt}\n{text}".encode(), digest_size=7).digest()) / 2**56


def sample(documents: Iterable[Document], max_words: int, seed: int, dropped: Counter) -> Iterator[Document]:
    """Sample at most `max_words` words, in the given order. A document has a rank by its hash; whenever the sample becomes too large, those
    of the highest ranks leave it. So one document more or less changes little of the sample.

    Counts the others in `dropped` as `not_sampled`, and those longer than `max_words` as `longer_than_sample`. Prints a line if the
    sample has less than nine tenths of `max_words`. Memory holds only the sample.
    """
    # a heap with the largest hash on top, which is removed when the sample becomes too large
    heap: list[tuple[float, int, int, Document]] = []
    total = before = 0
    for number, document in enumerate(documents):
        words = words_of(document)
        before += words
        if words > max_words:  # with a small hash it would remove all others first
            dropped["longer_than_sample"] += 1
            continue
        rank = share_of("\n".join(document), f"sample {seed}")
        heapq.heappush(heap, (-rank, number, words, document))
        total += words
        while total > max_words:
            total -= heapq.heappop(heap)[2]
            dropped["not_sampled"] += 1
    if total < 0.9 * min(max_words, before):
        print(
            f"sample: {total:,} of {max_words:,} words: whole documents are drawn, and they are long; "
            "read them as smaller documents (`document` of the reader), or raise max_words",
            flush=True,
        )
    heap.sort(key=lambda item: item[1])
    return (document for *_, document in heap)


def normalised(document: Document, unicode: str) -> Document:
    """Normalise Unicode (`ftfy` also repairs it) and white space, remove control characters and empty segments."""
    # all segments at once, which is faster
    text = "\n".join(BREAKS.sub(" ", segment) for segment in document)
    if unicode == "ftfy":
        text = "\n".join(map(_repaired, text.split("\n")))
    elif not text.isascii():
        text = unicodedata.normalize(unicode, CONTROL.sub("", text))
    elif not text.isprintable():  # ASCII needs no normalisation, and may only have control characters
        text = CONTROL.sub("", text)
    return [clean for segment in text.split("\n") if (clean := " ".join(segment.split()))]


def _repaired(segment: str) -> str:
    """Repair a segment by itself, since a repair may bring a line break ("&#10;").

    Control characters are removed afterwards: before, they are bytes of mojibake, and entities bring others ("&shy;").
    """
    if segment.isascii() and segment.isprintable() and "&" not in segment:  # ftfy changes none of these
        return segment
    import ftfy

    return CONTROL.sub("", BREAKS.sub(" ", ftfy.fix_text(segment, explain=False)))


def rows_of(threshold: float) -> int:
    """Return the rows of a band, of the 128 numbers. Documents that agree in a whole band are compared: with more rows fewer
    are compared and more pairs at the threshold are missed (Leskovec et al., Mining of Massive Datasets, section 3.4)."""
    recall = {rows: 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) for rows in (16, 8, 4, 2, 1)}
    return next((rows for rows, share in recall.items() if share >= RECALL), 1)


def digest_of(text: str) -> bytes:
    """Return a digest of 16 bytes, by which duplicates are found."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Cleaner:
    """Cleans the documents of one corpus, without those that it has seen before.

    `dropped` counts documents by reason: short, duplicates, near_duplicates.
    """

    def __init__(self, options: params.Cleaning):
        self.options = options
        self.dropped = Counter(short=0, duplicates=0, near_duplicates=0)
        self._seen: dict[bytes, None] = {}  # in the order of the text
        self._near = None
        self._hashes: dict[bytes, object] = {}
        if options.near_duplicates is not None:
            from datasketch import MinHash, MinHashLSH

            rows = rows_of(options.near_duplicates)
            self._near = MinHashLSH(num_perm=PERMUTATIONS, params=(PERMUTATIONS // rows, rows))
            self._empty = MinHash(num_perm=PERMUTATIONS)  # copied for each document: drawing the permutations takes longer than hashing

    def __call__(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the remaining documents, cleaned."""
        for document in documents:
            document = normalised(document, self.options.unicode)
            if reason := self._drop_reason(document):
                self.dropped[reason] += 1
            else:
                yield document

    def sampled(self, documents: Iterable[Document], max_words: int, seed: int) -> list[Document]:
        """Return a sample of the remaining documents, cleaned. What it leaves out is not in the corpus, and is forgotten: a later document
        is no duplicate of it."""
        before = len(self._seen)
        kept = list(sample(self(documents), max_words, seed, self.dropped))
        for digest in set(islice(self._seen, before, None)) - {digest_of("\n".join(document)) for document in kept}:
            del self._seen[digest]
            if digest in self._hashes:
                self._near.remove(digest)
                del self._hashes[digest]
        return kept

    def _drop_reason(self, document: Document) -> str | None:
        words = words_of(document)
        if words < max(1, self.options.min_words):
            return "short"
        digest = digest_of("\n".join(document))
        if digest in self._seen:
            return "duplicates"
        self._seen[digest] = None
        if self._near is not None and self._is_near_duplicate(document, digest):
            return "near_duplicates"
        return None

    def _is_near_duplicate(self, document: Document, digest: bytes) -> bool:
        """Return whether an earlier document shares most 5-word shingles (Broder 1997); store the hashes of this one if not.

        In scripts without blanks between words a character is a word. Documents of fewer than `near_duplicates_min_words`
        are not compared."""
        words = characters_apart(" ".join(document).casefold()).split()
        if len(words) < self.options.near_duplicates_min_words:
            return False
        shingles = {" ".join(words[i : i + SHINGLE]).encode() for i in range(max(1, len(words) - SHINGLE + 1))}
        hashes = self._empty.copy()
        hashes.update_batch(shingles)
        if any(self._hashes[key].jaccard(hashes) >= self.options.near_duplicates for key in self._near.query(hashes)):
            return True
        self._near.insert(digest, hashes)
        self._hashes[digest] = hashes
        return False
