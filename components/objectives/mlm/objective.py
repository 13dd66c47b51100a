"""Masked language modelling with next-sentence prediction (Devlin et al. 2019, section 3.1 and appendix A), sentence-order prediction
(Lan et al. 2020) or the span-boundary objective (Joshi et al. 2020)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from components.core.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Batches, Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.masked import MaskedBatches, at, explained
from components.objectives.examples.windows import Grouped, Rows
from components.objectives.mlm import config
from components.objectives.mlm.control import from_b_alone
from components.objectives.scoring import score, score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, SEP, SPECIALS, Tokenizer


class MaskedLM(Contract):
    """Predicts `mlm_probability` of the tokens and, if asked for, whether segment B followed segment A, or how the two stand."""

    main = "mlm"

    def __init__(self, config: config.MaskedLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> MaskedBatches:
        parts = {"mlm": "targets"} | ({"boundary": "targets"} if self.config.span_boundary else {})
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed, parts)

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

    def controls(self, train: MaskedBatches, valid: Grouped) -> dict[str, float]:
        return {f"{self.config.question}_from_b_alone": from_b_alone(train, valid.single)} if self.config.question else {}

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        hidden = model(rows["ids"], rows["lengths"], rows["segment_ids"])
        asked = at(hidden, rows["places"]).flatten(0, 1)  # the head sees targets only
        parts = {"mlm": score_tokens(model, asked, rows["labels"].flatten())}
        if self.config.span_boundary:
            outside = at(hidden, rows["left"]), at(hidden, rows["right"])
            logits = self.boundary(model, *outside, rows["places"] - rows["left"]).flatten(0, 1)
            parts["boundary"] = score(logits, rows["labels"].flatten(), model.training)
        if self.config.question:
            logits = model.next_sentence(model.pool(hidden, rows["lengths"]))
            parts[self.config.question] = score(logits, rows["answers"], model.training)
        return parts, None

    def asked(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return rows["labels"].flatten(), rows["ids"].gather(1, rows["places"]).flatten()

    def explain(self, batches: MaskedBatches, step: int) -> list[dict[str, str]]:
        return explained(batches, step, self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """The five likeliest pieces for each `[MASK]` of a prompt."""
        shown = []
        for prompt in prompts:
            spans = self.tokenizer.encode(prompt.split("[MASK]"))
            ids = [CLS, *spans[0]]
            for span in spans[1:]:
                ids += [MASK, *span]
            ids = torch.tensor([[*ids[: model.max_length - 1], SEP]])
            logits = model.logits(model(ids, torch.tensor([ids.shape[1]]))[ids == MASK])
            logits[:, : len(SPECIALS)] = -torch.inf
            best = [", ".join(self.tokenizer.pieces[i].decode(errors="replace").strip() for i in row) for row in logits.topk(5).indices]
            shown.append({"prompt": prompt, "output": " | ".join(best)})
        return shown


class SpanBoundary(nn.Module):
    """Predicts the tokens of a span from the two outside it and their place in it (Joshi et al. 2020, section 3.2)."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        width, below = model.width, model.token_embedding.embedding_dim
        self.places = nn.Embedding(LONGEST_SPAN, PLACE_SIZE)
        layers = [(2 * width + PLACE_SIZE, width), (width, below)]
        self.layers = nn.Sequential(*(part for a, b in layers for part in (nn.Linear(a, b), nn.GELU(), nn.LayerNorm(b))))
        self.bias = nn.Parameter(torch.zeros(model.token_embedding.num_embeddings))
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, model: LanguageModel, left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
        """left, right (batch, targets, width), the states outside the spans; offsets (batch, targets), 1 for a span's first token
        -> logits (batch, targets, vocab_size), by the model's own token vectors."""
        places = self.places((offsets - 1).clamp(0, LONGEST_SPAN - 1))
        return linear(self.layers(torch.cat([left, right, places], 2)), model.token_embedding.weight, self.bias)


LONGEST_SPAN, PLACE_SIZE = 64, 200
"""Tokens, and the width of a place in a span."""

Objective = MaskedLM
