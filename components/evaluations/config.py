"""Settings that all evaluations share."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from components.core.config import Block, CorpusName, Count, Label
from components.params.sources import BucketSource, FilesSource, PypiSource, UrlSource

LOWER_IS_BETTER = frozenset({"bits_per_byte"})
"""Measures for which lower is better; for all others, higher."""


Files = Annotated[PypiSource | UrlSource | FilesSource | BucketSource, Field(discriminator="kind")]
"""Sources of files."""


class EvaluationBlock(Block):
    """An evaluation of models without fine-tuning."""

    within_one_rule: ClassVar[bool] = False
    """Whether its figures compare only models that read alike, as those in bits or nats do: a masked model's pseudo-log-likelihood is no
    probability of a text, and lower-cased text has fewer bits."""

    corpus: CorpusName
    """Of `corpora` or `mixes`: the text that the models were trained on. Its training split is the text of n-gram
    baselines, its held-out splits are evaluated."""
    licence: Annotated[str | None, Label()] = None
    """Of the files."""


CONLL_U = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
COLUMNS_READ = ("form", "upos", "head", "deprel")


class Treebank(Block):
    """Sentences with a part of speech, a head and a relation for each word: CoNLL-U, or some of its columns."""

    source: Files
    """The files: one word per line with tabs between the fields, an empty line after each sentence."""
    columns: Annotated[list[str], Field(min_length=4)] = CONLL_U
    """Names of the fields in their order: `form`, `upos`, `head` and `deprel` are needed, `id` marks multiword
    tokens."""

    @model_validator(mode="after")
    def columns_are_there(self):
        for name in COLUMNS_READ:
            if (count := self.columns.count(name)) != 1:
                problem = f"is there {count} times" if count else "is missing"
                raise ValueError(f"columns: {name} {problem}; name each of {', '.join(COLUMNS_READ)} once")
        return self


class TreebankEvaluation(EvaluationBlock):
    """An evaluation on the words of a treebank."""

    train: Treebank
    """To train probes on, or to choose heads."""
    test: Treebank
    """To evaluate on."""
    train_words: Count = 20_000
    """Number of words, in sentences that are drawn with a fixed seed."""
    test_words: Count = 10_000
    """Number of words, in sentences that are drawn with a fixed seed."""
