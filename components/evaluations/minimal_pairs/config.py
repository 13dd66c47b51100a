"""Settings of minimal pairs."""

from typing import Annotated, Literal

from pydantic import model_validator

from components.core.config import Added, Block, Count, DrawnSeed
from components.evaluations.config import EvaluationBlock, Files


class PairColumns(Block):
    """Columns of a table of pairs, by their names in its header."""

    good: str = "good"
    """The right sentence."""
    bad: str = "bad"
    """The wrong one."""
    paradigm: str | None = None
    """The name of a template; null: the file's name."""
    phenomenon: str | None = None
    """The name of a group of paradigms; null: each paradigm is its own phenomenon."""


class MinimalPairs(EvaluationBlock):
    """Pairs of sentences that differ in little, of which one is wrong: the right one should be more probable (Marvin and Linzen 2018;
    Warstadt et al. 2020). Without a source they are generated from the corpus' held-out sentences, whose words the models
    know; sentences that the training text has, too, are left out."""

    kind: Literal["minimal_pairs"]
    source: Annotated[Files | None, Added(neutral=None)] = None
    """Files of pairs; null: they are generated."""
    reader: Annotated[Literal["table", "blimp", "babylm", "zorro"], Added(neutral="table")] = "table"
    """The format of the files: tables (JSONL, TSV, CSV) with `columns`; BLiMP (Warstadt et al. 2020); BabyLM's filtered BLiMP and
    supplement (Warstadt et al. 2023); Zorro (Huebner et al. 2021)."""
    columns: Annotated[PairColumns | None, Added(neutral=None)] = None
    """Of `table`; null: `good` and `bad`."""
    core: bool = False
    """Of generated pairs: those of which n-grams of words solve only half. In one half of them the neighbouring words favour the wrong
    sentence, in the other half the right one. An accuracy above one half needs more than knowledge of neighbours."""
    shared_words: Annotated[bool, Added(neutral=False)] = False
    """Score only the words that both sentences have, given the others (CrowS-Pairs, Nangia et al. 2020, section 4): a rare name
    makes its sentence no less probable then. The paper masks one token at a time, this lab the rest of its word, too."""
    pairs_per_paradigm: Annotated[Count | None, Added(neutral=None)] = None
    """Of a source: at most so many pairs of each paradigm, drawn by `seed`; null: all. A masked model reads a sentence once for each of
    its tokens, and published sets have a thousand pairs of a paradigm."""
    seed: DrawnSeed
    """Draws the generated pairs, as many with one word as with the other, or the pairs of each paradigm."""

    @model_validator(mode="after")
    def settings_have_an_effect(self):
        if self.source is None and (self.reader != "table" or self.columns):
            raise ValueError(f"{'columns' if self.columns else 'reader'} has no effect: without a source, pairs are generated")
        if self.source is None:
            self.refuse_idle(["shared_words"], "generated pairs differ in one word, which is what is asked")
            self.refuse_idle(["pairs_per_paradigm"], "without a source, pairs are generated")
        if self.source and self.core:
            raise ValueError("core has no effect: it selects generated pairs, and these have a source")
        if self.columns and self.reader != "table":
            raise ValueError(f"columns has no effect: reader {self.reader} has fixed columns; set reader: table")
        return self


Evaluation = MinimalPairs
