"""Replaced-token detection (ELECTRA, Clark et al. 2020)."""

import sys
from copy import deepcopy
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from components.core.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.electra import config
from components.objectives.examples.batches import Tensors
from components.objectives.examples.masked import MaskedBatches, explain_masked, scatter_targets
from components.objectives.scoring import IGNORED, score_tokens
from components.text.encode import Split
from components.text.tokenizer import Tokenizer


class ReplacedTokens(Contract):
    """The generator is a masked language model; the model detects the tokens that it replaced, or predicts the original ones.

    No gradient flows from the model to the generator, except through shared embeddings.
    """

    main = "mlm"

    def __init__(self, config: config.ReplacedTokens, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.detects = config.learns.startswith("replaced")
        self.weights = {"detector": config.detector_weight, "predicted": 0.0} if self.detects else {}

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> MaskedBatches:
        over = "tokens" if self.config.learns in ("replaced", "tokens") else "targets"
        terms = {"detector": over, "predicted": over} if self.detects else {"filled": over}
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed, {"mlm": "targets"} | terms)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        self.generator = smaller(model, self.config.generator_size, self.config.generator_layers)
        if self.config.embeddings != "shared":
            self.generator.token_embedding = deepcopy(model.token_embedding)
        if self.config.embeddings == "disentangled":  # the generator's embedding at the last step, whose change is added to the model's
            self.generator.register_buffer("before", self.generator.token_embedding.weight.detach().clone())
        self.detector = nn.Sequential(nn.Linear(model.width, model.width), nn.GELU(), nn.Linear(model.width, 1))
        return {"generator": self.generator} | ({"detector": self.detector} if self.detects else {})

    def untrained(self, model: LanguageModel) -> list[str]:
        heads = ["head_transform", "head_bias", "output_embedding"] if self.detects else []
        return [part for part in ("next_sentence", "pooler", *heads) if getattr(model, part) is not None]

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        if self.config.embeddings == "disentangled":
            self._update_embedding(model)
        ids, lengths, segment_ids, positions, labels = (batch[name] for name in ("ids", "lengths", "segment_ids", "positions", "labels"))
        hidden = self.generator.at(ids, lengths, segment_ids, positions)
        losses = {"mlm": score_tokens(self.generator, hidden.flatten(0, 1), labels.flatten())}
        original = scatter_targets(ids, positions, labels, labels)
        with torch.no_grad():
            samples = sample_tokens(self.generator.logits(hidden), labels, model.training)
            filled = scatter_targets(ids, positions, samples, labels)
        inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        if not self.detects:
            if self.config.learns == "targets":
                hidden, wanted = model.at(filled, lengths, segment_ids, positions), labels
            else:
                hidden, wanted = model(filled, lengths, segment_ids), torch.where(inside, original, IGNORED)
            losses["filled"] = score_tokens(model, hidden.flatten(0, 1), wanted.flatten())
            return losses, None
        predicted = inside
        if self.config.learns == "replaced_of_targets":
            predicted = scatter_targets(torch.zeros_like(ids), positions, torch.ones_like(positions), labels).bool()
        replaced = (filled != original).float()  # a sampled token that equals the original is not replaced
        # the last layer, which fine-tuning reads, without a family's decoder of masked tokens
        logits = self.detector(model.top(filled, lengths, segment_ids))[:, :, 0].float()
        loss = (binary_cross_entropy_with_logits(logits, replaced, reduction="none") * predicted).sum()
        detected = (logits > 0) & predicted
        losses["detector"] = loss, ((detected == replaced.bool()) & predicted).sum()
        losses["predicted"] = detected.sum().float(), (detected & replaced.bool()).sum()  # with weight 0, for the precision
        return losses, None

    @torch.no_grad()
    def _update_embedding(self, model: LanguageModel) -> None:
        """Add the change of the generator's token embedding to the model's."""
        current = self.generator.token_embedding.weight
        model.token_embedding.weight.add_(current - self.generator.before)
        self.generator.before.copy_(current)

    def validation_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the generator's loss, and loss, accuracy and precision of the detector."""
        detected, correct = metrics.pop("predicted_loss", 0.0), metrics.pop("predicted_accuracy", 0.0)
        return metrics | ({"detector_precision": correct / detected if detected else 0.0} if self.detects else {})

    def token_targets(self, batch: Tensors) -> tuple[Tensor, Tensor]:
        return batch["labels"].flatten(), batch["ids"].gather(1, batch["positions"]).flatten()

    def explain(self, batches: MaskedBatches, step: int) -> list[dict[str, str]]:
        """Show the input of the generator, `[dog → MASK]`; its samples change during training."""
        return explain_masked(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return none: the head is discarded after training, and the settings refuse prompts."""
        return []


def smaller(model: LanguageModel, size: float, layers: float) -> LanguageModel:
    """Return a model of the same family with these shares of width and layers, and the same token, position and segment embeddings.

    Raise SesameError if the embeddings can't have another width than the layers.
    """
    config = model.config
    if not isinstance(model.token_embedding, nn.Embedding):
        raise SesameError(f"objective electra shares the embeddings with its generator, and the embeddings of a {config.name} are hashes")
    # a decoder of masked tokens reads the layer below the last one
    changes = {"num_layers": max(2 if getattr(config, "mask_decoder", False) else 1, round(config.num_layers * layers))}
    if size < 1 and not hasattr(config, "embedding_size"):
        raise SesameError(
            f"objective.generator_size: {size:g}, but the embeddings of a {config.name} are as wide as its layers; set it to 1, "
            "and generator_layers below 1"
        )
    if size < 1 and config.positions == "sinusoidal":
        raise SesameError(
            "sinusoidal positions have the model's width, but a narrower generator shares its embeddings: set other positions"
        )
    if size < 1:
        heads = max(1, round(config.num_heads * size))
        width = max(2, round(config.hidden_size * size / heads / 2) * 2) * heads
        changes |= {"hidden_size": width, "num_heads": heads, "intermediate_size": max(2, round(config.intermediate_size * size))}
        changes |= {"embedding_size": config.embedding_size or config.hidden_size}
    elif changes["num_layers"] == config.num_layers:
        print("the generator is as large as the model: its replaced tokens are hard to detect", file=sys.stderr, flush=True)
    vocabulary = SimpleNamespace(vocab_size=model.token_embedding.num_embeddings)
    generator = type(model)(config.model_copy(update=changes), vocabulary)
    for name in ("token_embedding", "position_embedding", "segment_embedding", "embedding_norm"):
        if getattr(generator, name, None) is not None:
            setattr(generator, name, getattr(model, name))
    del generator.pooler, generator.next_sentence
    return generator


def sample_tokens(logits: Tensor, labels: Tensor, training: bool) -> Tensor:
    """logits (batch, targets, vocab_size), labels (batch, targets) -> a sampled token for each target.

    In validation the samples of a sequence are always the same, whatever other sequences are in the batch.
    """
    noise = torch.ones(logits.shape, dtype=torch.float32, device=logits.device)
    if training:
        noise.exponential_()
    else:  # a random generator per sequence, which waits for the device
        for of_sequence, targets in zip(noise, labels, strict=True):
            targets = targets[targets != IGNORED]
            generator = torch.Generator(of_sequence.device).manual_seed(int(targets.sum()))
            of_sequence[: len(targets)].exponential_(generator=generator)
    return (logits.float() - noise.log()).argmax(2)  # the Gumbel-max trick


Objective = ReplacedTokens
