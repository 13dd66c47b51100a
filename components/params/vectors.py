"""Word vectors: trained on a corpus, published, or out of a model."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import (
    Added,
    Block,
    CorpusName,
    Count,
    DrawnSeed,
    Label,
    ModelName,
    Seed,
    Share,
    Size,
    Threads,
    VectorsName,
)
from components.params.sources import Source


class Half(Block):
    """One of two disjoint halves of a corpus: whole documents, drawn by `split`, the larger half cut to the words of the other."""

    split: Seed
    """Which documents are in which half."""
    side: Literal["first", "second"]
    """Which of the two halves."""


Intrinsic = Literal["wordsim353", "simlex999", "analogies"]


class Trained(Block):
    """Settings of all vectors that are trained here."""

    corpus: CorpusName
    """The name of an entry of `corpora` or `mixes`: its training split is read."""
    half: Half | None = None
    """Only one of two disjoint halves of the text; null: all of it."""
    max_words: Count | None = None
    """The number of words of the text, in documents drawn at random; the rest is left out, so that two embeddings are of
    equally much text."""
    numerals: Annotated[bool, Added(neutral=False)] = False
    """Runs of digits are words, too: the seed of a dictionary that needs no dictionary."""
    tests: Annotated[list[Intrinsic], Added(neutral=[])] = []
    """For English vectors: how near they are to people's judgements of similarity, and whether analogies are found in
    them."""
    vector_size: Size = 100
    """Numbers of a vector (Mikolov et al. 2013: 300; on little text 100 is enough)."""
    window: Size = 5
    """Words to each side."""
    min_count: Count = 5
    """Times a word must occur to get a vector."""


class Predicted(Trained):
    """Vectors that predict their neighbours, with negative sampling, through gensim."""

    negative: Size = 10
    """Words drawn at random for each neighbour, to be told apart from it (Mikolov et al. 2013: 5 to 20 for small
    texts)."""
    sample: Annotated[float, Field(ge=0)] = 1e-3
    """Relative frequency from which occurrences are left out at random (Mikolov et al. 2013, section 2.3); 0 keeps all."""
    epochs: Size = 5
    """Passes over the text."""
    seed: DrawnSeed
    """The seed of the first vectors and of the random draws."""
    workers: Threads = 1
    """More than one is faster and no longer repeatable."""


class SkipGram(Predicted):
    """A word predicts its neighbours (Mikolov et al. 2013): the usual choice from some 100 M words on."""

    kind: Literal["skip_gram"]


class Cbow(Predicted):
    """The neighbours' mean predicts the word (Mikolov et al. 2013): several times faster, weaker on rare words."""

    kind: Literal["cbow"]


class FastText(Predicted):
    """Skip-gram over a word and its character n-grams (Bojanowski et al. 2017): for languages with many forms of a word."""

    kind: Literal["fasttext"]
    min_n: Size = 3
    """Fewest characters of an n-gram."""
    max_n: Size = 6
    """Characters of an n-gram, the marks of the word's ends among them."""
    buckets: Size = 200_000
    """Vectors that the n-grams share by their hash; each has `vector_size` numbers."""

    @model_validator(mode="after")
    def lengths_fit(self):
        if self.min_n > self.max_n:
            raise ValueError(f"min_n ({self.min_n}) is above max_n ({self.max_n})")
        return self


class PpmiSvd(Trained):
    """Factors of the positive pointwise mutual information matrix (Levy, Goldberg and Dagan 2015): steadier on few words.

    Within the window a neighbour at distance d counts (window + 1 - d) / window.
    """

    kind: Literal["ppmi_svd"]
    max_vocabulary: Count = 20000
    """Most frequent words that get a vector; the counts take memory with its square at worst."""
    context_smoothing: Share = 0.75
    """Exponent of the context counts, so that rare contexts don't dominate."""
    eigenvalue_weight: Share = 0.5
    """Exponent of the singular values; 0 weighs all dimensions alike."""


Vectors = Annotated[SkipGram | Cbow | FastText | PpmiSvd, Field(discriminator="kind")]
"""Trained on a corpus; those from elsewhere stand in `published_vectors`."""


class PublishedVectors(Block):
    """Word vectors from elsewhere, most frequent word first; counts of words they have none, so that they can't be two periods."""

    source: Source
    """Brings one file."""
    format: Literal["text", "word2vec_binary", "fasttext_binary", "npz"] = "text"
    """text: a word and its numbers a line, after a line with their counts (word2vec, fastText's .vec) or without it (GloVe), also in gz.
    npz: arrays `words` and `vectors`."""
    licence: Annotated[str, Label()]
    """The licence as stated by the source; goes onto the card."""
    lowercase: bool = False
    """Whether to lowercase: of words that differ only in case, the first and most frequent one is kept."""
    max_vocabulary: Count = 200_000
    """Words taken, the first ones."""
    tests: list[Intrinsic] = []
    """Tests of English vectors, as in `vectors`."""


class ContextualVectors(Block):
    """A vector for each word from a model: the mean over its occurrences in a text, each the mean over its tokens
    (Schuster et al. 2019).

    Spaces of two models are aligned like any two; those of one model's reading of two texts are alike before.
    """

    model: ModelName
    """The name of an entry of `models`, `checkpoints` or `derived`."""
    corpus: CorpusName
    """The name of an entry of `corpora` or `mixes`."""
    half: Half | None = None
    """Only one of two disjoint halves of the text; null: all of it."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """0 is below all context; null: the last."""
    max_words: Count = 300_000
    """The number of words of the training text, in documents drawn at random: all of them go through the model."""
    min_count: Count = 5
    """Times a word must occur to get a vector."""
    max_vocabulary: Count = 20_000
    """Most frequent words that get a vector."""
    tests: list[Intrinsic] = []
    """Tests of English vectors, as in `vectors`."""


class WordModel(Block):
    """Word vectors as a model without layers, for the heads, probes and random twins of pre-trained models.

    A text is cut into words, numbers and single other characters; what has no vector counts as zeros.
    """

    vectors: VectorsName
    """The name of an entry of `vectors`, `published_vectors` or `contextual_vectors`."""
    max_length: Size = 512
    """Longest input, in words."""
