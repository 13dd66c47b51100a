"""A task in words: what a model that writes reads of an example, and what it is to write (T5, Raffel et al. 2020, section 2.4)."""

from dataclasses import dataclass
from math import ceil, log10

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.finetune.data import Encoded
from components.finetune.kinds import Kind
from components.generate.writing import decoding, family
from components.models.contract import LanguageModel
from components.tasks import Example
from components.tokenizer import Tokenizer, fast

STEPS = 25
"""Scores that are told apart in a task's range; of STS-B a fifth of a point, as T5 has it."""
Tokens = Tokenizer | fast.FastTokenizer


@dataclass(frozen=True)
class Said:
    """An example in words."""

    ids: list[int]
    cut: bool = False
    """Not all of it fits."""
    lost: bool = False
    """A marked word is cut away."""
    overflows: bool = False
    """Nothing of its texts fits."""


class InWords(Kind):
    """What the methods share that put a task in words. A row is what is read and, of segment 1, what is to be written or judged."""

    apart = False

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        """`name`: of the task, by which it is called where it has no prompt of its own."""
        super().__init__(task, recipe)
        self.name, self.joined, self.outputs = name, True, 1

    def meet(self, model: LanguageModel, tokens: Tokens) -> None:
        """The model that is asked, before anything is encoded. Raises SesameError for one that doesn't write from left to right."""
        decoding(family(model), "the model")
        self.tokens, self.opening = tokens, [] if isinstance(tokens, Tokenizer) else tokens.prefix
        self.goes_on = not reads_source(model)

    def row(self, prompt: list[int], answer: list[int]) -> tuple[Tensor, Tensor]:
        """Ids of what is read and of an answer, (length,), and their segments: 1 is to be written or judged."""
        tokens = self.tokens
        if self.goes_on:  # both are one text
            source, target = [*tokens.prefix, *prompt] or tokens.suffix, answer
        else:  # BART opens its targets with the prefix of a text
            source, target = [*tokens.prefix, *prompt, *tokens.suffix], [*self.opening, *answer]
        return torch.tensor([*source, *target]), torch.tensor([0] * len(source) + [1] * len(target))

    def answers(self, texts: list[str]) -> list[list[int]]:
        """Ids of texts as they stand behind a prompt or alone."""
        return self.tokens.encode([" " + text if self.goes_on else text for text in texts])

    @property
    def room(self) -> int:
        """For a prompt, in tokens."""
        return self.recipe.max_length - len(self.tokens.prefix) - len(self.tokens.suffix)

    def said(self, example: Example, texts: dict[str, str] | None = None) -> str:
        """The prompt of an example, or of one that has other texts."""
        texts = {"text_a": example.text_a, "text_b": example.text_b or ""} | (texts or {})
        choices = "; ".join((example.choices or {}).values())
        if self.task.prompt:
            return self.task.prompt.text.format(**texts, choices=choices)
        pair = example.text_b is not None
        said = f"{self.name} first: {texts['text_a']} second: {texts['text_b']}" if pair else f"{self.name}: {texts['text_a']}"
        return f"{said} choices: {choices}" if choices else said

    def fitted(self, example: Example, room: int, before: str = "") -> Said:
        """The prompt behind `before`, in `room` tokens: too long a one loses the end of its longer text, or where the task says so of
        text_a, so that what stands behind the texts stays."""
        tokens = self.tokens
        [ids] = tokens.encode([before + self.said(example)])
        if len(ids) <= room:
            return Said(ids)
        pieces = dict(zip(("text_a", "text_b"), tokens.encode_offsets([example.text_a, example.text_b or ""]), strict=True))
        kept = {field: len(own) for field, (own, _) in pieces.items()}
        while len(ids) > room and any(kept.values()):
            field = "text_a" if kept["text_a"] and self.task.cut == "text_a" else max(kept, key=kept.get)
            kept[field] = max(0, kept[field] - (len(ids) - room))
            ends = {field: pieces[field][1][count - 1][1] if count else 0 for field, count in kept.items()}
            texts = {"text_a": example.text_a[: ends["text_a"]], "text_b": (example.text_b or "")[: ends["text_b"]]}
            [ids] = tokens.encode([before + self.said(example, texts)])
        lost = any(end > ends[field] for field, _, end in example.spans or [])
        return Said(ids[: max(0, room)], True, lost, overflows=not any(kept.values()))

    def answer(self, example: Example) -> str:
        """What is to be written of a labelled example: the words of its label, its score to the nearest of so many steps, the text of the
        first right choice, the first right text."""
        if self.task.kind == "classification":
            return self.words(example.label)
        if self.task.kind == "choice":
            return example.choices[example.label[0]]
        if self.task.kind == "regression":
            return f"{round(example.label / self.step) * self.step:.{self.digits}f}"
        return example.label[0]

    def words(self, label: str) -> str:
        """What stands for a label: the task's own words for it, or its name."""
        return (self.task.prompt.answers if self.task.prompt else {}).get(label, label.replace("_", " "))

    @property
    def step(self) -> float:
        """Between two scores that are told apart."""
        return (self.task.range[1] - self.task.range[0]) / STEPS if self.task.range else 0.1

    @property
    def digits(self) -> int:
        return max(0, ceil(-log10(self.step)))


def reads_source(model: LanguageModel) -> bool:
    """Whether a model reads a source and writes a target beside it, and does not go on with a text."""
    return hasattr(model, "encode")


def add(data: Encoded, rows: list[tuple[Tensor, Tensor]], said: Said, example: Example) -> None:
    """Put an example into a split: the rows that it is asked by."""
    data.texts.append([ids for ids, _ in rows])
    data.segments.append([segments for _, segments in rows])
    data.targets.append(example.label)
    data.notes.append(example)
    data.cut += said.cut
    data.lost += said.lost


def parts(ids: Tensor, lengths: Tensor, segments: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Padded rows (batch, length) -> of each what is read and what is to be written, (n,)."""
    asked = segments.sum(1)
    both = [row[:length].split([length - own, own]) for row, length, own in zip(ids, lengths.tolist(), asked.tolist(), strict=True)]
    return [source for source, _ in both], [target for _, target in both]


def before_answers(model: LanguageModel, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    """What predicts each token of the answers, row after row: (tokens, hidden)."""
    if reads_source(model):
        sources, targets = (pad_sequence(part, batch_first=True) for part in parts(ids, lengths, segments))
        asked = segments.sum(1)
        hidden = model(sources, lengths - asked, targets)
        return hidden[torch.arange(targets.shape[1], device=ids.device) < asked[:, None]]
    return model.top(ids, lengths)[:, :-1][segments[:, 1:] == 1]
