"""The model writes its answer, and all weights are tuned (T5, Raffel et al. 2020)."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.errors import SesameError
from components.finetune.data import Batch, Encoded, Texts
from components.finetune.prompts import InWords, Tokens, add, before_answers, parts
from components.generate.writing import Writer
from components.models.contract import LanguageModel
from components.params import Greedy
from components.tasks import Example

NOTHING = -1
"""Behind a text that has ended."""


class Written(InWords):
    """What is written is read back in the task's own words. An answer that is none of these is counted, and wrong."""

    outside = 0

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data, most = Encoded([], [], []), self.recipe.target_length - 1
        answers = self.answers([self.answer(example) if example.label is not None else "" for example in examples])
        for example, answer in zip(examples, answers, strict=True):
            said = self.fitted(example, self.room)
            add(data, [self.row(said.ids, [*answer[:most], tokens.suffix[-1]])], said, example)
            data.lost += not said.lost and len(answer) > most
        return data

    def prepare(self, train: Encoded) -> None:
        if self.task.kind == "regression":  # where an answer is no number, what says least
            self.centre = sum(example.label for example in train.notes) / len(train.notes)

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        """The mean over the answers' tokens: output (tokens, vocab)."""
        targets = torch.cat([data.texts[i][0][data.segments[i][0] == 1] for i in batch.index]).to(output.device)
        return cross_entropy(output, targets, label_smoothing=self.recipe.label_smoothing)

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[Any]:
        """Ids (rows, longest) -> the answers."""
        written = [[int(i) for i in own if i != NOTHING] for own in output]
        return [self.read(ids, data.notes[i]) for ids, i in zip(written, batch.index, strict=True)]

    def read(self, ids: list[int], example: Example) -> Any:
        """What was written as an answer: a label or a choice by its ids, so that no spelling is in the way; a number; itself."""
        text = self.tokens.decode(ids).strip()
        if self.task.kind == "regression":
            number = re.fullmatch(r"-?\d+(\.\d+)?", text.replace(" ", ""))
            self.outside += number is None
            return float(number[0]) if number else self.centre
        if self.task.kind in ("classification", "choice"):
            names = self.labels if self.task.kind == "classification" else self.named(example.choices)
            self.outside += tuple(ids) not in names
            return names.get(tuple(ids), text)
        return text

    @cached_property
    def labels(self) -> dict[tuple[int, ...], str]:
        return self.named({label: self.words(label) for label in self.task.labels})

    def named(self, texts: Mapping[str, str]) -> dict[tuple[int, ...], str]:
        """Ids of texts, as far as they are written -> names. Raises SesameError where two are the same."""
        ids = [tuple(own[: self.recipe.target_length - 1]) for own in self.answers(list(texts.values()))]
        names = dict(zip(ids, texts, strict=True))
        if len(names) < len(texts) and self.task.kind == "classification":
            raise SesameError(f"two labels of {self.name} begin with the same {self.recipe.target_length - 1} tokens: raise target_length")
        return names


class TextToText(nn.Module):
    """Learns to write the answers; says what it would write."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: Written, pair: bool):
        super().__init__()
        self.model, self.recipe, self.head = model, recipe, nn.Identity()
        kind.meet(model, tokens)
        self.writer, self.opening = Writer(model, tokens), kind.opening
        longest = recipe.target_length + (recipe.max_length if kind.goes_on else len(kind.opening))
        if longest > model.max_length:
            what = "max_length and target_length of the recipe together" if kind.goes_on else "the target_length of the recipe"
            raise SesameError(f"{what} are {longest} tokens, and the model has room for {model.max_length}")

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """Rows of prompt and answer (batch, length). In training the scores of all answers' tokens, row after row, (tokens, vocab); else
        the ids of what is written, (batch, longest)."""
        [(ids, lengths)] = texts
        if self.training:
            return self.model.logits(before_answers(self.model, ids, lengths, segments))
        sources, how = parts(ids, lengths, segments)[0], Greedy(kind="greedy", max_new_tokens=self.recipe.target_length + len(self.opening))
        with torch.device(ids.device):  # where the search makes tensors of its own
            written = self.writer.write([source.tolist() for source in sources], how, len(ids))
        texts = [own[len(self.opening) :] if own[: len(self.opening)] == self.opening else own for own in written]
        return pad_sequence([torch.tensor(own, dtype=torch.long) for own in texts], batch_first=True, padding_value=NOTHING)


Method, Reading = TextToText, Written
