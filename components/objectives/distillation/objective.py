"""Learning from a teacher (DistilBERT, Sanh et al. 2019): what its own objective asks of the student is asked of the teacher, too, and the
student is compared with both the text and what the teacher says."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div

from components import objectives
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.clm.objective import isolate
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.distillation import config
from components.objectives.examples.stream import labels
from components.objectives.examples.windows import Batches, Rows, Window
from components.objectives.scoring import IGNORED
from components.params import Objective as HardObjective
from components.text.encode import Split
from components.text.tokenizer import PAD, Tokenizer

OF_TOKENS = ("cosine", "layer", "relation")
"""Parts that every token of the text has."""


class Distillation(Contract):
    """Of the parts `soft` is the Kullback-Leibler divergence from the teacher's distribution at each target of the text, times the squared
    temperature (Hinton et al. 2015, section 2); `cosine` 1 less the cosine of the two last layers at each token; `layer` the squared
    distance of each layer to the teacher's as far up; `relation` how else tokens relate in a layer; `teacher` is the teacher's own loss,
    which nothing learns from."""

    def __init__(self, config: config.Distillation, tokens: Tokenizer):
        self.config = config
        self.hard = objectives.build(TypeAdapter(HardObjective).validate_python(config.hard), tokens)
        self.main, self.chain_rule = self.hard.main, self.hard.chain_rule
        # no network of the objective's: it is not trained, not saved with the student, and not cut into shards
        self.teacher = store.load(Path(config.teacher))[0].eval().requires_grad_(False)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "Taught":
        return self._taught(self.hard.batches(text, batch_size, max_length, seed))

    def validation(self, text: Split, batch_size: int, max_length: int) -> "Taught":
        return self._taught(self.hard.validation(text, batch_size, max_length))

    def _taught(self, own: Batches) -> "Taught":
        of_tokens = {name: "tokens" for name in OF_TOKENS if getattr(self.config, f"{name}_weight")}
        return Taught(own, {"soft": self.main, "teacher": self.main, **of_tokens})

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        return self.hard.networks(model)

    def untrained(self, model: LanguageModel) -> list[str]:
        return self.hard.untrained(model)

    def check(self, batches: "Taught", steps: int | None) -> None:
        self.hard.check(batches.own, steps)

    def controls(self, train: "Taught", valid: "Taught") -> dict[str, float]:
        return self.hard.controls(train.own, valid.own)

    def asked(self, rows: Rows) -> tuple[Tensor, Tensor | None] | None:
        return self.hard.asked(rows)

    def explain(self, batches: "Taught", step: int) -> list[dict[str, str]]:
        return self.hard.explain(batches.own, step)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        return self.hard.samples(model, text, prompts)

    def losses(self, model: LanguageModel, rows: Rows, carry: Any) -> tuple[Losses, Any]:
        config, student, teacher = self.config, Heard(model), Heard(self.teacher.to(rows["ids"].device))
        within = config.layer_weight or config.relation_weight
        with inside(student) if within else nullcontext():
            parts, carry = self.hard.losses(student, rows, carry)
        with torch.no_grad(), inside(teacher) if within else nullcontext():
            own, _ = self.hard.losses(teacher, rows, None)
        self.weights = {name: config.hard_weight * self.hard.weights.get(name, 1.0) for name in parts}
        self.weights |= {"soft": config.soft_weight, "teacher": 0.0} | {name: getattr(config, f"{name}_weight") for name in OF_TOKENS}
        asked = rows["labels"].flatten() if "labels" in rows else labels(rows["ids"])
        parts["soft"] = soft(student.said, teacher.said, asked, config.temperature, model.training)
        # where nothing is padded but what is behind the end of the text
        lengths = rows["lengths"] if "lengths" in rows else (rows["ids"][:, 1:] != PAD).sum(1)
        none = torch.zeros((), dtype=torch.long, device=rows["ids"].device)
        if config.cosine_weight:
            parts["cosine"] = over_tokens(1 - cosine_similarity(student.read.float(), teacher.read.float(), dim=2), lengths), none
        if config.layer_weight:
            parts["layer"] = over_tokens(distances(student.states, teacher.states), lengths), none
        if config.relation_weight:
            layer = teacher.heads[(config.relation_layer or 0) - 1]
            heads = config.relation_heads or self.teacher.blocks[0].attention.num_heads
            parts["relation"] = over_tokens(relations(student.heads[-1], layer, heads, self._seen(rows)), lengths), none
        parts["teacher"] = own[self.main]
        return parts, carry

    def _seen(self, rows: Rows) -> Tensor:
        """(batch, 1, 1 or length, length), True where a token is related to: those of its row, or to the left those of its document."""
        if "lengths" in rows:
            return (torch.arange(rows["ids"].shape[1], device=rows["ids"].device) < rows["lengths"][:, None])[:, None, None]
        ids = rows["ids"][:, :-1]
        if self.hard.config.isolate_documents:
            return isolate(ids)[1]
        return torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()

    def figures(self, figures: dict[str, float]) -> dict[str, float]:
        """`soft_accuracy` is how often both find the same token likeliest; what is measured at each token has none."""
        figures = self.hard.figures(figures)
        return {key: value for key, value in figures.items() if key not in {f"{name}_accuracy" for name in OF_TOKENS}}


class Heard:
    """A model as an objective calls it; what it read and said is kept."""

    def __init__(self, model: LanguageModel):
        self.model, self.read, self.said, self.states, self.heads = model, None, [], [], []

    def __call__(self, *inputs: Tensor) -> Tensor:
        self.read = self.model(*inputs)
        return self.read

    def logits(self, hidden: Tensor) -> Tensor:
        self.said.append(self.model.logits(hidden))
        return self.said[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@contextmanager
def inside(heard: Heard) -> Iterator[None]:
    """Keep what each layer of a model makes, and its queries, keys and values."""
    blocks = heard.model.blocks
    projections = dict.fromkeys(block.attention.query_key_value for block in blocks)  # layers that share one tell of each call once
    handles = [block.register_forward_hook(lambda _, inputs, output: heard.states.append(output)) for block in blocks]
    handles += [own.register_forward_hook(lambda _, inputs, output: heard.heads.append(output)) for own in projections]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def soft(student: Sequence[Tensor], teacher: Sequence[Tensor], asked: Tensor, temperature: float, training: bool) -> tuple[Tensor, Tensor]:
    """Logits of both (targets, vocab_size), in pieces, and labels (targets,), IGNORED where nothing is asked -> the sum of the
    divergences in nats, times the squared temperature, and how often the likeliest is the same (while training 0)."""
    sums, same = [], []
    for own, told, there in zip(student, teacher, (asked != IGNORED).split([len(own) for own in student]), strict=True):
        own, told = own.float(), told.float()
        each = kl_div((own / temperature).log_softmax(1), (told / temperature).log_softmax(1), reduction="none", log_target=True).sum(1)
        sums.append((each * there).sum() * temperature**2)
        same.append(there.new_zeros((), dtype=torch.long) if training else ((own.argmax(1) == told.argmax(1)) & there).sum())
    return torch.stack(sums).sum(), torch.stack(same).sum()


def over_tokens(each: Tensor, lengths: Tensor) -> Tensor:
    """each (batch, length), lengths (batch,) -> the sum over real tokens."""
    return (each * (torch.arange(each.shape[1], device=each.device) < lengths[:, None])).sum()


def distances(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """States of the layers of both, each (batch, length, width) -> (batch, length): the mean squared distance over the width of each of the
    student's to the teacher's as far up, added up over the layers."""
    pairs = [(own.float(), teacher[(i + 1) * len(teacher) // len(student) - 1].float()) for i, own in enumerate(student)]
    return torch.stack([((own - told) ** 2).mean(2) for own, told in pairs]).sum(0)


def relations(student: Tensor, teacher: Tensor, heads: int, seen: Tensor) -> Tensor:
    """Queries, keys and values of a layer of both (batch, length, 3 * width), `seen` (batch, 1, 1 or length, length) -> (batch, length):
    the divergence of the teacher's distributions softmax(x x' / sqrt(d)) over tokens from the student's, a mean over the heads, added up
    over x = queries, keys, values."""
    own, told = (_related(layer.float(), heads).masked_fill(~seen[:, None], -1e9).log_softmax(-1) for layer in (student, teacher))
    return kl_div(own, told, reduction="none", log_target=True).sum(-1).mean(2).sum(1)


def _related(layer: Tensor, heads: int) -> Tensor:
    """(batch, length, 3 * width) -> (batch, 3, heads, length, length)."""
    x = layer.unflatten(2, (3, heads, -1)).permute(0, 2, 3, 1, 4)
    return x @ x.transpose(3, 4) / x.shape[4] ** 0.5


class Taught(Batches):
    """The batches of an objective, with the counts of what is compared with the teacher."""

    def __init__(self, own: Batches, as_many: dict[str, str]):
        """`as_many`: of each part more, what there are as many of."""
        self.own, self.as_many, self.left_out = own, as_many, own.left_out

    def epoch_steps(self) -> int:
        return self.own.epoch_steps()

    def tokens(self, step: int) -> int:
        return self.own.tokens(step)

    def bounds(self, step: int) -> tuple[int, int]:
        return self.own.bounds(step)

    def draw(self, first: int, last: int) -> Window:
        window = self.own.draw(first, last)
        return replace(window, counts=[own | {part: own[other] for part, other in self.as_many.items()} for own in window.counts])


Objective = Distillation
