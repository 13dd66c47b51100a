"""Tasks as text: the prompt of an example and the answer to generate (T5, Raffel et al. 2020, section 2.4)."""

from dataclasses import dataclass
from math import isclose

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

SCORE_STEPS = 25
"""Number of steps in a task's range to which scores are rounded; 0.2 points in STS-B, as in T5."""
Tokens = Tokenizer | fast.FastTokenizer


@dataclass(frozen=True)
class Prompt:
    """The tokens of an example's prompt."""

    ids: list[int]
    cut: bool = False
    """Not all of it fits."""
    lost: bool = False
    """A marked word, every possible answer, or all of the texts are cut."""
    empty: bool = False
    """No token of the texts fits."""


class PromptedKind(Kind):
    """The base of the kinds that express a task as text. A sequence is a prompt and an answer; the answer has segment 1."""

    apart = False

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        """`name`: the task's name, with which the default prompt begins."""
        super().__init__(task, recipe)
        self.name, self.joined, self.outputs = name, True, 1

    def bind(self, model: LanguageModel, tokens: Tokens) -> None:
        """Use the vocabulary of `model`; the method calls this before anything is encoded. Raises SesameError for a model that does not
        generate from left to right, and for label texts that are empty or equal."""
        writing.decoding(writing.family(model), "the model")
        self.tokens, self.reads_source, self.opening = tokens, writing.reads_source(model), writing.opening(model, tokens)
        ids = self.answers([self.label_text(label) for label in self.task.labels])
        for i, (label, label_ids) in enumerate(zip(self.task.labels, ids, strict=True)):
            if not label_ids or label_ids in ids[:i]:
                fault = "is no token" if not label_ids else f"has the same tokens as that of {self.task.labels[ids.index(label_ids)]!r}"
                raise SesameError(
                    f"the text {self.label_text(label)!r} of label {label!r} of {self.name} {fault}: set another one in prompt.answers"
                )

    def sequence(self, prompt: list[int], answer: list[int]) -> tuple[Tensor, Tensor]:
        """Ids of prompt and answer, (length,), and segments, in which 1 marks the answer."""
        tokens = self.tokens
        if self.reads_source:
            source, target = [*tokens.prefix, *prompt, *tokens.suffix], [*self.opening, *answer]
        else:  # a decoder reads one text
            source, target = [*tokens.prefix, *prompt] or tokens.suffix, answer
        return torch.tensor([*source, *target]), torch.tensor([0] * len(source) + [1] * len(target))

    def answers(self, texts: list[str]) -> list[list[int]]:
        """Ids of answers, alone in a target or as the continuation of a prompt."""
        return self.tokens.encode([text if self.reads_source else f" {text}" for text in texts])

    @property
    def prompt_length(self) -> int:
        """The most tokens that a prompt can have."""
        return self.recipe.max_length - len(self.tokens.prefix) - len(self.tokens.suffix)

    def prompt_text(self, example: Example, text_a: str, text_b: str) -> str:
        """The prompt of an example with other texts."""
        choices = "; ".join((example.choices or {}).values())
        if self.task.prompt:
            return self.task.prompt.text.format(text_a=text_a, text_b=text_b, choices=choices)
        text = f"{self.name}: {text_a}" if example.text_b is None else f"{self.name} first: {text_a} second: {text_b}"
        return f"{text} choices: {choices}" if choices else text

    def prompt(self, example: Example, room: int) -> Prompt:
        """The prompt of an example in `room` tokens. A longer one loses the end of its longer text, or with `cut: text_a` of text_a; the
        words of the template stay."""
        text_a, text_b = example.text_a, example.text_b or ""
        [ids] = self.tokens.encode([self.prompt_text(example, text_a, text_b)])
        if len(ids) <= room:
            return Prompt(ids)
        [template] = self.tokens.encode([self.prompt_text(example, "", "")])
        both = self.tokens.encode_offsets([text_a, text_b])
        sizes = [len(text_ids) for text_ids, _ in both]
        left = room - len(template)
        while left > 0:
            kept = self._fit(*sizes, left)
            ends = [offsets[count - 1][1] if count else 0 for (_, offsets), count in zip(both, kept, strict=True)]
            [ids] = self.tokens.encode([self.prompt_text(example, text_a[: ends[0]], text_b[: ends[1]])])
            if len(ids) <= room:
                return Prompt(ids, cut=True, lost=self._lost(example, dict(zip(("text_a", "text_b"), ends, strict=True))))
            left -= len(ids) - room  # tokens at the borders differ between the prompt and its texts
        return Prompt(ids[: max(0, room)], cut=True, lost=True, empty=True)

    def _fit(self, first: int, second: int, room: int) -> tuple[int, int]:
        if self.task.cut == "text_a":
            second = min(second, room)
            return min(first, room - second), second
        return fit_pair(first, second, room)

    def _lost(self, example: Example, ends: dict[str, int]) -> bool:
        gone = [end > ends[field] for field, _, end in example.spans or []]
        return all(gone) if gone and self.task.kind == "extraction" else any(gone)

    def answer(self, example: Example) -> str:
        """The answer of a labelled example: the text of its label, its score rounded to a step, the text of the first correct choice, or
        the first correct text."""
        if self.task.kind == "classification":
            return self.label_text(example.label)
        if self.task.kind == "choice":
            return example.choices[example.label[0]]
        if self.task.kind == "regression":
            low, high = self.task.range
            step = (high - low) / SCORE_STEPS
            decimals = next((count for count in range(4) if isclose(round(step, count), step)), 4)  # .16 of 1 to 5 needs two
            return f"{low + round((example.label - low) / step) * step:.{decimals}f}"
        return example.label[0]

    def label_text(self, label: str) -> str:
        """The text of a label from prompt.answers, by default its name."""
        return (self.task.prompt.answers if self.task.prompt else {}).get(label, label.replace("_", " "))


def add_example(data: Encoded, rows: list[tuple[Tensor, Tensor]], prompt: Prompt, example: Example) -> None:
    """Append an example, as its sequences, to a split."""
    data.texts.append([ids for ids, _ in rows])
    data.segments.append([segments for _, segments in rows])
    data.targets.append(example.label)
    data.notes.append(example)
    data.cut += prompt.cut
    data.lost += prompt.lost


def sources_targets(ids: Tensor, lengths: Tensor, segments: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Padded sequences (batch, length) -> their prompts and their answers, (n,) each."""
    answer_lengths = segments.sum(1).tolist()
    both = [row[:length].split([length - n, n]) for row, length, n in zip(ids, lengths.tolist(), answer_lengths, strict=True)]
    return [source for source, _ in both], [target for _, target in both]


def answer_states(model: LanguageModel, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    """The hidden states that predict the tokens of the answers, sequence after sequence: (tokens, hidden)."""
    if not writing.reads_source(model):
        return model.top(ids, lengths)[:, :-1][segments[:, 1:] == 1]
    sources, targets = (pad_sequence(part, batch_first=True) for part in sources_targets(ids, lengths, segments))
    answer_lengths = segments.sum(1)
    hidden = model(sources, lengths - answer_lengths, targets)
    return hidden[torch.arange(targets.shape[1], device=ids.device) < answer_lengths[:, None]]
