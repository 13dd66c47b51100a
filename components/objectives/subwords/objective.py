"""Prediction of subwords by a model that reads characters (CANINE-S, Clark et al. 2022, section 3.3)."""

from torch import nn

from components.models.contract import LanguageModel, gather_positions
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Tensors
from components.objectives.scoring import score
from components.objectives.subwords import config
from components.objectives.subwords.batches import SubwordBatches
from components.objectives.subwords.vocabulary import DummySubwords, Subwords
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, SEP, Tokenizer


class SubwordLM(Contract):
    """Predicts masked subwords and, if set, whether segment B followed segment A. The head over subwords is discarded after training."""

    main = "subword"

    def __init__(self, config: config.SubwordLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.subwords = Subwords(config, tokens) if tokens.path else DummySubwords(config, tokens)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> SubwordBatches:
        return SubwordBatches(self.config, self.tokenizer, self.subwords, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        width = model.width
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, len(self.subwords)))
        nn.init.normal_(self.head[3].weight, std=0.02)
        return {"subwords": self.head}

    def untrained(self, model: LanguageModel) -> list[str]:
        """Return the head over characters, and without a question about pairs its head."""
        return ["head_transform", "head_bias", "output_embedding", *([] if self.config.question else ["next_sentence", "pooler"])]

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        hidden = model(batch["ids"], batch["lengths"], batch["segment_ids"])
        targets = gather_positions(hidden, batch["positions"]).flatten(0, 1)
        losses = {"subword": score(self.head(targets), batch["labels"].flatten(), model.training)}
        if self.config.question:
            logits = model.next_sentence(model.pool(hidden, batch["lengths"]))
            losses[self.config.question] = score(logits, batch["answers"], model.training)
        return losses, None

    def explain(self, batches: SubwordBatches, step: int) -> list[dict[str, str]]:
        """Show the input, `_` for a masked character, and the target subwords."""
        tensors, explained = batches[step].tensors, []
        first = batches.text.first_documents[batches.index]
        rows = zip(tensors["ids"], tensors["lengths"].tolist(), tensors["labels"], batches.selected(step), strict=True)
        for ids, length, labels, example in rows:
            start = int(batches.examples[example, 0])
            document = first + int((batches.shard.document_tokens <= start).sum()) - 1
            names = {CLS: "", SEP: " |", MASK: "_"}
            text = "".join(names.get(i, self.tokenizer.pieces[i].decode(errors="replace")) for i in ids[:length].tolist())
            targets = " ".join(repr(self.subwords.piece(i)) for i in labels.tolist() if i >= 0)
            explained.append({"documents": str(document), "asked": targets, "text": text.strip()})
        return explained

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return none: the head is discarded after training, and the settings refuse prompts."""
        return []


Objective = SubwordLM
