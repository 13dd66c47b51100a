"""The model writes its answer, and all weights are tuned (T5, Raffel et al. 2020)."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.core.errors import SesameError
from components.finetune.data import Batch, Encoded, Texts
from components.finetune.prompts import InWords, Tokens, add, before_answers, sources_targets
from components.generate.writing import Writer
from components.models.contract import LanguageModel
from components.params import Greedy
from components.tasks import Example

NOTHING = -1
"""Behind a text that has ended."""


class Written(InWords):
    """What is written is read back in the task's own words. An answer that is none of these is counted, and wrong."""

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        super().__init__(task, recipe, name)
        self.outside = None if task.kind == "text" else 0
        self.longest = recipe.target_length - 1  # and the end

    @property
    def learned(self) -> tuple[str, ...]:
        return ("centre",) if self.task.kind == "regression" else ()

    def asks(self, model: LanguageModel, tokens: Tokens) -> None:
        super().asks(model, tokens)
        self.labels = self.named({label: self.words(label) for label in self.task.labels})
        if len(self.labels) < len(self.task.labels):
            raise SesameError(f"two labels of {self.name} begin with the same {self.longest} tokens: raise target_length")

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data = Encoded([], [], [])
        answers = self.answers([self.answer(example) if example.label is not None else "" for example in examples])
        for example, answer in zip(examples, answers, strict=True):
            prompt = self.prompt(example, self.room)
            add(data, [self.row(prompt.ids, [*answer[: self.longest], tokens.suffix[-1]])], prompt, example)
            data.lost += not prompt.lost and len(answer) > self.longest
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
        if self.task.kind == "extraction" and not (_plain(text) and _plain(text) in _plain(example.text_b)):
            self.outside += 1
            return ""  # of which nothing is right, though words of it may be
        return text

    def named(self, texts: Mapping[str, str]) -> dict[tuple[int, ...], str]:
        """Ids of texts, as far as they are written -> names."""
        return dict(zip([tuple(ids[: self.longest]) for ids in self.answers(list(texts.values()))], texts, strict=True))


def _plain(text: str) -> str:
    """Without what pieces may change: case and white space."""
    return "".join(text.casefold().split())


class TextToText(nn.Module):
    """Learns to write the answers; says what it would write."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: Written, pair: bool):
        super().__init__()
        kind.asks(model, tokens)
        self.model, self.head = model, nn.Identity()
        self.writer, self.how = Writer(model, tokens), Greedy(kind="greedy", max_new_tokens=recipe.target_length + len(kind.opening))
        longest = self.how.max_new_tokens + (0 if kind.reads_source else recipe.max_length)
        if longest > model.max_length:
            what = "target_length" if kind.reads_source else "max_length and target_length together"
            raise SesameError(f"the recipe's {what} are {longest} tokens, and the model has room for {model.max_length}")

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """Rows of prompt and answer (batch, length). In training the scores of all answers' tokens, row after row, (tokens, vocab); else
        the ids of what is written, (batch, longest)."""
        [(ids, lengths)] = texts
        if self.training:
            return self.model.logits(before_answers(self.model, ids, lengths, segments))
        sources, _ = sources_targets(ids, lengths, segments)
        with torch.device(ids.device):  # where the search makes tensors of its own
            written = self.writer.write([source.tolist() for source in sources], self.how, len(ids))
        opening = self.writer.opening
        texts = [own[len(opening) :] if own[: len(opening)] == opening else own for own in written]
        return pad_sequence([torch.tensor(own, dtype=torch.long) for own in texts], batch_first=True, padding_value=NOTHING)


Method, Reading = TextToText, Written
