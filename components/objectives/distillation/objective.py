"""Learning from a teacher (DistilBERT, Sanh et al. 2019): what its own objective asks of the student is asked of the teacher, too, and the
student is held against both the text and what the teacher says."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div

from components import objectives
from components.encode import Split
from components.models import store
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.distillation import block
from components.objectives.examples.stream import labels
from components.objectives.examples.windows import Batches, Rows, Window
from components.objectives.scoring import IGNORED
from components.params import Objective as HardObjective
from components.tokenizer import Tokenizer


class Distillation(Contract):
    """Of the parts `soft` is the Kullback-Leibler divergence from the teacher's distribution at each target of the text, times the squared
    temperature (Hinton et al. 2015, section 2); `cosine` 1 less the cosine of the two last layers at each token; `teacher` is the teacher's
    own loss, which nothing learns from."""

    def __init__(self, config: block.Distillation, tokens: Tokenizer):
        self.config = config
        self.hard = objectives.build(TypeAdapter(HardObjective).validate_python(config.hard), tokens)
        self.main = self.hard.main
        # no network of the objective's: it is not trained, not saved with the student, and not cut into shards
        self.teacher = store.load(Path(config.teacher))[0].eval().requires_grad_(False)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "Taught":
        own = self.hard.batches(text, batch_size, max_length, seed)
        return Taught(own, {"soft": self.main, "teacher": self.main} | ({"cosine": "tokens"} if self.config.cosine_weight else {}))

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        return self.hard.networks(model)

    def untrained(self, model: LanguageModel) -> list[str]:
        return self.hard.untrained(model)

    def check(self, batches: "Taught", steps: int | None) -> None:
        self.hard.check(batches.own, steps)

    def controls(self, train: "Taught", valid: "Taught") -> dict[str, float]:
        return self.hard.controls(train.own, valid.own)

    def explain(self, batches: "Taught", step: int) -> list[dict[str, str]]:
        return self.hard.explain(batches.own, step)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        return self.hard.samples(model, text, prompts)

    def losses(self, model: LanguageModel, rows: Rows, carry: Any) -> tuple[Losses, Any]:
        student, teacher = Heard(model), Heard(self.teacher.to(rows["ids"].device))
        parts, carry = self.hard.losses(student, rows, carry)
        with torch.no_grad():
            own, _ = self.hard.losses(teacher, rows, None)
        self.weights = {name: self.config.hard_weight * self.hard.weights.get(name, 1.0) for name in parts}
        self.weights |= {"soft": self.config.soft_weight, "cosine": self.config.cosine_weight, "teacher": 0.0}
        asked = rows["labels"].flatten() if "labels" in rows else labels(rows["ids"])
        parts["soft"] = soft(student.said, teacher.said, asked, self.config.temperature, model.training)
        if self.config.cosine_weight:
            parts["cosine"] = apart(student.read, teacher.read, rows.get("lengths"))
        parts["teacher"] = own[self.main]
        return parts, carry

    def figures(self, figures: dict[str, float]) -> dict[str, float]:
        """`soft_accuracy` is how often both find the same token likeliest; a cosine has none."""
        figures = self.hard.figures(figures)
        return {key: value for key, value in figures.items() if key != "cosine_accuracy"}


class Heard:
    """A model as an objective calls it; what it read and said is kept."""

    def __init__(self, model: LanguageModel):
        self.model, self.read, self.said = model, None, []

    def __call__(self, *inputs: Tensor) -> Tensor:
        self.read = self.model(*inputs)
        return self.read

    def logits(self, hidden: Tensor) -> Tensor:
        self.said.append(self.model.logits(hidden))
        return self.said[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


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


def apart(student: Tensor, teacher: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Last layers of both (batch, length, width), lengths (batch,) or None where nothing is padded -> the sum over tokens of 1 - cosine."""
    each = 1 - cosine_similarity(student.float(), teacher.float(), dim=2)
    if lengths is not None:
        each = each * (torch.arange(each.shape[1], device=each.device) < lengths[:, None])
    return each.sum(), lengths.new_zeros(()) if lengths is not None else torch.zeros((), dtype=torch.long, device=each.device)


class Taught(Batches):
    """The batches of an objective, with the counts of what is held against the teacher."""

    def __init__(self, own: Batches, as_many: dict[str, str]):
        """`as_many`: of each part more, what there are as many of."""
        self.own, self.as_many = own, as_many

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
