"""What every objective gives to pre-training."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.objectives.config import ObjectiveBlock
from components.objectives.examples.windows import Batches, Grouped, Rows
from components.text.encode import Split
from components.text.tokenizer import Tokenizer

Losses = dict[str, tuple[Tensor, Tensor]]
"""Of each part: the sum of the loss in nats over its targets, and how many of them were right."""


class Objective(ABC):
    """What a model learns to predict."""

    main: ClassVar[str]
    """The part whose loss is the language model's: perplexity and bits per byte are its."""
    chain_rule: ClassVar[bool] = False
    """Whether every token of the text is asked for after those before it (or behind it), so that the losses add up to the text's."""
    weights: Mapping[str, float] = MappingProxyType({})
    """Of parts that do not count as 1 in what is trained."""

    @abstractmethod
    def __init__(self, config: ObjectiveBlock, tokens: Tokenizer):
        """From its settings and the tokenizer of the text."""

    @abstractmethod
    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> Batches:
        """Raises SesameError when the text is smaller than one batch. An epoch of batches of one row has all rows of
        the text."""

    def validation(self, text: Split, batch_size: int, max_length: int) -> Batches:
        """All of a text, once. What it says depends neither on batch_size nor on the number of devices: one whose rows
        depend on each other takes batches of a size of their own."""
        return Grouped(self.batches(text, 1, max_length, seed=0), batch_size)

    @abstractmethod
    def losses(self, model: LanguageModel, rows: Rows, carry: Any) -> tuple[Losses, Any]:
        """The losses of some rows, and what the same rows of the next step need (LSTM states; None for most).

        Nothing here may ask a device for a value, as `float`, `if` and selection by a mask do: it would wait for all that is under way.
        """

    @abstractmethod
    def explain(self, batches: Batches, step: int) -> list[dict[str, str]]:
        """What a step reads, for people: of each row `documents` (numbers in the split), `text`, and what is asked of it."""

    @abstractmethod
    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """What the model makes of each prompt: `{"prompt": ..., "output": ...}`."""

    def asked(self, rows: Rows) -> tuple[Tensor, Tensor | None] | None:
        """The tokens that the main part asks for, (n,), IGNORED where nothing is asked, and what stands in their places, (n,), None where
        nothing does. None of an objective that asks for something else."""
        return None

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        """Networks of the objective's own, trained beside the model and thrown away after it, as ELECTRA's generator.

        `losses` may use them.
        """
        return {}

    def figures(self, figures: dict[str, float]) -> dict[str, float]:
        """What a validation says, from the loss and the accuracy of each part."""
        return figures

    def untrained(self, model: LanguageModel) -> list[str]:
        """Parts of the model that this leaves as they are drawn, as heads that it does not use. All others must get a gradient."""
        return []

    def controls(self, train: Batches, valid: Batches) -> dict[str, float]:
        """Figures for what of the task can be had the cheap way, as an answer that one segment alone gives away; for the metrics."""
        return {}

    def check(self, batches: Batches, steps: int | None) -> None:  # noqa: B027  (most have nothing to check)
        """Raises SesameError where the settings can make no difference in so many steps (None: not known before)."""
