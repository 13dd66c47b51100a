"""Distillation from a teacher (DistilBERT, Sanh et al. 2019): teacher and student get the same batch of the teacher's objective, and the
student is compared with the text and with the teacher's predictions."""

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
from components.models.contract import LanguageModel, gather_positions
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.distillation import config
from components.objectives.examples.batches import Batches, Chunk, Tensors
from components.objectives.examples.rows import isolate
from components.objectives.examples.shuffled_text import next_token_labels
from components.objectives.scoring import IGNORED
from components.params import Objective as HardObjective
from components.text.encode import Split
from components.text.tokenizer import PAD, Tokenizer

TOKEN_TERMS = ("cosine", "layer", "relation")
"""Loss terms over all tokens of the text."""


class Distillation(Contract):
    """The loss terms of the teacher's objective, and those of the distillation.

    `soft` is the Kullback-Leibler divergence from the teacher's distribution at each target of the text, times the squared
    temperature (Hinton et al. 2015, section 2); `cosine` 1 minus the cosine of the last hidden states at each token; `layer` the
    squared distance of each layer to the teacher's layer of the same relative depth; `relation` compares the self-attention
    relations between tokens in a layer; `teacher` is the teacher's loss, with weight 0.
    """

    def __init__(self, config: config.Distillation, tokens: Tokenizer):
        self.config = config
        self.hard = objectives.build(TypeAdapter(HardObjective).validate_python(config.hard), tokens)
        self.main, self.chain_rule = self.hard.main, self.hard.chain_rule
        # not in `networks`: it is not trained, saved or sharded
        self.teacher = store.load(Path(config.teacher))[0].eval().requires_grad_(False)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "DistillationBatches":
        return self._with_counts(self.hard.batches(text, batch_size, max_length, seed))

    def validation(self, text: Split, batch_size: int, max_length: int) -> "DistillationBatches":
        return self._with_counts(self.hard.validation(text, batch_size, max_length))

    def _with_counts(self, batches: Batches) -> "DistillationBatches":
        token_terms = {name: "tokens" for name in TOKEN_TERMS if getattr(self.config, f"{name}_weight")}
        return DistillationBatches(batches, {"soft": self.main, "teacher": self.main, **token_terms})

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        return self.hard.networks(model)

    def untrained(self, model: LanguageModel) -> list[str]:
        return self.hard.untrained(model)

    def check(self, batches: "DistillationBatches", steps: int | None) -> None:
        self.hard.check(batches.inner, steps)

    def control_metrics(self, train: "DistillationBatches", valid: "DistillationBatches") -> dict[str, float]:
        return self.hard.control_metrics(train.inner, valid.inner)

    def token_targets(self, batch: Tensors) -> tuple[Tensor, Tensor | None] | None:
        return self.hard.token_targets(batch)

    def explain(self, batches: "DistillationBatches", step: int) -> list[dict[str, str]]:
        return self.hard.explain(batches.inner, step)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        return self.hard.samples(model, text, prompts)

    def losses(self, model: LanguageModel, batch: Tensors, carry: Any) -> tuple[Losses, Any]:
        config, device = self.config, batch["ids"].device
        student, teacher = RecordingModel(model), RecordingModel(self.teacher.to(device))
        needs_layers = config.layer_weight or config.relation_weight
        with record_layers(student) if needs_layers else nullcontext():
            losses, carry = self.hard.losses(student, batch, carry)
        with torch.no_grad(), record_layers(teacher) if needs_layers else nullcontext():
            teacher_losses, _ = self.hard.losses(teacher, batch, None)
        self.weights = {name: config.hard_weight * self.hard.weights.get(name, 1.0) for name in losses}
        self.weights |= {"soft": config.soft_weight, "teacher": 0.0} | {name: getattr(config, f"{name}_weight") for name in TOKEN_TERMS}
        labels = batch["labels"].flatten() if "labels" in batch else next_token_labels(batch["ids"])
        losses["soft"] = soft_loss(student.logit_chunks, teacher.logit_chunks, labels, config.temperature, model.training)
        # without lengths, padding is only at the end of the text
        lengths = batch["lengths"] if "lengths" in batch else (batch["ids"][:, 1:] != PAD).sum(1)
        no_count = torch.zeros((), dtype=torch.long, device=device)
        if config.cosine_weight:
            cosine = cosine_similarity(student.hidden.float(), teacher.hidden.float(), dim=2)
            losses["cosine"] = sum_over_tokens(1 - cosine, lengths), no_count
        if config.layer_weight:
            losses["layer"] = sum_over_tokens(layer_distances(student.states, teacher.states), lengths), no_count
        if config.relation_weight:
            projection = teacher.projections[(config.relation_layer or 0) - 1]
            heads = config.relation_heads or self.teacher.blocks[0].attention.num_heads
            divergence = relation_divergence(student.projections[-1], projection, heads, self._attention_mask(batch))
            losses["relation"] = sum_over_tokens(divergence, lengths), no_count
        losses["teacher"] = teacher_losses[self.main]
        return losses, carry

    def _attention_mask(self, batch: Tensors) -> Tensor:
        """Return (batch, 1, 1 or length, length), True for the tokens that a token attends to."""
        if "lengths" in batch:
            return (torch.arange(batch["ids"].shape[1], device=batch["ids"].device) < batch["lengths"][:, None])[:, None, None]
        ids = batch["ids"][:, :-1]
        if self.hard.config.isolate_documents:
            return isolate(ids)[1]
        return torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()

    def validation_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics; `soft_accuracy` is how often both models predict the same token. Terms over all tokens have no accuracy."""
        metrics = self.hard.validation_metrics(metrics)
        return {key: value for key, value in metrics.items() if key not in {f"{name}_accuracy" for name in TOKEN_TERMS}}


class RecordingModel:
    """A model as an objective calls it, whose hidden states and logits are recorded."""

    def __init__(self, model: LanguageModel):
        self.model, self.hidden = model, None
        self.logit_chunks: list[Tensor] = []
        self.states: list[Tensor] = []  # outputs of the layers
        self.projections: list[Tensor] = []  # queries, keys and values of the layers

    def __call__(self, *inputs: Tensor) -> Tensor:
        self.hidden = self.model(*inputs)
        return self.hidden

    def at(self, ids: Tensor, lengths: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        """The states of some tokens, as of the model; those of all are recorded."""
        return gather_positions(self(ids, lengths, segment_ids), positions)

    def logits(self, hidden: Tensor) -> Tensor:
        self.logit_chunks.append(self.model.logits(hidden))
        return self.logit_chunks[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@contextmanager
def record_layers(model: RecordingModel) -> Iterator[None]:
    """Record the output of each layer, and its queries, keys and values."""
    blocks = model.blocks
    projections = dict.fromkeys(block.attention.query_key_value for block in blocks)  # a shared projection runs one hook per call
    handles = [block.register_forward_hook(lambda _, inputs, output: model.states.append(output)) for block in blocks]
    handles += [projection.register_forward_hook(lambda _, inputs, output: model.projections.append(output)) for projection in projections]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def soft_loss(
    student: Sequence[Tensor], teacher: Sequence[Tensor], labels: Tensor, temperature: float, training: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Logits of both, in chunks (targets, vocab_size), labels (targets,) -> the sum of the divergences in nats, times the squared
    temperature, and how often both predict the same token (0 in training)."""
    sums, agreements = [], []
    real_chunks = (labels != IGNORED).split([len(logits) for logits in student])
    for ours, theirs, real in zip(student, teacher, real_chunks, strict=True):
        ours, theirs = ours.float(), theirs.float()
        log_ours, log_theirs = (ours / temperature).log_softmax(1), (theirs / temperature).log_softmax(1)
        divergence = kl_div(log_ours, log_theirs, reduction="none", log_target=True).sum(1)
        sums.append((divergence * real).sum() * temperature**2)
        agreements.append(real.new_zeros((), dtype=torch.long) if training else ((ours.argmax(1) == theirs.argmax(1)) & real).sum())
    return torch.stack(sums).sum(), torch.stack(agreements).sum()


def sum_over_tokens(values: Tensor, lengths: Tensor) -> Tensor:
    """values (batch, length), lengths (batch,) -> the sum without padding."""
    return (values * (torch.arange(values.shape[1], device=values.device) < lengths[:, None])).sum()


def layer_distances(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Hidden states of the layers of both, each (batch, length, width) -> (batch, length).

    Sums over the student's layers the mean squared distance to the teacher's layer of the same relative depth.
    """
    pairs = [(ours.float(), teacher[(i + 1) * len(teacher) // len(student) - 1].float()) for i, ours in enumerate(student)]
    return torch.stack([((ours - theirs) ** 2).mean(2) for ours, theirs in pairs]).sum(0)


def relation_divergence(student: Tensor, teacher: Tensor, heads: int, mask: Tensor) -> Tensor:
    """Queries, keys and values of a layer of both (batch, length, 3 * width), mask (batch, 1, 1 or length, length) -> (batch, length).

    The divergence of the student's distributions softmax(x x' / sqrt(d)) over tokens from the teacher's, averaged over the heads and
    summed over x = queries, keys, values (Wang et al. 2021).
    """
    ours, theirs = (_relations(layer.float(), heads).masked_fill(~mask[:, None], -1e9).log_softmax(-1) for layer in (student, teacher))
    return kl_div(ours, theirs, reduction="none", log_target=True).sum(-1).mean(2).sum(1)


def _relations(layer: Tensor, heads: int) -> Tensor:
    """(batch, length, 3 * width) -> (batch, 3, heads, length, length)."""
    x = layer.unflatten(2, (3, heads, -1)).permute(0, 2, 3, 1, 4)
    return x @ x.transpose(3, 4) / x.shape[4] ** 0.5


class DistillationBatches(Batches):
    """The batches of an objective, with the counts of the distillation's loss terms."""

    def __init__(self, inner: Batches, same_counts: dict[str, str]):
        """`same_counts`: loss term -> the name with the same count."""
        self.inner, self.same_counts, self.left_out = inner, same_counts, inner.left_out

    def representative_steps(self, tokens: int) -> dict[int, float]:
        return self.inner.representative_steps(tokens)

    def epoch_steps(self) -> int:
        return self.inner.epoch_steps()

    def tokens(self, step: int) -> int:
        return self.inner.tokens(step)

    def bounds(self, step: int) -> tuple[int, int]:
        return self.inner.bounds(step)

    def draw(self, first: int, last: int) -> Chunk:
        chunk = self.inner.draw(first, last)
        counts = [of_step | {term: of_step[name] for term, name in self.same_counts.items()} for of_step in chunk.counts]
        return replace(chunk, counts=counts)


Objective = Distillation
