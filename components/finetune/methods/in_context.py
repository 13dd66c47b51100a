"""How likely the model finds each answer behind a prompt with some examples; nothing learns (GPT-3, Brown et al. 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.finetune.data import Batch, Encoded, Texts, batches, padded
from components.finetune.prompts import InWords, Tokens, add, before_answers
from components.models.contract import LanguageModel
from components.tasks import Example
from components.text.tokenizer import Tokenizer

EMPTY = ("N/A", "[MASK]", "")
"""Texts without content (Zhao et al. 2021, section 5)."""
SHORTEST = 8
"""Tokens that an example has at least."""
ROWS = 128
"""Read at once."""


class Likelihood(InWords):
    """An example is read behind some labelled ones, once with each answer. Labels are judged by the log-probability of their words, so that
    of two that are as plausible the longer one is behind; choices, which are of many lengths, by its mean over the tokens (Brown et al.
    2020, section 2.4)."""

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        super().__init__(task, recipe, name)
        self.drawn = recipe.shots > 0

    def asks(self, model: LanguageModel, tokens: Tokens) -> None:
        super().asks(model, tokens)
        # a text does not end behind its answer, a target does
        self.end = [tokens.suffix[-1]] if self.reads_source else []
        # what stands between two examples: where a line break is no token, what ends a segment
        self.between = tokens.suffix if isinstance(tokens, Tokenizer) else tokens.encode(["\n"])[0]
        self.share = self.room // (self.recipe.shots + 1)
        if self.share < SHORTEST:
            raise SesameError(
                f"of max_length {self.recipe.max_length} each of {self.recipe.shots} examples and the one that is asked has {self.share} "
                "tokens: raise it or lower shots"
            )
        labels = self.answers([self.words(label) for label in self.task.labels])
        for own, name in zip(labels, self.task.labels, strict=True):
            for other, longer in zip(labels, self.task.labels, strict=True):
                if not self.end and own != other and other[: len(own)] == own:
                    raise SesameError(
                        f"the words of label {longer!r} of {self.name} go on with those of {name!r}, which are then always as likely: "
                        "give them others in prompt.answers"
                    )

    def begin(self, train: Sequence[Example], seed: int) -> None:
        """Draw the examples of the prompt, each in its share of the room. Raises SesameError where there are not so many."""
        drawn = np.random.default_rng([seed, 3]).permutation(len(train))[: self.recipe.shots]
        if len(drawn) < self.recipe.shots:
            raise SesameError(f"shots: {self.recipe.shots}, and there are {len(train)} training examples to draw from")
        self.train, self.pair, self.before, self.cut, self.lost = train, train[0].text_b is not None, [], 0, 0
        tight = 0
        for example in (train[i] for i in drawn):
            [answer] = self.answers([self.answer(example)])
            kept = answer[: self.share - SHORTEST]
            prompt = self.prompt(example, self.share - len(kept) - len(self.between))
            self.cut += prompt.cut or len(kept) < len(answer)
            self.lost += prompt.lost or len(kept) < len(answer)
            self.before += [*prompt.ids, *kept, *self.between]
            tight += prompt.empty
        if self.cut:
            print(
                f"of {len(drawn)} examples in the prompt of {self.name} {self.cut} are cut, {self.lost} lost their answer, {tight} "
                f"words of the prompt itself: each has {self.share} of the {self.recipe.max_length} tokens of max_length; raise it "
                "or lower shots",
                flush=True,
            )

    def counts(self, splits: Mapping[str, Encoded]) -> dict[str, Any]:
        """Of the prompt's own examples those that were cut, and those that lost their answer."""
        return {"shots": {"cut": self.cut, "lost": self.lost}}

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data = Encoded([], [], [], choices=True)
        for example in [] if examples is self.train else examples:  # nothing learns from these, some were drawn
            self.ask(data, example)
        return data

    def ask(self, data: Encoded, example: Example) -> None:
        """Put an example with each answer into a split. Raises SesameError for an empty choice."""
        texts = example.choices or {label: self.words(label) for label in self.task.labels}
        answers = [[*ids, *self.end] for ids in self.answers(list(texts.values()))]
        if not all(answers):
            raise SesameError(f"example {example.id} of {self.name} has a choice that makes no token")
        room = self.room - len(self.before)
        longest = min(max(map(len, answers)), room - SHORTEST)
        prompt = self.prompt(example, room - longest)
        if max(map(len, answers)) > longest:
            prompt = replace(prompt, cut=True, lost=True)
            if not example.choices and len({tuple(ids[:longest]) for ids in answers}) < len(answers):
                same = f"labels of {self.name} begin with the same {longest} tokens"
                raise SesameError(f"{same}, which is all that there is room for: raise max_length")
        add(data, [self.row([*self.before, *prompt.ids], ids[:longest]) for ids in answers], prompt, example)

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
    """No weight learns. Like frozen features, what the model says is made once."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: Likelihood, pair: bool):
        super().__init__()
        kind.asks(model, tokens)
        self.model, self.recipe, self.kind, self.head = model.requires_grad_(False), recipe, kind, nn.Identity()

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """In the place of each row how likely its answer is, (1,)."""
        if not len(data):
            return data
        self.model.eval()
        rows: list[list[Tensor]] = [[] for _ in range(len(data))]
        prior = self.label_prior(fabric) if self.recipe.calibrated else 0.0
        size, flops = max(1, ROWS // max(map(len, data.texts))), 0.0
        for batch in batches(data, size, None):
            [(ids, lengths)] = batch.texts
            if not flops:
                with flop_counter() as counter:
                    self.scores(*fabric.to_device((ids[:1, : lengths[0]], lengths[:1], batch.segments[:1, : lengths[0]])))
                flops = counter.get_total_flops() / int(lengths[0]) * sum(len(row) for texts in data.texts for row in texts)
            with fabric.autocast():
                scores = self.scores(*fabric.to_device((ids, lengths, batch.segments))).cpu()
            for i, own in zip(batch.index, scores.split(batch.sizes), strict=True):
                rows[i] = list((own - prior)[:, None])
        return replace(data, texts=rows, segments=[[torch.zeros(1, dtype=torch.long)] * len(own) for own in rows], flops=int(flops))

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """How likely each answer is, (batch, 1)."""
        [(scores, _)] = texts
        return scores

    def scores(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """Rows of prompt and answer (batch, length) -> the log-probability of each answer, of a choice per token: (batch,)."""
        asked = segments.sum(1)
        logits = self.model.logits(before_answers(self.model, ids, lengths, segments)).float()
        each = logits.gather(1, ids[segments == 1][:, None])[:, 0] - logits.logsumexp(1)
        row = torch.arange(len(ids), device=ids.device).repeat_interleave(asked)
        sums = each.new_zeros(len(ids)).index_add(0, row, each)
        return sums / asked if self.kind.task.kind == "choice" else sums

    def label_prior(self, fabric: Fabric) -> Tensor:
        """(labels,): the logarithm of what each is given behind texts without content, the mean over these."""
        given = []
        for data in self.kind.empty():
            (ids, lengths), (segments, _) = padded(data.texts[0]), padded(data.segments[0])
            given.append(self.scores(*fabric.to_device((ids, lengths, segments))).softmax(0).cpu())
        return torch.stack(given).mean(0).log()


Method, Reading = InContext, Likelihood
