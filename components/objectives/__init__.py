"""Pre-training objectives, a folder each: batches of a text, their loss, and samples that show what the model has learned.

To add an objective, add a folder and its name in `OBJECTIVES` of `components.params.models`. The folder has `config.py` with the
settings, an ObjectiveBlock, as `Objective` (without torch), and `objective.py` with a subclass of the class in `contract.py`, built
from (settings, tokenizer), as `Objective`. Shared code: `examples` builds batches from text, `noise` corrupts tokens, `scoring`
computes and sums losses, `sampling` generates text. An objective imports no other one. The counts of a batch (`examples.batches`) have
an entry for each term of the loss, `tokens` and `bytes`.

`trains` lists the kinds of `Reads` in `components.models.common.config` that the objective can train. A `Reads` value says which context
a model sees, in pre-training as in fine-tuning, and in which panel its curves are shown: an objective of another direction needs one
more value there, a family that has it, and a title in `components.comparison.plots`. Evaluations and generation go by it, too: they
take the logits of a model that reads from left to right for those of the next token.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the settings are also read where importing torch would take too long
    from components.objectives.config import ObjectiveBlock
    from components.objectives.contract import Objective
    from components.text.tokenizer import Tokenizer


def build(config: "ObjectiveBlock", tokens: "Tokenizer") -> "Objective":
    return import_module(f"components.objectives.{config.name}.objective").Objective(config, tokens)
