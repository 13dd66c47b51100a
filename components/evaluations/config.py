"""What all evaluations have in common."""

from typing import Annotated

from pydantic import Field, model_validator

from components.core.config import Block, CorpusName, Count, Label
from components.params.sources import BucketSource, FilesSource, PypiSource, UrlSource

LOWER_IS_BETTER = frozenset({"bits_per_byte"})
"""Measures of which less is better; of all others, more."""


Files = Annotated[PypiSource | UrlSource | FilesSource | BucketSource, Field(discriminator="kind")]
"""Sources that bring files, which evaluations are read from."""


class EvaluationBlock(Block):
    """What models are asked without being tuned."""

    corpus: CorpusName
    """Of `corpora` or `mixes`: the text that the models read. Its training part says what n-grams know, its held-out
    parts are asked about."""
    licence: Annotated[str | None, Label()] = None
    """Of what is fetched."""


CONLL_U = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
COLUMNS_READ = ("form", "upos", "head", "deprel")


class Treebank(Block):
    """Sentences with a part of speech, a head and a relation for each word: CoNLL-U, or columns of it."""

    source: Files
    """The files: a word a line with tabs between its fields, an empty line after each sentence."""
    columns: Annotated[list[str], Field(min_length=4)] = CONLL_U
    """What the fields are, in their order: `form`, `upos`, `head` and `deprel` are read, and `id` tells words of
    several tokens."""

    @model_validator(mode="after")
    def columns_are_there(self):
        for name in COLUMNS_READ:
            if (count := self.columns.count(name)) != 1:
                there = f"{count} times" if count else "missing"
                raise ValueError(f"columns: {name} {there}; {', '.join(COLUMNS_READ)} are read, each once")
        return self


class TreebankEvaluation(EvaluationBlock):
    """What is asked about the words of a treebank."""

    train: Treebank
    """What is learnt or chosen from."""
    test: Treebank
    """What is judged."""
    train_words: Count = 20_000
    """Of sentences that are drawn, the same ones each time."""
    test_words: Count = 10_000
    """Of sentences that are drawn, the same ones each time."""
