"""Language modelling by truncated back-propagation through time (Merity et al. 2018; steps 1 and 2 of Howard and Ruder 2018)."""

import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.bptt import config
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Chunk, Tensors
from components.objectives.examples.shuffled_text import explain_sequences, next_token_chunk, next_token_labels
from components.objectives.examples.streams import StreamBatches, validation_streams
from components.objectives.sampling import MAX_NEW_TOKENS, generate
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class RecurrentLM(Contract):
    """Predicts each token from the state after those before it."""

    main = "bptt"
    chain_rule = True

    def __init__(self, config: config.RecurrentLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "DirectedBatches":
        return DirectedBatches(self.config, self.tokenizer, text, batch_size, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> "DirectedBatches":
        return self.batches(text, validation_streams(text), max_length, seed=0)

    def losses(self, model: LanguageModel, batch: Tensors, carry: Tensor | None) -> tuple[Losses, Tensor]:
        hidden, states = model(batch["ids"][:, :-1], unpack(carry, model) if carry is not None else None)
        loss = score_tokens(model, hidden.flatten(0, 1), next_token_labels(batch["ids"], self.config.backward))
        return {"bptt": loss}, torch.cat([state.detach() for layer in states for state in layer], 1)

    def token_targets(self, batch: Tensors) -> tuple[Tensor, None]:
        return next_token_labels(batch["ids"], self.config.backward), None

    def explain(self, batches: "DirectedBatches", step: int) -> list[dict[str, str]]:
        """Show the text from left to right, also where the model reads it backwards."""
        ids, backward = batches[step].tensors["ids"], self.config.backward
        return explain_sequences(ids.flip(1) if backward else ids, batches.documents(step, backward), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Sample a continuation of each prompt, or the text before it."""
        generator, samples = torch.Generator().manual_seed(0), []
        # backwards, a text begins with its last [SEP]; before a sentence is the end of another one, or the document's [CLS]
        opening, ends, direction = (SEP, [SEP, CLS], -1) if self.config.backward else (CLS, [SEP], 1)
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            context = [opening, *ids[::direction]]
            output = generate(
                lambda text, context=context: model.logits(model(torch.tensor([context + text]))[0][0, -1]), ends, MAX_NEW_TOKENS, generator
            )
            samples.append({"prompt": prompt, "output": self.tokenizer.decode(output[::direction])})
        return samples


class DirectedBatches(StreamBatches):
    """Sequence i of every step continues sequence i of the step before."""

    def __init__(self, config: config.RecurrentLM, tokens: Tokenizer, text: Split, batch_size: int, seed: int):
        super().__init__(tokens, text, batch_size, config.window, seed)
        self.backward = config.backward

    def draw(self, first: int, last: int) -> Chunk:
        ids = self.backward_windows(first, last) if self.backward else self.forward_windows(first, last)
        return next_token_chunk(first, self.batch_size, "bptt", {"ids": ids}, self.byte_lengths, backward=["ids"] if self.backward else ())


def unpack(carry: Tensor, model: LanguageModel) -> list[tuple[Tensor, ...]]:
    """Split a tensor (batch, sum of all widths) into the states of the layers."""
    per_layer = 2 if model.config.cell == "lstm" else 1
    states = carry.split([cell.hidden_size for cell in model.cells for _ in range(per_layer)], 1)
    return [tuple(states[i : i + per_layer]) for i in range(0, len(states), per_layer)]


Objective = RecurrentLM
