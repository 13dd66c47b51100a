"""Quick-thoughts (Logeswaran and Lee 2018, section 3)."""

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from components.encode import Split
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples import sentences
from components.objectives.examples.windows import Rows
from components.objectives.quick_thoughts import block
from components.tokenizer import Tokenizer


class QuickThoughts(Contract):
    """Of all other sentences of the batch, which are the neighbours? The probability of each is a softmax over inner products. Loss and
    accuracy are of sentences; bits per byte are those that it takes to find a neighbour, over the bytes of the sentence."""

    main = "neighbour"

    def __init__(self, config: block.QuickThoughts, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "FoundSentences":
        return FoundSentences(self.tokenizer, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        if self.config.encoders == "one":
            return {}
        self.other = deepcopy(model)
        with torch.no_grad():
            for parameter in self.other.parameters():  # weights of its own, of the same distribution: the same ones in another order
                parameter.copy_(parameter.flatten()[torch.randperm(parameter.numel())].view_as(parameter))
        for part in sentences.unreached(self.other):
            getattr(self.other, part).requires_grad_(False)
        return {"candidates": self.other}

    def untrained(self, model: LanguageModel) -> list[str]:
        return sentences.unreached(model)

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        asked = sentences.vectors(model, rows)
        candidates = asked if self.config.encoders == "one" else sentences.vectors(self.other, rows)
        scores = (asked.float() @ candidates.float().T).fill_diagonal_(-torch.inf)
        beside = sentences.neighbours(rows)
        right = torch.diag(beside, 1) | torch.diag(beside, -1)  # (batch, batch): the neighbours of each row
        found = right.sum(1)
        each = -scores.log_softmax(1).masked_fill(~right, 0).sum(1) / found.clamp(min=1)
        return {"neighbour": (each.sum(), hits(scores, right) if not model.training else found.new_zeros(()))}, None

    def explain(self, batches: "FoundSentences", step: int) -> list[dict[str, str]]:
        return sentences.explained(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        return sentences.nearest(model, self.tokenizer, text, prompts)


def hits(scores: Tensor, right: Tensor) -> Tensor:
    """scores, right (batch, batch) -> of how many rows the best other one is a neighbour."""
    return right.gather(1, scores.argmax(1, keepdim=True)).sum()


class FoundSentences(sentences.SentenceBatches):
    """A sentence is asked where a neighbour of its document is in the step."""

    def counts(self, lengths: np.ndarray, sizes: np.ndarray, follows: np.ndarray, precedes: np.ndarray) -> dict[str, np.ndarray]:
        asked = follows | precedes
        return {"neighbour": asked, "bytes": sizes * asked}


Objective = QuickThoughts
