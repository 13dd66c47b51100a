"""In-context learning: the log-probability of each answer after a prompt with examples; nothing is trained (GPT-3, Brown et al. 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.core.compute import full_precision
from components.core.errors import SesameError
from components.core.flops import flop_counter
from components.finetune.data import Batch, Encoded, Texts, batches, padded
from components.finetune.prompts import PromptedKind, Tokens, add_example, answer_states
from components.models.contract import LanguageModel
from components.tasks import Example

EMPTY = ("N/A", "[MASK]", "")
"""Texts without content (Zhao et al. 2021, section 5)."""
MIN_PROMPT = 8
"""The fewest tokens of an example."""
BATCH_SIZE = 128
"""Sequences per forward pass."""


class InContextKind(PromptedKind):
    """The prompt has labelled examples; each answer is scored after it. The score of a label is the log-probability of its text, that of
    a choice the mean over its tokens, since choices differ in length (Brown et al. 2020, section 2.4)."""

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        super().__init__(task, recipe, name)
        self.depends_on_seed = recipe.shots > 0

    def bind(self, model: LanguageModel, tokens: Tokens) -> None:
        super().bind(model, tokens)
        # a target has an end token, a text continues
        self.end = [tokens.suffix[-1]] if self.reads_source else []
        # between two examples: a line break, or the segment's end where the vocabulary has no line break
        line_break = tokens.encode(["\n"])[0]
        self.separator = line_break if "\n" in tokens.decode(line_break) else tokens.suffix
        self.shot_length = self.prompt_length // (self.recipe.shots + 1)
        if self.shot_length <= MIN_PROMPT:  # a token at least is the answer's
            raise SesameError(
                f"max_length {self.recipe.max_length} leaves {self.shot_length} tokens for each of {self.recipe.shots} examples and the "
                "one to predict: raise it or lower shots"
            )
        labels = self.answers([self.label_text(label) for label in self.task.labels])
        for ids, name in zip(labels, self.task.labels, strict=True):
            for other, longer in zip(labels, self.task.labels, strict=True):
                if not self.end and ids != other and other[: len(ids)] == ids:
                    raise SesameError(
                        f"the text of label {longer!r} of {self.name} begins with that of {name!r}, which is then always more likely: "
                        "set other texts in prompt.answers"
                    )

    def prepare_inputs(self, train: Sequence[Example], seed: int) -> None:
        """Draw the examples of the prompt, each cut to `shot_length`. Raises SesameError where there are too few."""
        drawn = np.random.default_rng([seed, 3]).permutation(len(train))[: self.recipe.shots]
        if len(drawn) < self.recipe.shots:
            raise SesameError(f"shots: {self.recipe.shots}, but there are only {len(train)} training examples")
        self.train = train
        self.pair = train[0].text_b is not None
        self.context, self.cut, self.lost = [], 0, 0
        empty = 0
        for example in (train[i] for i in drawn):
            [answer] = self.answers([self.answer(example)])
            kept = answer[: self.shot_length - MIN_PROMPT]
            prompt = self.prompt(example, self.shot_length - len(kept) - len(self.separator))
            self.cut += prompt.cut or len(kept) < len(answer)
            self.lost += prompt.lost or len(kept) < len(answer)
            self.context += [*prompt.ids, *kept, *self.separator]
            empty += prompt.empty
        if self.cut:
            print(
                f"{self.cut} of {len(drawn)} examples in the prompt of {self.name} are cut, {self.lost} lost their answer, {empty} "
                f"words of the prompt itself: each has {self.shot_length} of the {self.recipe.max_length} tokens of max_length; raise it "
                "or lower shots",
                flush=True,
            )

    def extra_counts(self, splits: Mapping[str, Encoded]) -> dict[str, Any]:
        """Count the examples in the prompt that were cut and those that lost their answer."""
        return {"shots": {"cut": self.cut, "lost": self.lost}}

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data = Encoded([], [], [], choices=True)
        for example in [] if examples is self.train else examples:  # no training, and some are already in the prompt
            self.add_answers(data, example)
        return data

    def add_answers(self, data: Encoded, example: Example) -> None:
        """Append an example with each of its answers. Raises SesameError for an empty choice."""
        texts = example.choices or {label: self.label_text(label) for label in self.task.labels}
        answers = [[*ids, *self.end] for ids in self.answers(list(texts.values()))]
        if not all(answers):
            raise SesameError(f"example {example.id} of {self.name} has a choice without a token")
        room = self.prompt_length - len(self.context)
        longest = min(max(map(len, answers)), room - MIN_PROMPT)
        prompt = self.prompt(example, room - longest)
        if max(map(len, answers)) > longest:
            prompt = replace(prompt, cut=True, lost=True)
            if not example.choices and len({tuple(ids[:longest]) for ids in answers}) < len(answers):
                raise SesameError(f"labels of {self.name} begin with the same {longest} tokens, and no more fit: raise max_length")
        add_example(data, [self.sequence([*self.context, *prompt.ids], ids[:longest]) for ids in answers], prompt, example)

    def content_free(self) -> list[Encoded]:
        """Prompts without content, with each label."""
        splits = [Encoded([], [], [], choices=True) for _ in EMPTY]
        for split, text in zip(splits, EMPTY, strict=True):
            self.add_answers(split, Example("", text, text if self.pair else None, None))
        return splits

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        best = [int(scores.argmax()) for scores in output[:, 0].split(batch.sizes)]
        return [list(data.notes[i].choices or self.task.labels)[answer] for i, answer in zip(batch.index, best, strict=True)]


class InContext(nn.Module):
    """No weight is trained. The scores are computed once, as frozen features are."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: InContextKind, pair: bool):
        super().__init__()
        kind.bind(model, tokens)
        self.model, self.recipe, self.kind, self.head = model.requires_grad_(False), recipe, kind, nn.Identity()

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """Replace each sequence by the score of its answer, (1,)."""
        if not len(data):
            return data
        self.model.eval()
        rows: list[list[Tensor]] = [[] for _ in range(len(data))]
        prior = self.label_prior(fabric) if self.recipe.calibrated else 0.0
        size, flops = max(1, BATCH_SIZE // max(map(len, data.texts))), 0.0
        for batch in batches(data, size, None):
            [(ids, lengths)] = batch.texts
            if not flops:
                with flop_counter() as counter:
                    self.scores(*fabric.to_device((ids[:1, : lengths[0]], lengths[:1], batch.segments[:1, : lengths[0]])))
                flops = counter.get_total_flops() / int(lengths[0]) * sum(len(row) for texts in data.texts for row in texts)
            with fabric.autocast():
                scores = self.scores(*fabric.to_device((ids, lengths, batch.segments))).cpu()
            for i, answer_scores in zip(batch.index, scores.split(batch.sizes), strict=True):
                rows[i] = list((answer_scores - prior)[:, None])
        return replace(data, texts=rows, segments=[[torch.zeros(1, dtype=torch.long)] * len(row) for row in rows], flops=int(flops))

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """The score of each answer, (batch, 1)."""
        [(scores, _)] = texts
        return scores

    def scores(self, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """Prompt and answer (batch, length) -> the log-probability of each answer, for a choice per token: (batch,).

        Logits are in 32 bits: in bf16 labels that are not equally likely would tie, and the first one would win.
        """
        answer_lengths = segments.sum(1)
        states = answer_states(self.model, ids, lengths, segments)
        with full_precision(states):
            logits = self.model.logits(states.float())
        each = logits.gather(1, ids[segments == 1][:, None])[:, 0] - logits.logsumexp(1)
        row = torch.arange(len(ids), device=ids.device).repeat_interleave(answer_lengths)
        sums = each.new_zeros(len(ids)).index_add(0, row, each)
        return sums / answer_lengths if self.kind.task.kind == "choice" else sums

    def label_prior(self, fabric: Fabric) -> Tensor:
        """Logarithm of the labels' probabilities after texts without content, averaged over these, (labels,)."""
        probabilities = []
        for data in self.kind.content_free():
            (ids, lengths), (segments, _) = padded(data.texts[0]), padded(data.segments[0])
            with fabric.autocast():
                probabilities.append(self.scores(*fabric.to_device((ids, lengths, segments))).softmax(0).cpu())
        return torch.stack(probabilities).mean(0).log()


Method, TaskKind = InContext, InContextKind
