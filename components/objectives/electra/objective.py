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
from components.objectives.examples.masked import MaskedBatches, at, explained, put
from components.objectives.examples.windows import Rows
from components.objectives.scoring import IGNORED, score_tokens
from components.text.encode import Split
from components.text.tokenizer import Tokenizer


class ReplacedTokens(Contract):
    """The generator learns by masked language modelling, the model by what it makes of the generator's fillings; nothing flows back from
    the one to the other but through the embeddings, which they share."""

    main = "mlm"

    def __init__(self, config: config.ReplacedTokens, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.detects = config.learns.startswith("replaced")
        self.weights = {"detector": config.detector_weight, "predicted": 0.0} if self.detects else {}

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> MaskedBatches:
        of = "tokens" if self.config.learns in ("replaced", "tokens") else "targets"
        own = {"detector": of, "predicted": of} if self.detects else {"filled": of}
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed, {"mlm": "targets"} | own)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        self.generator = smaller(model, self.config.generator_size, self.config.generator_layers)
        if self.config.embeddings != "shared":
            self.generator.token_embedding = deepcopy(model.token_embedding)
        if self.config.embeddings == "disentangled":  # as of the last step: what the generator has learned since, the model takes over
            self.generator.register_buffer("before", self.generator.token_embedding.weight.detach().clone())
        self.detector = nn.Sequential(nn.Linear(model.width, model.width), nn.GELU(), nn.Linear(model.width, 1))
        return {"generator": self.generator} | ({"detector": self.detector} if self.detects else {})

    def untrained(self, model: LanguageModel) -> list[str]:
        heads = ["head_transform", "head_bias", "output_embedding"] if self.detects else []
        return [part for part in ("next_sentence", "pooler", *heads) if getattr(model, part) is not None]

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        if self.config.embeddings == "disentangled":
            self._take_over(model)
        ids, lengths, segment_ids, places, labels = (rows[name] for name in ("ids", "lengths", "segment_ids", "places", "labels"))
        made = at(self.generator(ids, lengths, segment_ids), places)
        parts = {"mlm": score_tokens(self.generator, made.flatten(0, 1), labels.flatten())}
        original = put(ids, places, labels, labels)
        with torch.no_grad():
            filled = put(ids, places, sampled(self.generator.logits(made), labels, model.training), labels)
        asked = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        if self.config.learns in ("replaced_of_targets", "targets"):
            asked = put(torch.zeros_like(ids), places, torch.ones_like(places), labels).bool()
        if not self.detects:
            hidden = model(filled, lengths, segment_ids)
            parts["filled"] = score_tokens(model, hidden.flatten(0, 1), torch.where(asked, original, IGNORED).flatten())
            return parts, None
        replaced = (filled != original).float()  # a filling that is the text's own token is not one
        # the last layer, which tuning reads, and not what a family's decoder of masked tokens makes of it
        logits = self.detector(model.top(filled, lengths, segment_ids))[:, :, 0].float()
        loss = (binary_cross_entropy_with_logits(logits, replaced, reduction="none") * asked).sum()
        said = (logits > 0) & asked
        parts["detector"] = loss, ((said == replaced.bool()) & asked).sum()
        parts["predicted"] = said.sum().float(), (said & replaced.bool()).sum()  # its weight is 0: for the precision
        return parts, None

    @torch.no_grad()
    def _take_over(self, model: LanguageModel) -> None:
        """Add to the model's token embedding what the generator's has changed by."""
        now = self.generator.token_embedding.weight
        model.token_embedding.weight.add_(now - self.generator.before)
        self.generator.before.copy_(now)

    def figures(self, figures: dict[str, float]) -> dict[str, float]:
        """The loss is the generator's; of the detector accuracy and precision (of the tokens it takes for replaced, those that are)."""
        said, right = figures.pop("predicted_loss", 0.0), figures.pop("predicted_accuracy", 0.0)
        return figures | ({"detector_precision": right / said if said else 0.0} if self.detects else {})

    def asked(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return rows["labels"].flatten(), rows["ids"].gather(1, rows["places"]).flatten()

    def explain(self, batches: MaskedBatches, step: int) -> list[dict[str, str]]:
        """What the generator reads: `[dog → MASK]`; what it fills in changes as it learns."""
        return explained(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """None: the head that would answer is not kept after training, and the settings refuse prompts."""
        return []


def smaller(model: LanguageModel, size: float, layers: float) -> LanguageModel:
    """A model of the same family, narrower and less deep by these shares, with the same embeddings: token, position and segment.

    Raises SesameError where the embeddings can't be of another width than the layers.
    """
    config = model.config
    if not isinstance(model.token_embedding, nn.Embedding):
        raise SesameError(f"objective electra shares the embeddings with its generator, and the embeddings of a {config.name} are hashes")
    # its decoder of masked tokens asks the layer below the last one
    changes = {"num_layers": max(2 if getattr(config, "mask_decoder", False) else 1, round(config.num_layers * layers))}
    if size < 1 and not hasattr(config, "embedding_size"):
        raise SesameError(f"objective.generator_size: {size:g}, and the embeddings of a {config.name} are as wide as its layers; 1 it is, "
                          "with generator_layers below 1")  # fmt: skip
    if size < 1 and config.positions == "sinusoidal":
        raise SesameError("sinusoidal positions are of the model's width, and a narrower generator shares its embeddings: take others")
    if size < 1:
        heads = max(1, round(config.num_heads * size))
        width = max(2, round(config.hidden_size * size / heads / 2) * 2) * heads
        changes |= {"hidden_size": width, "num_heads": heads, "intermediate_size": max(2, round(config.intermediate_size * size))}
        changes |= {"embedding_size": config.embedding_size or config.hidden_size}
    elif changes["num_layers"] == config.num_layers:
        print("the generator is as large as the model: it leaves little to detect", file=sys.stderr, flush=True)
    vocabulary = SimpleNamespace(vocab_size=model.token_embedding.num_embeddings)
    generator = type(model)(config.model_copy(update=changes), vocabulary)
    for name in ("token_embedding", "position_embedding", "segment_embedding", "embedding_norm"):
        if getattr(generator, name, None) is not None:
            setattr(generator, name, getattr(model, name))
    del generator.pooler, generator.next_sentence
    return generator


def sampled(logits: Tensor, labels: Tensor, training: bool) -> Tensor:
    """logits (batch, targets, vocab_size), labels (batch, targets) -> a token of each target, drawn; where nothing is
    trained the same ones every time for the same row, whatever rows are beside it."""
    noise = torch.ones(logits.shape, dtype=torch.float32, device=logits.device)
    if training:
        noise.exponential_()
    else:  # a generator for each row, which waits for the device
        for row, wanted in zip(noise, labels, strict=True):
            wanted = wanted[wanted != IGNORED]
            row[: len(wanted)].exponential_(generator=torch.Generator(row.device).manual_seed(int(wanted.sum())))
    return (logits.float() - noise.log()).argmax(2)  # Gumbel's way


Objective = ReplacedTokens
