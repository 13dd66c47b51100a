"""Permutation language modelling over a memory of the text before (XLNet, Yang et al. 2019)."""

import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.lanes import validation_lanes
from components.objectives.examples.windows import Rows
from components.objectives.permutation import config
from components.objectives.permutation.batches import PermutedBatches
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, Tokenizer


class PermutationLM(Contract):
    """Predicts the last tokens of a drawn order. Whether two tokens are of one document is told to the model as whether they are of one
    segment; all that is remembered counts as of the document that the row begins in, as in the authors' code."""

    main = "permutation"

    def __init__(self, config: config.PermutationLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> PermutedBatches:
        return PermutedBatches(self.config.predicted_share, self.tokenizer, text, batch_size, max_length, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> PermutedBatches:
        return self.batches(text, validation_lanes(text), max_length, seed=0)

    def untrained(self, model: LanguageModel) -> list[str]:
        return ["pooler"]

    def losses(self, model: LanguageModel, rows: Rows, carry: Tensor | None) -> tuple[Losses, Tensor]:
        ids = rows["ids"]
        remembered = ids.shape[1] // 2 if self.config.memory is None else self.config.memory
        if carry is None:  # nothing was before: as in the authors' code that is remembered as zeros
            carry = torch.zeros(len(ids), model.num_layers, remembered, model.width, device=ids.device)
        documents = (ids == CLS).cumsum(1)
        hidden, carry = model(ids, rows["order"], rows["places"], documents, carry)
        return {"permutation": score_tokens(model, hidden.flatten(0, 1), rows["labels"].flatten())}, carry

    def asked(self, rows: Rows) -> tuple[Tensor, None]:
        return rows["labels"].flatten(), None

    def explain(self, batches: PermutedBatches, step: int) -> list[dict[str, str]]:
        """`[dog 3]` is the third token that is predicted, from all but the later ones; `¶` is where a document opens."""
        rows, documents = batches[step].rows, batches.documents(step)
        shown = []
        for ids, order, own in zip(rows["ids"].tolist(), rows["order"].tolist(), documents, strict=True):
            pieces = [self.tokenizer.stream([token]) if rank else self._piece(token) for token, rank in zip(ids, order, strict=True)]
            there = [pair for token, *pair in zip(ids, pieces, order, strict=True) if token != PAD]
            text = "".join(f" [{piece} {rank}]" if rank else piece for piece, rank in there)
            shown.append({"documents": own, "text": text.strip()})
        return shown

    def _piece(self, token: int) -> str:
        return {CLS: " ¶", SEP: ""}.get(token, self.tokenizer.pieces[token].decode(errors="replace"))

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """The five likeliest pieces for each `[MASK]` of a prompt, whatever the others are."""
        shown = []
        for prompt in prompts:
            ids = [CLS]
            for i, part in enumerate(self.tokenizer.encode(prompt.split("[MASK]"))):
                ids += [*([MASK] if i else []), *part]
            ids = torch.tensor([[*ids[: model.max_length - 1], SEP]])
            masks = ids == MASK
            memory = torch.zeros(1, model.num_layers, 0, model.width)
            hidden, _ = model(ids, masks.long(), masks.nonzero()[None, :, 1], torch.zeros_like(ids), memory)  # none sees another
            logits = model.logits(hidden[0])
            logits[:, : len(SPECIALS)] = -torch.inf
            best = [", ".join(self.tokenizer.pieces[i].decode(errors="replace").strip() for i in row) for row in logits.topk(5).indices]
            shown.append({"prompt": prompt, "output": " | ".join(best)})
        return shown


Objective = PermutationLM
