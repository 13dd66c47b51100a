"""The interface of an objective."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from components.models.contract import LanguageModel
from components.objectives.config import ObjectiveBlock
from components.objectives.examples.batches import Batches, GroupedBatches, Tensors
from components.text.encode import Split
from components.text.tokenizer import Tokenizer

Losses = dict[str, tuple[Tensor, Tensor]]
"""Loss term -> the sum of the loss in nats over its targets, and the number of correct predictions."""


class Objective(ABC):
    """A pre-training objective."""

    main: ClassVar[str]
    """The loss term of the language model, from which perplexity and bits per byte are computed."""
    chain_rule: ClassVar[bool] = False
    """Whether every token is predicted from those before (or after) it, so that the losses add up to the loss of the text."""
    weights: Mapping[str, float] = MappingProxyType({})
    """Weights of loss terms in the training loss; 1 for those that are not in it."""

    @abstractmethod
    def __init__(self, config: ObjectiveBlock, tokens: Tokenizer):
        """Build the objective from its settings and the tokenizer of the text."""

    @abstractmethod
    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> Batches:
        """Return the training batches. Raise SesameError if the text is smaller than one batch.

        With a batch size of 1, an epoch has all sequences of the text.
        """

    def validation(self, text: Split, batch_size: int, max_length: int) -> Batches:
        """Return the complete text once.

        The loss must depend neither on batch_size nor on the number of devices: an objective whose sequences depend on each other
        takes batches of a fixed size.
        """
        return GroupedBatches(self.batches(text, 1, max_length, seed=0), batch_size)

    @abstractmethod
    def losses(self, model: LanguageModel, batch: Tensors, carry: Any) -> tuple[Losses, Any]:
        """Return the losses of a batch, and the state for the same sequences of the next step (of an LSTM; None for most).

        This must not read a value from the device, as `float`, `if` and boolean indexing do: it would wait for all pending work.
        """

    @abstractmethod
    def explain(self, batches: Batches, step: int) -> list[dict[str, str]]:
        """Describe a step to people: for each sequence `documents` (numbers in the split), `text`, and its targets."""

    @abstractmethod
    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the model's output for each prompt: `{"prompt": ..., "output": ...}`."""

    def token_targets(self, batch: Tensors) -> tuple[Tensor, Tensor | None] | None:
        """Return the labels of the main loss term, (n,), and the input tokens at their positions, (n,), None if there are none.

        A label is IGNORED where nothing is predicted. Return None if the objective predicts something other than tokens.
        """
        return None

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        """Return auxiliary networks for `losses`, trained with the model and discarded afterwards, e.g. ELECTRA's generator."""
        return {}

    def validation_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics of a validation, given loss and accuracy of each loss term."""
        return metrics

    def untrained(self, model: LanguageModel) -> list[str]:
        """Return the modules of the model that get no gradient, e.g. heads that it does not use. All others must get one."""
        return []

    def control_metrics(self, train: Batches, valid: Batches) -> dict[str, float]:
        """Return metrics of shortcuts, e.g. how well one segment alone predicts the answer about a pair."""
        return {}

    def check(self, batches: Batches, steps: int | None) -> None:  # noqa: B027  (most have nothing to check)
        """Raise SesameError if a setting has no effect in so many steps (None: not known in advance)."""
