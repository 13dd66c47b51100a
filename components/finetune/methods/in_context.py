"""How likely the model finds each answer behind a prompt with some examples; nothing learns (GPT-3, Brown et al. 2020)."""

from collections.abc import Sequence

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.errors import SesameError
from components.finetune.data import Batch, Encoded, Texts, padded
from components.finetune.prompts import InWords, Tokens, add, before_answers
from components.models.contract import LanguageModel
from components.tasks import Example

EMPTY = ("N/A", "[MASK]", "")
"""Texts without content (Zhao et al. 2021, section 5)."""


class Likelihood(InWords):
    """An example is read behind some labelled ones, once with each answer: labels are judged by the log-probability of their words,
    choices, which are of many lengths, by its mean over the tokens (Brown et al. 2020, section 2.4)."""

    drawn = True

    def begin(self, train: Sequence[Example], seed: int) -> None:
        """Draw the examples of the prompt. Raises SesameError where there are not so many."""
        self.pair = train[0].text_b is not None
        shots = np.random.default_rng([seed, 3]).permutation(len(train))[: self.recipe.shots]
        if len(shots) < self.recipe.shots:
            raise SesameError(f"shots: {self.recipe.shots}, and there are {len(train)} training examples to draw from")
        self.before = "".join(f"{self.said(train[i])} {self.answer(train[i])}\n" for i in shots)

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data = Encoded([], [], [], choices=True)
        for example in examples:
            self.ask(data, example)
        return data

    def ask(self, data: Encoded, example: Example) -> None:
        """An example with each answer. Raises SesameError where the examples in the prompt leave it no room."""
        texts = example.choices or {label: self.words(label) for label in self.task.labels}
        end = [] if self.goes_on else [self.tokens.suffix[-1]]
        answers = [[*ids, *end] for ids in self.answers(list(texts.values()))]
        said = self.fitted(example, self.room - max(map(len, answers)), self.before)
        if said.overflows:
            raise SesameError(
                f"the {self.recipe.shots} examples in the prompt leave no room for the one that is asked: "
                f"raise the recipe's max_length ({self.recipe.max_length}) or lower shots"
            )
        add(data, [self.row(said.ids, ids) for ids in answers], said, example)

    def empty(self) -> list[Encoded]:
        """Prompts about nothing, with each label."""
        splits = [Encoded([], [], [], choices=True) for _ in EMPTY]
        for split, text in zip(splits, EMPTY, strict=True):
            self.ask(split, Example("", text, text if self.pair else None, None))
        return splits

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        best = [int(scores.argmax()) for scores in output[:, 0].split(batch.sizes)]
        return [list(data.notes[i].choices or self.task.labels)[answer] for i, answer in zip(batch.index, best, strict=True)]


class InContext(nn.Module):
    """No weight learns."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: Likelihood, pair: bool):
        super().__init__()
        kind.meet(model, tokens)
        self.model, self.recipe, self.kind, self.head = model.requires_grad_(False), recipe, kind, nn.Identity()
        self.prior: Tensor | None = None

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """Rows of prompt and answer (batch, length) -> how likely the answer is, (batch, 1)."""
        [(ids, lengths)] = texts
        scores = self.scores(ids, lengths, segments)
        if self.recipe.calibrated:
            if self.prior is None:
                self.prior = self.likely_anyway(ids.device)
            scores = (scores.view(-1, len(self.prior)) - self.prior).flatten()
        return scores[:, None]

    def scores(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """The log-probability of each row's answer, of a choice per token: (batch,)."""
        asked = segments.sum(1)
        logits = self.model.logits(before_answers(self.model, ids, lengths, segments)).float()
        each = logits.gather(1, ids[segments == 1][:, None])[:, 0] - logits.logsumexp(1)
        row = torch.arange(len(ids), device=ids.device).repeat_interleave(asked)
        sums = each.new_zeros(len(ids)).index_add(0, row, each)
        return sums / asked if self.kind.task.kind == "choice" else sums

    def likely_anyway(self, device: torch.device) -> Tensor:
        """(labels,): the logarithm of what each is given behind texts without content, the mean over these."""
        given = []
        for data in self.kind.empty():
            (ids, lengths), (segments, _) = padded(data.texts[0]), padded(data.segments[0])
            given.append(self.scores(ids.to(device), lengths.to(device), segments.to(device)).softmax(0))
        return torch.stack(given).mean(0).log()


Method, Reading = InContext, Likelihood
