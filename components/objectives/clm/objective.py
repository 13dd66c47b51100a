"""Causal language modelling over packed documents (Radford et al. 2018, 2019)."""

from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.clm import config
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Chunk, Tensors
from components.objectives.examples.rows import PackedRows, isolate
from components.objectives.examples.shuffled_text import explain_sequences, next_token_chunk, next_token_labels
from components.objectives.sampling import continuations
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import Tokenizer


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
        return continuations(model, self.tokenizer, prompts)


class PackedBatches(PackedRows):
    """Rows of which each token but the first is predicted."""

    def draw(self, first: int, last: int) -> Chunk:
        return next_token_chunk(first, self.batch_size, "clm", {"ids": self.read(first, last)}, self.byte_lengths)


Objective = CausalLM
