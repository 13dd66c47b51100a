"""A task in words: what a model that writes reads of an example, and what it is to write (T5, Raffel et al. 2020, section 2.4)."""

from dataclasses import dataclass
from math import ceil, log10

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.core.errors import SesameError
from components.finetune.data import Encoded
from components.finetune.kinds import Kind
from components.generate import writing
from components.models.contract import LanguageModel
from components.tasks import Example
from components.text.tokenizer import Tokenizer, fast, fit_pair

STEPS = 25
"""Scores that are told apart in a task's range; of STS-B a fifth of a point, as T5 has it."""
Tokens = Tokenizer | fast.FastTokenizer


@dataclass(frozen=True)
class Prompt:
    """What is read of an example."""

    ids: list[int]
    cut: bool = False
    """Not all of it fits."""
    lost: bool = False
    """A marked word, all that could be answered, or all of the texts are cut away."""
    empty: bool = False
    """Nothing of the texts fits."""


class InWords(Kind):
    """What the methods share that put a task in words. A row is what is read and, of segment 1, what is to be written or judged."""

    apart = False

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        """`name`: of the task, by which it is called where it has no prompt of its own."""
        super().__init__(task, recipe)
        self.name, self.joined, self.outputs = name, True, 1

    def asks(self, model: LanguageModel, tokens: Tokens) -> None:
        """The model that is asked; the method says so before anything is encoded. Raises SesameError for one that doesn't write from left
        to right, and for words of labels that are none or the same."""
        writing.decoding(writing.family(model), "the model")
        self.tokens, self.reads_source, self.opening = tokens, writing.reads_source(model), writing.opening(model, tokens)
        ids = self.answers([self.words(label) for label in self.task.labels])
        for i, (label, own) in enumerate(zip(self.task.labels, ids, strict=True)):
            if not own or own in ids[:i]:
                what = "make no token" if not own else f"are to the model those of {self.task.labels[ids.index(own)]!r}"
                raise SesameError(
                    f"the words {self.words(label)!r} of label {label!r} of {self.name} {what}: give it others in prompt.answers"
                )

    def row(self, prompt: list[int], answer: list[int]) -> tuple[Tensor, Tensor]:
        """Ids of what is read and of an answer, (length,), and their segments: 1 is to be written or judged."""
        tokens = self.tokens
        if self.reads_source:
            source, target = [*tokens.prefix, *prompt, *tokens.suffix], [*self.opening, *answer]
        else:  # both are one text
            source, target = [*tokens.prefix, *prompt] or tokens.suffix, answer
        return torch.tensor([*source, *target]), torch.tensor([0] * len(source) + [1] * len(target))

    def answers(self, texts: list[str]) -> list[list[int]]:
        """Ids of texts as they stand alone, or go on behind a prompt."""
        return self.tokens.encode([text if self.reads_source else f" {text}" for text in texts])

    @property
    def room(self) -> int:
        """For a prompt, in tokens."""
        return self.recipe.max_length - len(self.tokens.prefix) - len(self.tokens.suffix)

    def asked(self, example: Example, text_a: str, text_b: str) -> str:
        """The prompt of an example with these in the place of its texts."""
        choices = "; ".join((example.choices or {}).values())
        if self.task.prompt:
            return self.task.prompt.text.format(text_a=text_a, text_b=text_b, choices=choices)
        asked = f"{self.name}: {text_a}" if example.text_b is None else f"{self.name} first: {text_a} second: {text_b}"
        return f"{asked} choices: {choices}" if choices else asked

    def prompt(self, example: Example, room: int) -> Prompt:
        """The prompt of an example in `room` tokens: too long a one loses the end of its longer text, or where the task says so of text_a,
        and nothing of what stands around them."""
        text_a, text_b = example.text_a, example.text_b or ""
        [ids] = self.tokens.encode([self.asked(example, text_a, text_b)])
        if len(ids) <= room:
            return Prompt(ids)
        [around], both = self.tokens.encode([self.asked(example, "", "")]), self.tokens.encode_offsets([text_a, text_b])
        sizes, left = [len(own) for own, _ in both], room - len(around)
        while left > 0:
            kept = self._kept(*sizes, left)
            ends = [offsets[count - 1][1] if count else 0 for (_, offsets), count in zip(both, kept, strict=True)]
            [ids] = self.tokens.encode([self.asked(example, text_a[: ends[0]], text_b[: ends[1]])])
            if len(ids) <= room:
                return Prompt(ids, cut=True, lost=self._lost(example, dict(zip(("text_a", "text_b"), ends, strict=True))))
            left -= len(ids) - room  # pieces at the borders are other ones in the whole than in the texts
        return Prompt(ids[: max(0, room)], cut=True, lost=True, empty=True)

    def _kept(self, first: int, second: int, room: int) -> tuple[int, int]:
        if self.task.cut == "text_a":
            second = min(second, room)
            return min(first, room - second), second
        return fit_pair(first, second, room)

    def _lost(self, example: Example, ends: dict[str, int]) -> bool:
        gone = [end > ends[field] for field, _, end in example.spans or []]
        return all(gone) if gone and self.task.kind == "extraction" else any(gone)

    def answer(self, example: Example) -> str:
        """What is to be written of a labelled example: the words of its label, its score to the nearest of so many steps, the text of the
        first right choice, the first right text."""
        if self.task.kind == "classification":
            return self.words(example.label)
        if self.task.kind == "choice":
            return example.choices[example.label[0]]
        if self.task.kind == "regression":
            low, high = self.task.range or (0.0, STEPS / 10)
            step = (high - low) / STEPS
            return f"{low + round((example.label - low) / step) * step:.{max(0, ceil(-log10(step)))}f}"
        return example.label[0]

    def words(self, label: str) -> str:
        """What stands for a label: the task's own words for it, or its name."""
        return (self.task.prompt.answers if self.task.prompt else {}).get(label, label.replace("_", " "))


def add(data: Encoded, rows: list[tuple[Tensor, Tensor]], prompt: Prompt, example: Example) -> None:
    """Put an example into a split: the rows that it is asked by."""
    data.texts.append([ids for ids, _ in rows])
    data.segments.append([segments for _, segments in rows])
    data.targets.append(example.label)
    data.notes.append(example)
    data.cut += prompt.cut
    data.lost += prompt.lost


def sources_targets(ids: Tensor, lengths: Tensor, segments: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Padded rows (batch, length) -> of each what is read and what is to be written, (n,)."""
    asked = segments.sum(1)
    both = [row[:length].split([length - own, own]) for row, length, own in zip(ids, lengths.tolist(), asked.tolist(), strict=True)]
    return [source for source, _ in both], [target for _, target in both]


def before_answers(model: LanguageModel, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    """What predicts each token of the answers, row after row: (tokens, hidden)."""
    if not writing.reads_source(model):
        return model.top(ids, lengths)[:, :-1][segments[:, 1:] == 1]
    sources, targets = (pad_sequence(part, batch_first=True) for part in sources_targets(ids, lengths, segments))
    asked = segments.sum(1)
    hidden = model(sources, lengths - asked, targets)
    return hidden[torch.arange(targets.shape[1], device=ids.device) < asked[:, None]]
