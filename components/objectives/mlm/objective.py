"""Masked language modelling with next-sentence prediction (Devlin et al. 2019, section 3.1 and appendix A)."""

import numpy as np
import torch

from components.encode import Split
from components.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.contract import Batches, Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.windows import Rows
from components.objectives.mlm import block
from components.objectives.mlm.batches import MaskedBatches
from components.objectives.mlm.control import from_b_alone
from components.objectives.scoring import IGNORED, score, score_tokens
from components.tokenizer import CLS, MASK, SEP, SPECIALS, Tokenizer


class MaskedLM(Contract):
    """Predicts `mlm_probability` of the tokens and, if asked for, whether segment B followed segment A."""

    main = "mlm"

    def __init__(self, config: block.MaskedLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> MaskedBatches:
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed)

    def untrained(self, model: LanguageModel) -> list[str]:
        return [] if self.config.next_sentence else ["next_sentence", "pooler"]

    def check(self, batches: Batches, steps: int | None) -> None:
        if self.config.static and steps and steps <= batches.epoch_steps():
            raise SesameError(
                f"objective.static makes no difference: the budget ends after {steps:,} "
                f"of the {batches.epoch_steps():,} steps of the first epoch; use less text or a larger budget"
            )

    def controls(self, train: MaskedBatches, valid: MaskedBatches) -> dict[str, float]:
        return {"nsp_from_b_alone": from_b_alone(train, valid)} if self.config.next_sentence else {}

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        hidden = model(rows["ids"], rows["lengths"], rows["segment_ids"])
        asked = hidden.gather(1, rows["places"][:, :, None].expand(-1, -1, hidden.shape[2])).flatten(0, 1)  # the head sees targets only
        parts = {"mlm": score_tokens(model, asked, rows["labels"].flatten())}
        if self.config.next_sentence:
            logits = model.next_sentence(model.pool(hidden, rows["lengths"]))
            parts["nsp"] = score(logits, rows["is_random"], model.training)
        return parts, None

    def explain(self, batches: MaskedBatches, step: int) -> list[dict[str, str]]:
        """`[dog → MASK]` is a target that the model doesn't see, `[dog → cat]` one replaced by another piece, `[dog → dog]` one left."""
        rows, chosen = batches[step].rows, batches.chosen(step)
        examples = batches.examples[chosen]
        # of every place what is asked there; what makes up the numbers of a row with fewer targets goes to a place behind the last
        width = rows["ids"].shape[1]
        asked = torch.full((len(examples), width + 1), IGNORED)
        asked.scatter_(1, torch.where(rows["labels"] == IGNORED, width, rows["places"]), rows["labels"])
        first = batches.text.first_documents[batches.index]
        shown = []
        for ids, labels, length, (a, _, b, b_end, answer) in zip(rows["ids"], asked, rows["lengths"].tolist(), examples, strict=True):
            text = "".join(self._piece(*pair) for pair in zip(ids[:length].tolist(), labels[:length].tolist(), strict=True))
            documents = first + np.searchsorted(batches.shard.document_tokens, [a, b] if b < b_end else [a], side="right") - 1
            question = {IGNORED: "no question", 0: "B follows A", 1: "B is random"}[answer] if self.config.paired else "no pairs"
            shown.append({"documents": " ".join(map(str, dict.fromkeys(documents.tolist()))), "asked": question, "text": text.strip()})
        return shown

    def _piece(self, seen: int, target: int) -> str:
        """A piece as the text shows it, with what became of it where it is a target."""

        def name(i: int) -> str:
            return SPECIALS[i].strip("[]") if i < len(SPECIALS) else self.tokenizer.pieces[i].decode(errors="replace")

        if target == IGNORED:
            return {CLS: "", SEP: " |"}.get(seen, name(seen))
        space = " " if name(target).startswith(" ") else ""
        return f"{space}[{name(target).strip()} → {name(seen).strip()}]"

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


Objective = MaskedLM
