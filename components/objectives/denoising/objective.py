"""Denoising of running text (T5, Raffel et al. 2020; BART, Lewis et al. 2020)."""

from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.denoising import config
from components.objectives.denoising.batches import DenoisingBatches
from components.objectives.examples.batches import Tensors
from components.objectives.examples.source_target import generate_target, target_labels, to_text
from components.objectives.sampling import MAX_NEW_TOKENS
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, MASK, SEP, Tokenizer, sentinels


class Denoising(Contract):
    """Predicts each hidden token, or each token of the text, from the corrupted text and the tokens before."""

    main = "denoising"

    def __init__(self, config: config.Denoising, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> DenoisingBatches:
        return DenoisingBatches(self.config, self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        hidden = model(batch["ids"], batch["lengths"], batch["targets"])
        return {"denoising": score_tokens(model, hidden.flatten(0, 1), target_labels(batch["targets"]))}, None

    def explain(self, batches: DenoisingBatches, step: int) -> list[dict[str, str]]:
        """Show the source with `<0>` for the first hidden span and `|` for the end of a segment, and the target."""
        names = {int(sentinel): f"<{i}>" for i, sentinel in enumerate(batches.sentinels)} | {MASK: "[MASK]"}
        tensors = batches[step].tensors
        sequences = zip(batches.documents(step), tensors["ids"].tolist(), tensors["targets"].tolist(), strict=True)
        return [
            {"documents": documents, "text": to_text(source, names, self.tokenizer), "target": to_text(target, names, self.tokenizer)}
            for documents, source, target in sequences
        ]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the greedy output for each prompt, in which each `[MASK]` hides a span."""
        sentinel_ids = sentinels.ids(self.tokenizer.vocab_size, self.config.sentinels(model.max_length))
        names = {sentinel: f"<{i}>" for i, sentinel in enumerate(sentinel_ids)} | {MASK: "[MASK]", CLS: "", SEP: ""}
        marks = sentinel_ids or ([] if self.config.noise.kind == "dropped" else [MASK])
        samples = []
        for prompt in prompts:
            ids = [CLS, *sentinels.with_holes(self.tokenizer, prompt, marks)]
            output = generate_target(model, [*ids[: model.max_length - 1], SEP], MAX_NEW_TOKENS)
            samples.append({"prompt": prompt, "output": to_text(output, names, self.tokenizer)})
        return samples


Objective = Denoising
