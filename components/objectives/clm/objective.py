"""Causal language modelling over packed documents (Radford et al. 2018, 2019)."""

import numpy as np
import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.clm import config
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Chunk, Tensors
from components.objectives.examples.rows import RowBatches
from components.objectives.examples.shuffled_text import explain_sequences, next_token_chunk, next_token_labels
from components.objectives.sampling import MAX_NEW_TOKENS, generate
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class CausalLM(Contract):
    """Predicts each token from those before it."""

    main = "clm"
    chain_rule = True

    def __init__(self, config: config.CausalLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "PackedBatches":
        return PackedBatches(self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        ids = batch["ids"][:, :-1]
        hidden = model(ids, *isolate(ids)) if self.config.isolate_documents else model(ids)
        return {"clm": score_tokens(model, hidden.flatten(0, 1), next_token_labels(batch["ids"]))}, None

    def token_targets(self, batch: Tensors) -> tuple[Tensor, None]:
        return next_token_labels(batch["ids"]), None

    def explain(self, batches: "PackedBatches", step: int) -> list[dict[str, str]]:
        return explain_sequences(batches[step].tensors["ids"], batches.documents(step), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Sample a continuation of each prompt."""
        generator, samples = torch.Generator().manual_seed(0), []
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            context = [CLS, *ids][: model.max_length]
            output = generate(
                lambda text, context=context: model.logits(model(torch.tensor([context + text]))[0, -1]),
                [SEP], min(MAX_NEW_TOKENS, model.max_length - len(context)), generator,
            )  # fmt: skip
            samples.append({"prompt": prompt, "output": self.tokenizer.decode(output)})
        return samples


class PackedBatches(RowBatches):
    """Rows of max_length + 1 tokens; the last token of one is the first of the next one in the text.

    The last row of the text is padded.
    """

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        rows = -(-(text.num_tokens - 1) // max_length)
        super().__init__(text, batch_size, max_length, max_length + 1, rows, seed)
        self.byte_lengths = np.asarray(tokens.byte_lengths)

    def tokens(self, step: int) -> int:
        _, starts = self.starts(step, step + 1)
        return int(np.minimum(self.stride, self.text.size - 1 - starts).sum())

    def draw(self, first: int, last: int) -> Chunk:
        return next_token_chunk(first, self.batch_size, "clm", {"ids": self.read(first, last)}, self.byte_lengths)


def isolate(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids (batch, length) -> positions (batch, length) from each document's `[CLS]`, and an attention mask (batch, 1, length, length).

    The mask is True for earlier tokens of the same document. Positions alone would not isolate documents.
    """
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    starts = torch.where(ids == CLS, positions, 0).cummax(1).values
    same = starts[:, :, None] == starts[:, None, :]
    causal = positions[:1, :, None] >= positions[:1, None, :]
    return positions - starts, (same & causal)[:, None]


Objective = CausalLM
