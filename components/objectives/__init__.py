"""What is predicted in pre-training: which batches a text makes, their loss, and samples that show what was learned.

The batch of step s is a pure function of (seed, s): a resumed run reads on where it stopped, and the number of workers
or ranks changes nothing. A batch is a dictionary of tensors whose first dimension is the sequence, so that any share
of its rows is a batch too.

One more objective: a file with a class like `Objective`, a line in `OBJECTIVES`, its block in `components/params`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from components import params
from components.encode import Split
from components.objectives.bilm import BidirectionalLM
from components.objectives.clm import CausalLM
from components.objectives.mlm import MaskedLM
from components.tokenizer import Tokenizer


class Batches(Protocol):
    """The training steps that a text makes, without end."""

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        """The rows of a step, over all micro-batches and ranks."""

    def tokens(self, step: int) -> int:
        """Real tokens in the step, padding not counted."""

    def epoch_steps(self) -> int:
        """Steps of the first pass over the text."""


class Objective(Protocol):
    """What a model learns to predict."""

    main: str
    """The part whose loss is the language model's: perplexity and bits per byte are its."""

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> Batches:
        """Raises SesameError when the text is smaller than one batch."""

    def counts(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Number of targets of each part; `bytes`: the bytes of text behind the targets of the main part; `tokens`: real tokens read."""

    def losses(self, model: nn.Module, rows: dict[str, Tensor], carry: Any) -> tuple[dict[str, tuple[Tensor, Tensor]], Any]:
        """Sum of the loss in nats and number of right answers of each part, and what the next step's same rows need (LSTM states)."""

    def samples(self, model: nn.Module, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """What the model makes of each prompt: `{"prompt": ..., "output": ...}`."""


OBJECTIVES = {"mlm": MaskedLM, "clm": CausalLM, "bilm": BidirectionalLM}


def build(config: params.Objective, tokens: Tokenizer) -> Objective:
    """The objective of a block."""
    return OBJECTIVES[config.name](config, tokens)


@dataclass
class Sums:
    """Adds up counts and losses over rows, micro-batches and ranks; every mean is taken once, at the end."""

    values: dict[str, float]

    def figures(self, main: str) -> dict[str, float]:
        """loss, perplexity, bits_per_byte and accuracy of the main part; loss and accuracy of the others as `<part>_loss`."""
        figures = {}
        for part in sorted({key.split(".")[0] for key in self.values if "." in key}):
            count = self.values[f"{part}.count"]
            loss, accuracy = self.values[f"{part}.loss"] / count, self.values[f"{part}.correct"] / count
            if part == main:
                bits = self.values[f"{part}.loss"] / np.log(2)
                figures |= {"loss": loss, "perplexity": float(np.exp(min(loss, 50))), "bits_per_byte": bits / self.values["bytes"], "accuracy": accuracy}
            else:
                figures |= {f"{part}_loss": loss, f"{part}_accuracy": accuracy}
        return {key: float(value) for key, value in figures.items()}
