"""A causal and a masked language model in one decoder (GPT-BERT, Charpentier and Samuel 2024)."""

from torch import Tensor

from components.models.contract import LanguageModel, gather_positions
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import GroupedBatches, Tensors
from components.objectives.examples.rows import isolate
from components.objectives.gpt_bert import config
from components.objectives.gpt_bert.batches import GptBertBatches
from components.objectives.sampling import continuations
from components.objectives.scoring import IGNORED, score_tokens
from components.text.encode import Split
from components.text.tokenizer import Tokenizer


class GptBert(Contract):
    """Predicts in some steps each token from those before it, in the others hidden tokens from their document."""

    main = "next_token"
    chain_rule = True  # of the validation, which is causal

    def __init__(self, config: config.GptBert, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> GptBertBatches:
        return GptBertBatches(self.config, self.tokenizer, text, batch_size, max_length, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> GroupedBatches:
        causal = self.config.model_copy(update={"masked_steps": 0.0})
        return GroupedBatches(GptBertBatches(causal, self.tokenizer, text, 1, max_length, seed=0), batch_size)

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        hidden = model(batch["ids"], *isolate(batch["ids"], batch["two_sided"]))
        states = gather_positions(hidden, batch["positions"])
        return {"next_token": score_tokens(model, states.flatten(0, 1), batch["labels"].flatten())}, None

    def token_targets(self, batch: Tensors) -> tuple[Tensor, None]:
        return batch["labels"].flatten(), None

    def explain(self, batches: GptBertBatches, step: int) -> list[dict[str, str]]:
        """Show the text as the model reads it, with `[MASK]` in a masked step, and there the tokens to predict."""
        explained, tensors = [], batches[step].tensors
        columns = (tensors["ids"].tolist(), tensors["labels"].tolist(), tensors["two_sided"].tolist(), batches.documents(step))
        for ids, labels, two_sided, documents in zip(*columns, strict=True):
            hidden = " ".join(self.tokenizer.stream([label]) for label in labels if label != IGNORED) if two_sided else "each next token"
            text = self.tokenizer.stream(ids)
            explained.append({"documents": documents, "predicted": hidden, "text": text})
        return explained

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Sample a continuation of each prompt."""
        return continuations(model, self.tokenizer, prompts)


Objective = GptBert
