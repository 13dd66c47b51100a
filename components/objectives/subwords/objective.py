"""Subwords named from the characters that a model has read (CANINE-S, Clark et al. 2022, section 3.3)."""

from torch import nn

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.masked import at
from components.objectives.examples.windows import Rows
from components.objectives.scoring import score
from components.objectives.subwords import config
from components.objectives.subwords.batches import SubwordBatches
from components.objectives.subwords.vocabulary import Alike, Subwords
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, SEP, Tokenizer

HOLE = 4
"""Characters that a `[MASK]` of a prompt hides."""


class SubwordLM(Contract):
    """Predicts hidden subwords and, if asked for, whether segment B followed segment A. The subwords' matrix is thrown away."""

    main = "subword"

    def __init__(self, config: config.SubwordLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.subwords = Subwords(config, tokens) if tokens.path else Alike(config, tokens)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> SubwordBatches:
        return SubwordBatches(self.config, self.tokenizer, self.subwords, text, batch_size, max_length, seed)

    def networks(self, model: LanguageModel) -> dict[str, nn.Module]:
        width = model.width
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, len(self.subwords)))
        nn.init.normal_(self.head[3].weight, std=0.02)
        return {"subwords": self.head}

    def untrained(self, model: LanguageModel) -> list[str]:
        """The characters' own head, and that of a question that is not asked."""
        return ["head_transform", "head_bias", "output_embedding", *([] if self.config.question else ["next_sentence", "pooler"])]

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        hidden = model(rows["ids"], rows["lengths"], rows["segment_ids"])
        asked = at(hidden, rows["places"]).flatten(0, 1)  # the head sees targets only
        parts = {"subword": score(self.head(asked), rows["labels"].flatten(), model.training)}
        if self.config.question:
            logits = model.next_sentence(model.pool(hidden, rows["lengths"]))
            parts[self.config.question] = score(logits, rows["answers"], model.training)
        return parts, None

    def explain(self, batches: SubwordBatches, step: int) -> list[dict[str, str]]:
        """What the model sees, `_` for a hidden character, and the subwords that it is asked for."""
        rows, shown = batches[step].rows, []
        first = batches.text.first_documents[batches.index]
        for ids, length, labels, example in zip(rows["ids"], rows["lengths"].tolist(), rows["labels"], batches.chosen(step), strict=True):
            a, end, *_ = batches.examples[example].tolist()
            document = first + int((batches.shard.document_tokens <= a).sum()) - 1
            names = {CLS: "", SEP: " |", MASK: "_"}
            text = "".join(names.get(i, self.tokenizer.pieces[i].decode(errors="replace")) for i in ids[:length].tolist())
            asked = " ".join(repr(self.subwords.piece(i)) for i in labels.tolist() if i >= 0)
            shown.append({"documents": str(document), "asked": asked, "text": text.strip()})
        return shown

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """None: the head that would answer is not kept after training, and the settings refuse prompts."""
        return []


Objective = SubwordLM
