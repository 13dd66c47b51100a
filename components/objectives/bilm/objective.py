"""Bidirectional language modelling with two separate LMs (Peters et al. 2018, section 3.1)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from components.models.contract import LanguageModel
from components.objectives.bilm import config
from components.objectives.bilm.batches import BidirectionalBatches
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Tensors
from components.objectives.examples.shuffled_text import explain_sequences, next_token_labels
from components.objectives.examples.streams import validation_streams
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer

CANDIDATE_SEGMENTS = 1000  # in which the neighbours of a word are searched
NEIGHBOURS = 5


class BidirectionalLM(Contract):
    """The forward LM predicts token t + 1, the backward LM token t - 1; perplexity is the full-softmax average of both."""

    main = "bilm"
    chain_rule = True

    def __init__(self, config: config.BidirectionalLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> BidirectionalBatches:
        return BidirectionalBatches(self.tokenizer, text, batch_size, self.config.window, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> BidirectionalBatches:
        return self.batches(text, validation_streams(text), max_length, seed=0)

    def losses(self, model: LanguageModel, batch: Tensors, carry: Tensor | None) -> tuple[Losses, Tensor]:
        states = unpack(carry, model) if carry is not None else None
        forward, backward, states = model(batch["forward"][:, :-1], batch["backward"][:, :-1], states)
        labels, _ = self.token_targets(batch)
        return {"bilm": score_tokens(model, torch.cat([forward, backward]).flatten(0, 1), labels)}, pack(states)

    def token_targets(self, batch: Tensors) -> tuple[Tensor, None]:
        return torch.cat([next_token_labels(batch["forward"]), next_token_labels(batch["backward"], backward=True)]), None

    def explain(self, batches: BidirectionalBatches, step: int) -> list[dict[str, str]]:
        """Show the windows of the forward model."""
        return explain_sequences(batches[step].tensors["forward"], batches.documents(step), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the nearest neighbours of the `*word*` of each prompt, by the top layer, among words in context of the text."""
        shard = text.shards[0]
        segments = [shard.tokens[a:b].tolist() for a, b in shard.segments[:CANDIDATE_SEGMENTS] if b > a]
        candidates, words = [], []
        for i in range(0, len(segments), 100):
            vectors, contexts = self._words(model, segments[i : i + 100])
            candidates.append(vectors)
            words += contexts
        candidates = torch.cat(candidates)
        samples = []
        for prompt in prompts:
            spans = self.tokenizer.encode(prompt.split("*"))
            vectors, _ = self._words(model, [[token for span in spans for token in span]])
            index_of_word = sum(bool(self.tokenizer.starts_word[token]) for token in spans[0])
            nearest: list[str] = []
            for index in (candidates @ vectors[index_of_word]).argsort(descending=True).tolist():
                if words[index] not in nearest:
                    nearest.append(words[index])
                if len(nearest) == NEIGHBOURS:
                    break
            samples.append({"prompt": prompt, "output": " | ".join(nearest)})
        return samples

    def _words(self, model: LanguageModel, segments: list[list[int]]) -> tuple[Tensor, list[str]]:
        """Return unit vectors of the top layer at the first token of each word, (words, width), and the words marked in their context."""
        segments = [tokens[: model.max_length - 2] for tokens in segments]
        ids = pad_sequence([torch.tensor([CLS, *tokens, SEP]) for tokens in segments], batch_first=True)
        top = model.features(ids, torch.tensor([len(tokens) + 2 for tokens in segments]))[:, 1:, -1]
        vectors, contexts = [], []
        for states, tokens in zip(top, segments, strict=True):
            firsts = [i for i, token in enumerate(tokens) if self.tokenizer.starts_word[token] or i == 0]
            vectors.append(states[firsts])
            for start, end in zip(firsts, [*firsts[1:], len(tokens)], strict=True):
                spans = (tokens[max(0, start - 6) : start], tokens[start:end], tokens[end : end + 6])
                left, word, right = (self.tokenizer.decode(span) for span in spans)
                contexts.append(f"{left} *{word.strip()}* {right}".strip())
        return normalize(torch.cat(vectors).float(), dim=1), contexts


def pack(states: tuple[list, list]) -> Tensor:
    """Join the LSTM states of both directions into a tensor (batch, directions * layers * (projection + hidden)), detached."""
    flat = [state.detach().squeeze(0) for direction in states for layer in direction for state in layer]
    return torch.cat(flat, 1)


def unpack(carry: Tensor, model: LanguageModel) -> tuple[list, list]:
    """Invert `pack`."""
    lstms = [*model.forward_lm.lstms, *model.backward_lm.lstms]
    states = carry.split([size for lstm in lstms for size in (lstm.proj_size, lstm.hidden_size)], 1)
    layers = [(states[2 * i][None].contiguous(), states[2 * i + 1][None].contiguous()) for i in range(len(lstms))]
    return layers[: len(layers) // 2], layers[len(layers) // 2 :]


Objective = BidirectionalLM
