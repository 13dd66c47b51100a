"""Objectives of pre-training, a folder each: the batches made of a text, their loss, and samples that show what was
learned.

One more objective is one folder and its name in `OBJECTIVES` of `components.params.models`. In the folder:
`config.py` with its settings, an ObjectiveBlock, as `Objective` (no torch), and `objective.py` with what `contract.py`
asks for, built from (settings, tokenizer), as `Objective`. What objectives share: `examples` makes rows of text, `noise`
hides parts of them, `scoring` adds up losses, `writing` makes samples. An objective imports no other one. Which models it `trains` is one
of `Reads` in `components.models.common.config`: what the model sees in pre-training and in fine-tuning alike, and the panel that its curves
stand in, so that an objective of another direction is one more value there and a title in `components.comparison.plots`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the settings of all objectives are read where nobody wants to wait for torch
    from components.objectives.config import ObjectiveBlock
    from components.objectives.contract import Objective
    from components.text.tokenizer import Tokenizer


def build(config: "ObjectiveBlock", tokens: "Tokenizer") -> "Objective":
    """The objective of a block."""
    return import_module(f"components.objectives.{config.name}.objective").Objective(config, tokens)
