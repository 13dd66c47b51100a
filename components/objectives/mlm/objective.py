"""Masked language modelling with next-sentence prediction (Devlin et al. 2019, section 3.1 and appendix A), sentence-order prediction
(Lan et al. 2020) or the span-boundary objective (Joshi et al. 2020)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Batches, Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import GroupedBatches, Tensors
from components.objectives.examples.masked import MaskedBatches, explain_masked
from components.objectives.fillings import likeliest_fillings, mask_prompt
from components.objectives.mlm import config
from components.objectives.mlm.control import accuracy_from_b_alone
from components.objectives.scoring import score, score_tokens
from components.text.encode import Split
from components.text.tokenizer import MASK, Tokenizer


class MaskedLM(Contract):
    """Predicts `mlm_probability` of the tokens and, if set, whether segment B followed segment A, or their order."""

    main = "mlm"

    def __init__(self, config: config.MaskedLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> MaskedBatches:
        terms = {"mlm": "targets"} | ({"boundary": "targets"} if self.config.span_boundary else {})
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed, terms)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        self.boundary = SpanBoundary(model) if self.config.span_boundary else None
        return {"boundary": self.boundary} if self.boundary else {}

    def untrained(self, model: LanguageModel) -> list[str]:
        return [] if self.config.question else ["next_sentence", "pooler"]

    def check(self, batches: Batches, steps: int | None) -> None:
        if self.config.static and steps and steps <= batches.epoch_steps():
            raise SesameError(
                f"objective.static makes no difference: the budget ends after {steps:,} "
                f"of the {batches.epoch_steps():,} steps of the first epoch; use less text or a larger budget"
            )

    def control_metrics(self, train: MaskedBatches, valid: GroupedBatches) -> dict[str, float]:
        return {f"{self.config.question}_from_b_alone": accuracy_from_b_alone(train, valid.single)} if self.config.question else {}

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        positions = {"targets": batch["positions"]}
        if self.config.span_boundary:
            positions |= {"left": batch["left"], "right": batch["right"]}
        if self.config.question:  # answered from [CLS]
            positions["first"] = torch.zeros_like(batch["ids"][:, :1])
        hidden = model.at(batch["ids"], batch["lengths"], batch["segment_ids"], torch.cat([*positions.values()], 1))
        states = dict(zip(positions, hidden.split([places.shape[1] for places in positions.values()], 1), strict=True))
        labels = batch["labels"].flatten()
        losses = {"mlm": score_tokens(model, states["targets"].flatten(0, 1), labels)}
        if self.config.span_boundary:
            logits = self.boundary(model, states["left"], states["right"], batch["positions"] - batch["left"]).flatten(0, 1)
            losses["boundary"] = score(logits, labels, model.training)
        if self.config.question:
            logits = model.next_sentence(model.pool(states["first"], torch.ones_like(batch["lengths"])))
            losses[self.config.question] = score(logits, batch["answers"], model.training)
        return losses, None

    def token_targets(self, batch: Tensors) -> tuple[Tensor, Tensor]:
        return batch["labels"].flatten(), batch["ids"].gather(1, batch["positions"]).flatten()

    def explain(self, batches: MaskedBatches, step: int) -> list[dict[str, str]]:
        return explain_masked(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the five likeliest tokens for each `[MASK]` of a prompt."""
        samples = []
        for prompt in prompts:
            ids = mask_prompt(self.tokenizer, prompt, model.max_length)
            logits = model.logits(model(ids, torch.tensor([ids.shape[1]]))[ids == MASK])
            samples.append({"prompt": prompt, "output": likeliest_fillings(self.tokenizer, logits)})
        return samples


class SpanBoundary(nn.Module):
    """Predicts the tokens of a span from the two tokens around it and their position in it (Joshi et al. 2020, section 3.2)."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        width, below = model.width, model.token_embedding.embedding_dim
        self.places = nn.Embedding(LONGEST_SPAN, POSITION_SIZE)
        sizes = [(2 * width + POSITION_SIZE, width), (width, below)]
        self.layers = nn.Sequential(*(layer for a, b in sizes for layer in (nn.Linear(a, b), nn.GELU(), nn.LayerNorm(b))))
        self.bias = nn.Parameter(torch.zeros(model.token_embedding.num_embeddings))
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, model: LanguageModel, left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
        """left, right (batch, targets, width), the states around the spans; offsets (batch, targets), 1 for a span's first token
        -> logits (batch, targets, vocab_size), by the model's token embeddings."""
        positions = self.places((offsets - 1).clamp(0, LONGEST_SPAN - 1))
        return linear(self.layers(torch.cat([left, right, positions], 2)), model.token_embedding.weight, self.bias)


LONGEST_SPAN, POSITION_SIZE = 64, 200
"""Tokens, and the width of the position embedding."""

Objective = MaskedLM
