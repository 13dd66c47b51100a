"""Bidirectional language modelling with two separate LMs (Peters et al. 2018, section 3.1)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from components.models.contract import LanguageModel
from components.objectives.bilm import config
from components.objectives.bilm.batches import BothEnds
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.lanes import validation_lanes
from components.objectives.examples.stream import explained, labels
from components.objectives.examples.windows import Rows
from components.objectives.scoring import score_tokens
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer

BANK = 1000  # segments that a word's neighbours are sought in


class BidirectionalLM(Contract):
    """The forward LM predicts token t + 1, the backward one t - 1; perplexity is the full-softmax average of both."""

    main = "bilm"
    chain_rule = True

    def __init__(self, config: config.BidirectionalLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> BothEnds:
        return BothEnds(self.tokenizer, text, batch_size, self.config.window, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> BothEnds:
        return self.batches(text, validation_lanes(text), max_length, seed=0)

    def losses(self, model: LanguageModel, rows: Rows, carry: Tensor | None) -> tuple[Losses, Tensor]:
        ahead, back, states = model(rows["forward"][:, :-1], rows["backward"][:, :-1], unpack(carry, model) if carry is not None else None)
        hidden = torch.cat([ahead, back]).flatten(0, 1)
        wanted = torch.cat([labels(rows["forward"]), labels(rows["backward"], backward=True)])
        return {"bilm": score_tokens(model, hidden, wanted)}, pack(states)

    def asked(self, rows: Rows) -> tuple[Tensor, None]:
        return torch.cat([labels(rows["forward"]), labels(rows["backward"], backward=True)]), None

    def explain(self, batches: BothEnds, step: int) -> list[dict[str, str]]:
        """The windows of the model that reads ahead."""
        return explained(batches[step].rows["forward"], batches.documents(step), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Nearest neighbours, by the top layer, of the `*word*` in its context among words in context of the text."""
        shard = text.shards[0]
        segments = [shard.tokens[a:b].tolist() for a, b in shard.segments[:BANK] if b > a]
        bank, words = [], []
        for i in range(0, len(segments), 100):
            vectors, contexts = self._words(model, segments[i : i + 100])
            bank.append(vectors)
            words += contexts
        bank = torch.cat(bank)
        shown = []
        for prompt in prompts:
            before, word, after = prompt.split("*")
            spans = self.tokenizer.encode([before, word, after])
            vectors, _ = self._words(model, [[token for span in spans for token in span]])
            asked = self.tokenizer.encode([before])[0]
            place = sum(bool(self.tokenizer.starts_word[token]) for token in asked)
            scores, nearest = bank @ vectors[place], []
            for index in scores.argsort(descending=True).tolist():
                if words[index] not in nearest:
                    nearest.append(words[index])
                if len(nearest) == 5:
                    break
            shown.append({"prompt": prompt, "output": " | ".join(nearest)})
        return shown

    def _words(self, model: LanguageModel, segments: list[list[int]]) -> tuple[Tensor, list[str]]:
        """Unit top-layer vectors (words, width) of the segments' words at their first piece, and each word marked in its segment."""
        segments = [tokens[: model.max_length - 2] for tokens in segments]
        ids = pad_sequence([torch.tensor([CLS, *tokens, SEP]) for tokens in segments], batch_first=True)
        top = model.features(ids, torch.tensor([len(tokens) + 2 for tokens in segments]))[:, 1:, -1]
        vectors, contexts = [], []
        for row, tokens in zip(top, segments, strict=True):
            firsts = [i for i, token in enumerate(tokens) if self.tokenizer.starts_word[token] or i == 0]
            vectors.append(row[firsts])
            for start, end in zip(firsts, [*firsts[1:], len(tokens)], strict=True):
                spans = (tokens[max(0, start - 6) : start], tokens[start:end], tokens[end : end + 6])
                left, word, right = (self.tokenizer.decode(span) for span in spans)
                contexts.append(f"{left} *{word.strip()}* {right}".strip())
        return normalize(torch.cat(vectors).float(), dim=1), contexts


def pack(states: tuple[list, list]) -> Tensor:
    """LSTM states of both directions as one tensor (batch, directions * layers * (projection + hidden)), cut from the graph."""
    flat = [part.detach().squeeze(0) for direction in states for layer in direction for part in layer]
    return torch.cat(flat, 1)


def unpack(carry: Tensor, model: LanguageModel) -> tuple[list, list]:
    """The inverse of `pack`."""
    lstms = [*model.forward_lm.lstms, *model.backward_lm.lstms]
    parts = carry.split([size for lstm in lstms for size in (lstm.proj_size, lstm.hidden_size)], 1)
    layers = [(parts[2 * i][None].contiguous(), parts[2 * i + 1][None].contiguous()) for i in range(len(lstms))]
    return layers[: len(layers) // 2], layers[len(layers) // 2 :]


Objective = BidirectionalLM
