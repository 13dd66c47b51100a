"""Permutation language modelling over a memory of the text before (XLNet, Yang et al. 2019)."""

import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Tensors
from components.objectives.examples.streams import validation_streams
from components.objectives.fillings import likeliest_fillings, mask_prompt
from components.objectives.permutation import config
from components.objectives.permutation.batches import PermutedBatches
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, PAD, SEP, Tokenizer


class PermutationLM(Contract):
    """Predicts the last tokens of a random order.

    The documents of a sequence are the model's segments; the memory counts as part of the first one, as in the authors' code.
    """

    main = "permutation"

    def __init__(self, config: config.PermutationLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> PermutedBatches:
        return PermutedBatches(self.config.predicted_share, self.tokenizer, text, batch_size, max_length, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> PermutedBatches:
        return self.batches(text, validation_streams(text), max_length, seed=0)

    def untrained(self, model: LanguageModel) -> list[str]:
        return ["pooler"]

    def losses(self, model: LanguageModel, batch: Tensors, carry: Tensor | None) -> tuple[Losses, Tensor]:
        ids = batch["ids"]
        memory = ids.shape[1] // 2 if self.config.memory is None else self.config.memory
        if carry is None:  # the first memory is zeros, as in the authors' code
            carry = torch.zeros(len(ids), model.num_layers, memory, model.width, device=ids.device)
        documents = (ids == CLS).cumsum(1)
        hidden, carry = model(ids, batch["order"], batch["positions"], documents, carry)
        return {"permutation": score_tokens(model, hidden.flatten(0, 1), batch["labels"].flatten())}, carry

    def token_targets(self, batch: Tensors) -> tuple[Tensor, None]:
        return batch["labels"].flatten(), None

    def explain(self, batches: PermutedBatches, step: int) -> list[dict[str, str]]:
        """Show the third predicted token as `[dog 3]`, predicted from all but the later ones; `¶` marks the start of a document."""
        tensors = batches[step].tensors
        explained = []
        for ids, order, documents in zip(tensors["ids"].tolist(), tensors["order"].tolist(), batches.documents(step), strict=True):
            text = "".join(self._shown(token, rank) for token, rank in zip(ids, order, strict=True) if token != PAD)
            explained.append({"documents": documents, "text": text.strip()})
        return explained

    def _shown(self, token: int, rank: int) -> str:
        if rank:
            return f" [{self.tokenizer.stream([token])} {rank}]"
        return {CLS: " ¶", SEP: ""}.get(token, self.tokenizer.pieces[token].decode(errors="replace"))

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the five likeliest tokens for each `[MASK]` of a prompt, independently of the others."""
        samples = []
        for prompt in prompts:
            ids = mask_prompt(self.tokenizer, prompt, model.max_length)
            masks = ids == MASK
            memory = torch.zeros(1, model.num_layers, 0, model.width)
            hidden, _ = model(ids, masks.long(), masks.nonzero()[None, :, 1], torch.zeros_like(ids), memory)  # masks of rank 1 see no other
            samples.append({"prompt": prompt, "output": likeliest_fillings(self.tokenizer, model.logits(hidden[0]))})
        return samples


Objective = PermutationLM
