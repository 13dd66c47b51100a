"""The model generates the answer as text; all weights are trained (T5, Raffel et al. 2020)."""

import re
import unicodedata
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from components import params
from components.core.errors import SesameError
from components.finetune.data import Batch, Encoded, Texts
from components.finetune.prompts import PromptedKind, Tokens, add_example, answer_states, sources_targets
from components.generate.writing import Writer
from components.models.contract import LanguageModel
from components.params import Greedy
from components.params.tasks import NO_ANSWER
from components.tasks import Example
from components.tasks.metrics import INVISIBLE

PADDING = -1
MATCHES_NOTHING = "\N{REPLACEMENT CHARACTER}"
"""The prediction in place of a text that is not in the passage, where the empty text is an answer, too: wrong for any
question."""


class TextToTextKind(PromptedKind):
    """Generated texts are converted to the task's labels, choices or scores. Other answers are counted, and wrong."""

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        super().__init__(task, recipe, name)
        self.invalid = None if task.kind == "text" else 0
        self.longest = recipe.target_length - 1  # without the end token

    @property
    def learned(self) -> tuple[str, ...]:
        return ("centre",) if self.task.kind == "regression" else ()

    def bind(self, model: LanguageModel, tokens: Tokens) -> None:
        super().bind(model, tokens)
        self.labels = self.names_by_ids({label: self.label_text(label) for label in self.task.labels})
        if len(self.labels) < len(self.task.labels):
            raise SesameError(f"two labels of {self.name} begin with the same {self.longest} tokens: raise target_length")

    def encode(self, examples: list[Example], tokens: Tokens) -> Encoded:
        data = Encoded([], [], [])
        answers = self.answers([self.answer(example) if example.label is not None else "" for example in examples])
        for example, answer in zip(examples, answers, strict=True):
            prompt = self.prompt(example, self.prompt_length)
            add_example(data, [self.sequence(prompt.ids, [*answer[: self.longest], tokens.suffix[-1]])], prompt, example)
            data.lost += not prompt.lost and len(answer) > self.longest
        return data

    def prepare_targets(self, train: Encoded) -> None:
        if self.task.kind == "regression":  # the prediction where an answer is not a number
            self.centre = sum(example.label for example in train.notes) / len(train.notes)

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        """The mean over the tokens of the answers; output is (tokens, vocab)."""
        targets = torch.cat([data.texts[i][0][data.segments[i][0] == 1] for i in batch.index]).to(output.device)
        return cross_entropy(output, targets, label_smoothing=self.recipe.label_smoothing)

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[Any]:
        """Generated ids (examples, longest) -> the answers."""
        generated = [[int(i) for i in row if i != PADDING] for row in output]
        return [self.parse(ids, data.notes[i]) for ids, i in zip(generated, batch.index, strict=True)]

    def parse(self, ids: list[int], example: Example) -> Any:
        """Convert generated ids to an answer: a label or a choice by its ids, independent of the spelling; a number; or the text."""
        text = self.tokens.decode(ids).strip()
        if self.task.kind == "regression":
            number = re.fullmatch(r"-?\d+(\.\d+)?", text.replace(" ", ""))
            self.invalid += number is None
            return float(number[0]) if number else self.centre
        if self.task.kind in ("classification", "choice"):
            names = self.labels if self.task.kind == "classification" else self.names_by_ids(example.choices)
            self.invalid += tuple(ids) not in names
            return names.get(tuple(ids), text)
        if self.task.kind == "extraction":
            if self.task.unanswerable and not text:
                return NO_ANSWER
            in_passage = _as_written(text, example.text_b)
            self.invalid += not in_passage
            # where it is not there: not the text, of which some words could match an answer, nor what says that there is
            # no answer
            return in_passage or (MATCHES_NOTHING if self.task.unanswerable else "")
        return text

    def names_by_ids(self, texts: Mapping[str, str]) -> dict[tuple[int, ...], str]:
        """Ids of the texts, cut to the length that is generated -> names. Ids that two texts share name neither of them."""
        ids = [tuple(ids[: self.longest]) for ids in self.answers(list(texts.values()))]
        return {answer: name for answer, name in zip(ids, texts, strict=True) if ids.count(answer) == 1}


def _as_written(text: str, passage: str) -> str:
    """The passage's own characters for a text that differs from them in case, white space and Unicode's compatible forms, which a tokenizer
    may change (BERT's writes "20 – 18" for "20–18", all trained here "km2" for "km²"); empty where the passage does not have it."""
    folded = [_folded(character) for character in passage]
    edges = list(enumerate(accumulate(map(len, folded), initial=0)))
    begins, ends = {edge: i for i, edge in edges}, {edge: i for i, edge in reversed(edges)}  # white space has no width
    wanted, joined = _folded(text), "".join(folded)
    for match in re.finditer(f"(?={re.escape(wanted)})", joined) if wanted else ():
        begin, end = match.start(), match.start() + len(wanted)
        # whole characters alone: 서우 is within 서울 where these are decomposed, and cafe within café
        if begin in begins and end in ends and not any(map(unicodedata.combining, joined[end : end + 1])):
            return passage[begins[begin] : ends[end]]
    return ""


def _folded(text: str) -> str:
    """A text by its characters alone: decomposed, in lower case, without white space and characters of no width."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(INVISIBLE.sub("", decomposed).split())


class TextToText(nn.Module):
    """Trained to generate the answers."""

    def __init__(self, model: LanguageModel, tokens: Tokens, recipe: params.Recipe, kind: TextToTextKind, pair: bool):
        super().__init__()
        kind.bind(model, tokens)
        self.model, self.head = model, nn.Identity()
        self.writer = Writer(model, tokens)
        self.search = Greedy(kind="greedy", max_new_tokens=recipe.target_length + len(kind.opening))
        longest = self.search.max_new_tokens + (0 if kind.reads_source else recipe.max_length)
        if longest > model.max_length:
            field = "target_length" if kind.reads_source else "max_length + target_length"
            raise SesameError(f"{field} of the recipe is {longest} tokens, and the model reads at most {model.max_length}")

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """Sequences of prompt and answer (batch, length). In training, the logits of the answers' tokens, sequence after sequence,
        (tokens, vocab); else the generated ids, (batch, longest)."""
        [(ids, lengths)] = texts
        if self.training:
            return self.model.logits(answer_states(self.model, ids, lengths, segments))
        sources, _ = sources_targets(ids, lengths, segments)
        with torch.device(ids.device):  # for tensors that the search creates
            generated = self.writer.write([source.tolist() for source in sources], self.search, len(ids))
        opening = self.writer.opening
        answers = [row[len(opening) :] if row[: len(opening)] == opening else row for row in generated]
        return pad_sequence([torch.tensor(row, dtype=torch.long) for row in answers], batch_first=True, padding_value=PADDING)


Method, TaskKind = TextToText, TextToTextKind
