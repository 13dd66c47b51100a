"""Settings of minimal pairs."""

from typing import Annotated, Literal

from pydantic import model_validator

from components.core.config import Added, Block, DrawnSeed
from components.evaluations.config import EvaluationBlock, Files


class PairColumns(Block):
    """The columns of a table of pairs, by their names in its header."""

    good: str = "good"
    """The right sentence."""
    bad: str = "bad"
    """The wrong one."""
    paradigm: str | None = None
    """What the pairs of one template have in common; null: the file's name says it."""
    phenomenon: str | None = None
    """What several paradigms are about; null: each is one of its own."""


class MinimalPairs(EvaluationBlock):
    """Pairs of sentences that differ in little, of which one is wrong: the right one should be the likelier (Marvin and Linzen 2018;
    Warstadt et al. 2020). Without a source they are made of the corpus' held-out sentences, so that their words are known to the models."""

    kind: Literal["minimal_pairs"]
    source: Annotated[Files | None, Added(neutral=None)] = None
    """Files of pairs; null: they are made."""
    reader: Annotated[Literal["table", "blimp", "babylm", "zorro"], Added(neutral="table")] = "table"
    """How the files are read: tables (JSONL, TSV, CSV) by `columns`; BLiMP (Warstadt et al. 2020); BabyLM's filtered BLiMP and supplement
    (Warstadt et al. 2023); Zorro (Huebner et al. 2021)."""
    columns: Annotated[PairColumns | None, Added(neutral=None)] = None
    """Of `table`; null: `good` and `bad`."""
    core: bool = False
    """Of made pairs: those that n-grams of words get right in one half only. In half of them the words beside point the wrong way, in the
    other half the right one. What is right beyond one half is not knowledge of neighbours."""
    seed: DrawnSeed
    """Draws which made pairs are kept, as many with the one word as with the other."""

    @model_validator(mode="after")
    def settings_have_an_effect(self):
        if self.source is None and (self.reader != "table" or self.columns):
            raise ValueError(f"{'columns' if self.columns else 'reader'} has no effect: without a source, pairs are made")
        if self.source and self.core:
            raise ValueError("core has no effect: it chooses among made pairs, and these have a source")
        if self.columns and self.reader != "table":
            raise ValueError(f"columns has no effect: reader {self.reader} knows its own; take reader: table")
        return self


Evaluation = MinimalPairs
