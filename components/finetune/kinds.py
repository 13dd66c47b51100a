"""Kinds of tasks: how examples become inputs, the loss, and how outputs become predictions in the task's terms.

A kind knows the task, not the model: a method's outputs are `(inputs, outputs)`, or `(inputs, length, outputs)` with `per_token`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from components import params
from components.core.errors import SesameError
from components.finetune.data import Batch, Encoded, join
from components.params.tasks import NO_ANSWER
from components.tasks import Example
from components.text.tokenizer import Tokenizer

MAX_ANSWER = 30
"""Tokens of the longest answer that can be predicted, as in BERT's SQuAD code; more where an answer in the training examples is
longer, as with a tokenizer of characters."""


class Kind:
    """The base of the kinds: the input is a text or a pair, and each example has one target."""

    per_token = False
    """One output for every token instead of one for the input."""
    apart = True
    """Whether a pair can be encoded as two inputs."""
    outputs_are_labels = False
    """Whether the outputs are logits of the task's labels."""
    depends_on_seed = False
    """Whether the inputs depend on the seed."""
    invalid: int | None = None
    """Number of predictions so far that were not valid answers; None where all are valid."""
    learned: tuple[str, ...] = ()
    """Attributes that `prepare_targets` computes from the training targets and `predict` needs."""

    def __init__(self, task: params.Task, recipe: params.Recipe):
        self.task, self.recipe, self.joined = task, recipe, joined(task, recipe)
        self.outputs = len(task.labels) or 1

    def prepare_inputs(self, train: Sequence[Example], seed: int) -> None:
        """Prepare from the training examples what the inputs need."""

    def encode(self, examples: list[Example], tokens: Tokenizer) -> Encoded:
        """Tokenise the examples and count those that are cut. A pair is one input of two segments, or two inputs with `pair: apart`."""
        first, second, offsets = tokenised(examples, tokens)
        data = Encoded([], [], [self.target(example) for example in examples])
        for i, example in enumerate(examples):
            a, b = first[i], second[i]
            if self.joined or b is None:
                rows = [join(tokens, a, b, self.recipe.max_length, self.task.cut)]
                kept = (rows[0].first, rows[0].second)
            else:
                rows = [join(tokens, a, None, self.recipe.max_length), join(tokens, b, None, self.recipe.max_length)]
                kept = (rows[0].first, rows[1].first)
            data.texts.append([row.ids for row in rows])
            data.segments.append([row.segments for row in rows])
            data.cut += kept[0] < len(a) or kept[1] < len(b or [])
            data.lost += any(end > reach(offsets[i][field], kept[field == "text_b"]) for field, _, end in example.spans or [])
        return data

    def target(self, example: Example) -> Any:
        """The target of the loss; None without a label."""
        raise NotImplementedError

    def extra_counts(self, splits: Mapping[str, Encoded]) -> dict[str, Any]:
        """More counts of the encoded splits for the metrics."""
        return {}

    def prepare_targets(self, train: Encoded) -> None:
        """Compute from the training targets what the loss needs."""

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[Any]:
        """A prediction for each example of the batch: a label's name, a score, a choice's name, an answer or tags."""
        raise NotImplementedError


class Classification(Kind):
    """One of the task's labels for a text or a pair."""

    outputs_are_labels = True

    def __init__(self, task: params.Task, recipe: params.Recipe):
        super().__init__(task, recipe)
        self.weights = None

    def target(self, example: Example) -> int | None:
        return None if example.label is None else self.task.labels.index(example.label)

    def prepare_targets(self, train: Encoded) -> None:
        if self.recipe.class_weights == "balanced":
            self.weights = balanced(train.targets, self.outputs)

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        return self.label_loss([data.targets[i] for i in batch.index], output)

    def label_loss(self, targets: list[int], output: Tensor) -> Tensor:
        """Cross-entropy with the recipe's smoothing, averaged with the class weights of the examples.

        torch's `cross_entropy` with both multiplies each class's share of the smoothing by the class's weight, so that the
        smoothing of frequent classes pulls towards a rare one (pytorch, issue 104776).
        """
        target = torch.tensor(targets, device=output.device)
        losses = cross_entropy(output, target, label_smoothing=self.recipe.label_smoothing, reduction="none")
        if self.weights is None:
            return losses.mean()
        weights = self.weights.to(output.device)[target]
        return (weights * losses).sum() / weights.sum()

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        return [self.task.labels[i] for i in output.argmax(1).tolist()]


FAR = 1000
"""Standard deviations from 0 beyond which scores are counted from their mean."""


class Regression(Kind):
    """A score; the model learns it in units of the standard deviation of the training scores."""

    learned = ("origin", "centre", "scale")

    def __init__(self, task: params.Task, recipe: params.Recipe):
        super().__init__(task, recipe)
        self.origin, self.centre, self.scale = 0.0, 0.0, 1.0

    def target(self, example: Example) -> float | None:
        return example.label

    def prepare_targets(self, train: Encoded) -> None:
        mean, deviation = np.mean(train.targets), np.std(train.targets)
        # 32 bits have seven digits: of scores far from 0, as dates, hardly one would be left for what they differ in.
        # Those near 0 are learned as they are, and so to the same bit as before there was an origin
        self.origin = float(mean) if abs(mean) > FAR * deviation else 0.0
        scores = torch.tensor([target - self.origin for target in train.targets])
        self.centre, self.scale = float(scores.mean()), float(scores.std(correction=0)) or 1.0

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        targets = torch.tensor([data.targets[i] - self.origin for i in batch.index], device=output.device)
        return mse_loss(output[:, 0], (targets - self.centre) / self.scale)

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[float]:
        return [score + self.origin for score in (output[:, 0] * self.scale + self.centre).tolist()]


class Choice(Kind):
    """One of the example's choices; each forms a pair with text_a and gets one score."""

    apart = False

    def encode(self, examples: list[Example], tokens: Tokenizer) -> Encoded:
        first = tokens.encode([example.text_a for example in examples])
        second = iter(tokens.encode([text for example in examples for text in example.choices.values()]))
        data = Encoded([], [], [], choices=True)
        for a, example in zip(first, examples, strict=True):
            names, texts = list(example.choices), [next(second) for _ in example.choices]
            rows = [join(tokens, a, b, self.recipe.max_length, self.task.cut) for b in texts]
            data.texts.append([row.ids for row in rows])
            data.segments.append([row.segments for row in rows])
            data.cut += any(row.first < len(a) or row.second < len(b) for row, b in zip(rows, texts, strict=True))
            data.lost += any(row.second < len(b) for row, b in zip(rows, texts, strict=True))
            data.notes.append(names)
            data.targets.append(None if example.label is None else [names.index(name) for name in example.label])
        return data

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        """Minus the logarithm of the total probability of all correct choices."""
        losses = []
        for scores, i in zip(output[:, 0].split(batch.sizes), batch.index, strict=True):
            losses.append(scores.logsumexp(0) - scores[data.targets[i]].logsumexp(0))
        return torch.stack(losses).mean()

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        best = [int(scores.argmax()) for scores in output[:, 0].split(batch.sizes)]
        return [data.notes[i][choice] for i, choice in zip(batch.index, best, strict=True)]


class Extraction(Kind):
    """A span of text_b, given by its first and last token (Devlin et al. 2019, section 4.2).

    If questions may have no answer, the token behind text_b stands for that, as first and last: every model has read all of the text
    there, also from left to right (in section 4.3 of the paper it is `[CLS]`). It is predicted where it is likelier than each span.
    """

    per_token, apart = True, False
    learned = ("longest_answer",)

    def __init__(self, task: params.Task, recipe: params.Recipe):
        super().__init__(task, recipe)
        self.outputs, self.longest_answer = 2, MAX_ANSWER

    def encode(self, examples: list[Example], tokens: Tokenizer) -> Encoded:
        first = tokens.encode([example.text_a for example in examples])
        second = tokens.encode_offsets([example.text_b for example in examples])
        data = Encoded([], [], [])
        for a, (b, offsets), example in zip(first, second, examples, strict=True):
            row = join(tokens, a, b, self.recipe.max_length, self.task.cut)
            kept = offsets[: row.second]
            data.texts.append([row.ids])
            data.segments.append([row.segments])
            data.cut += row.first < len(a) or row.second < len(b)
            if self.task.unanswerable and len(row.ids) == row.start + row.second:
                raise SesameError("unanswerable: the tokenizer puts no token behind a text, which would stand for no answer")
            data.notes.append((row.start, kept, example.text_b))
            data.targets.append(self.answer_tokens(example, kept))
            data.lost += example.label is not None and data.targets[-1] is None
        return data

    def answer_tokens(self, example: Example, kept: list[tuple[int, int]]) -> tuple[int, int] | None:
        """First and last token, counted from the start of text_b, of the first answer that is not cut; None where all are cut. Of a
        question without an answer it is the token behind text_b."""
        if example.label == [NO_ANSWER]:
            return len(kept), len(kept)
        for _, start, end in example.spans or []:
            inside = [i for i, (first, last) in enumerate(kept) if first < end and last > start]
            if inside and end <= kept[-1][1]:
                return inside[0], inside[-1]
        return None

    def prepare_targets(self, train: Encoded) -> None:
        self.longest_answer = max([MAX_ANSWER, *(end - start + 1 for start, end in filter(None, train.targets))])

    def extra_counts(self, splits: Mapping[str, Encoded]) -> dict[str, Any]:
        """Count for each split the answers that are too long to be predicted; print where there are any."""
        too_long = {
            split: sum(end - start >= self.longest_answer for start, end in filter(None, data.targets)) for split, data in splits.items()
        }
        for split, count in too_long.items():
            if count:
                print(f"{split}: {count:,} of {len(splits[split]):,} answers are longer than {self.longest_answer} tokens, the longest "
                      "that can be predicted", flush=True)  # fmt: skip
        return {"too_long": too_long}

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        losses = []
        for row, i in zip(output, batch.index, strict=True):
            if data.targets[i] is not None:  # an answer that was cut has no loss
                start, kept, _ = data.notes[i]
                target = torch.tensor(data.targets[i], device=output.device)
                losses.append(cross_entropy(row[start : start + len(kept) + self.task.unanswerable].T, target))
        return torch.stack(losses).mean() if losses else 0.0 * output.sum()

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        answers = []
        for row, i in zip(output, batch.index, strict=True):
            start, kept, text = data.notes[i]
            scores = row[start : start + len(kept)]
            pairs = scores[:, 0, None] + scores[None, :, 1]
            allowed = torch.ones_like(pairs, dtype=torch.bool).triu().tril(self.longest_answer - 1)
            if not len(kept):
                answers.append(NO_ANSWER)
                continue
            pairs = pairs.masked_fill(~allowed, -torch.inf)
            if self.task.unanswerable and row[start + len(kept)].sum() > pairs.max():
                answers.append(NO_ANSWER)
                continue
            best = int(pairs.argmax())
            answers.append(text[kept[best // len(kept)][0] : kept[best % len(kept)][1]].strip())
        return answers


class Tagging(Classification):
    """A tag for every word, predicted at its first token (Devlin et al. 2019, section 5.3)."""

    per_token, apart, outputs_are_labels = True, False, False

    def encode(self, examples: list[Example], tokens: Tokenizer) -> Encoded:
        # a space before each word but the first: byte-level BPE encodes a word inside a text differently from one at its start
        word_tokens = iter(tokens.encode([" " * (i > 0) + word for example in examples for i, word in enumerate(example.words)]))
        data = Encoded([], [], [])
        for example in examples:
            words = [next(word_tokens) for _ in example.words]
            firsts, ids = [], []
            for word in words:
                firsts.append(len(tokens.prefix) + len(ids))
                ids += word or [tokens.unknown]  # a word that normalisation removes
            row = join(tokens, ids, None, self.recipe.max_length)
            kept = [position for position in firsts if position < len(tokens.prefix) + row.first]
            data.texts.append([row.ids])
            data.segments.append([row.segments])
            data.cut += row.first < len(ids)
            data.lost += len(kept) < len(words)
            data.notes.append((torch.tensor(kept, dtype=torch.long), len(words)))
            data.targets.append(None if example.label is None else [self.task.labels.index(tag) for tag in example.label[: len(kept)]])
        return data

    def prepare_targets(self, train: Encoded) -> None:
        if self.recipe.class_weights == "balanced":
            self.weights = balanced([tag for tags in train.targets for tag in tags], self.outputs)

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        scores = torch.cat([row[data.notes[i][0].to(row.device)] for row, i in zip(output, batch.index, strict=True)])
        return self.label_loss([tag for i in batch.index for tag in data.targets[i]], scores)

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[list[str]]:
        """Words that were cut get the neutral tag: O, or the first."""
        nothing = "O" if "O" in self.task.labels else self.task.labels[0]
        tagged = []
        for row, i in zip(output, batch.index, strict=True):
            positions, words = data.notes[i]
            tags = [self.task.labels[tag] for tag in row[positions.to(row.device)].argmax(1).tolist()]
            tagged.append(tags + [nothing] * (words - len(tags)))
        return tagged


# `text` is missing: only the methods that generate text support it
KINDS = {"classification": Classification, "regression": Regression, "choice": Choice, "extraction": Extraction, "tagging": Tagging}


def build(task: params.Task, recipe: params.Recipe) -> Kind:
    """The kind of a task, for all methods without a `TaskKind` class."""
    return KINDS[task.kind](task, recipe)


def joined(task: params.Task, recipe: params.Recipe) -> bool:
    """Whether a pair is one input of two segments rather than two inputs."""
    return recipe.pair == "joined" or task.kind not in KINDS or not KINDS[task.kind].apart


def balanced(targets: list[int], classes: int) -> Tensor:
    """Class weights by inverse frequency as in scikit-learn, (classes,)."""
    return len(targets) / (classes * torch.bincount(torch.tensor(targets), minlength=classes).clamp(min=1))


def tokenised(examples: list[Example], tokens: Tokenizer) -> tuple[list[list[int]], list[list[int] | None], list[dict]]:
    """Ids of each text_a and text_b, and for examples with spans the characters of each token."""
    if all(example.spans is None for example in examples):
        first = tokens.encode([example.text_a for example in examples])
        second = tokens.encode([example.text_b or "" for example in examples])
        ends = [{}] * len(examples)
    else:
        first, first_offsets = zip(*tokens.encode_offsets([example.text_a for example in examples]), strict=True)
        second, second_offsets = zip(*tokens.encode_offsets([example.text_b or "" for example in examples]), strict=True)
        ends = [{"text_a": a, "text_b": b} for a, b in zip(first_offsets, second_offsets, strict=True)]
    return list(first), [b if example.text_b is not None else None for b, example in zip(second, examples, strict=True)], ends


def reach(offsets: list[tuple[int, int]], kept: int) -> int:
    """The end, in characters, of the tokens that fit."""
    return offsets[kept - 1][1] if kept else 0
