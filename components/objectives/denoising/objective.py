"""Denoising of running text (T5, Raffel et al. 2020; BART, Lewis et al. 2020)."""

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.denoising import config
from components.objectives.denoising.batches import DenoisingBatches
from components.objectives.examples.source_target import answered, labels, shown
from components.objectives.examples.windows import Rows
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, SEP, Tokenizer, sentinels

NEW_TOKENS = 24  # of a sample


class Denoising(Contract):
    """Predicts each token of what is hidden, or of the whole text, from the spoilt one and the tokens before."""

    main = "denoising"

    def __init__(self, config: config.Denoising, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> DenoisingBatches:
        return DenoisingBatches(self.config, self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        hidden = model(rows["ids"], rows["lengths"], rows["targets"])
        return {"denoising": score_tokens(model, hidden.flatten(0, 1), labels(rows["targets"]))}, None

    def explain(self, batches: DenoisingBatches, step: int) -> list[dict[str, str]]:
        """`<0>` is the first hidden span, `|` the end of a segment."""
        names = {int(sentinel): f"<{i}>" for i, sentinel in enumerate(batches.sentinels)} | {MASK: "[MASK]"}
        rows = batches[step].rows
        sides = zip(batches.documents(step), rows["ids"].tolist(), rows["targets"].tolist(), strict=True)
        return [
            {"documents": documents, "text": shown(source, names, self.tokenizer), "target": shown(target, names, self.tokenizer)}
            for documents, source, target in sides
        ]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """What the model writes, the likeliest piece each time: each `[MASK]` of a prompt hides a span."""
        own = sentinels.ids(self.tokenizer.vocab_size, self.config.sentinels(model.max_length))
        names = {sentinel: f"<{i}>" for i, sentinel in enumerate(own)} | {MASK: "[MASK]", CLS: "", SEP: ""}
        marks = own or ([] if self.config.noise.kind == "dropped" else [MASK])
        made = []
        for prompt in prompts:
            ids = [CLS, *sentinels.with_holes(self.tokenizer, prompt, marks)]
            output = answered(model, [*ids[: model.max_length - 1], SEP], NEW_TOKENS)
            made.append({"prompt": prompt, "output": shown(output, names, self.tokenizer)})
        return made


Objective = Denoising
