"""Causal language modelling over packed documents (Radford et al. 2018, 2019)."""

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from components.core.errors import SesameError
from components.models.contract import LanguageModel
from components.objectives.clm import config
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.stream import Stream, explained, filled, labels, of_streams
from components.objectives.examples.windows import Batches, Rows, Window
from components.objectives.scoring import score_tokens
from components.objectives.writing import NEW_TOKENS, written
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class CausalLM(Contract):
    """Predicts each token from those before it."""

    main = "clm"
    chain_rule = True

    def __init__(self, config: config.CausalLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "PackedBatches":
        return PackedBatches(self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        ids = rows["ids"][:, :-1]
        hidden = model(ids, *isolate(ids)) if self.config.isolate_documents else model(ids)
        return {"clm": score_tokens(model, hidden.flatten(0, 1), labels(rows["ids"]))}, None

    def asked(self, rows: Rows) -> tuple[Tensor, None]:
        return labels(rows["ids"]), None

    def explain(self, batches: "PackedBatches", step: int) -> list[dict[str, str]]:
        return explained(batches[step].rows["ids"], batches.documents(step), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """A continuation of each prompt, drawn."""
        generator, shown = torch.Generator().manual_seed(0), []
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            begun = [CLS, *ids][: model.max_length]
            made = written(
                lambda text, begun=begun: model.logits(model(torch.tensor([begun + text]))[0, -1]),
                [SEP], min(NEW_TOKENS, model.max_length - len(begun)), generator,
            )  # fmt: skip
            shown.append({"prompt": prompt, "output": self.tokenizer.decode(made)})
        return shown


class PackedBatches(Batches):
    """Rows of max_length + 1 tokens of the stream; the last token of a row is the first of the next. The last row of an
    epoch is padded."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.stream, self.batch_size, self.max_length = Stream(text, seed), batch_size, max_length
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.rows = -(-(self.stream.size - 1) // max_length)
        if self.rows < batch_size:
            raise SesameError(
                f"the text has {self.stream.size} tokens, {self.rows} rows of {max_length}, less than one batch of {batch_size}; "
                "use more text or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return self.rows // self.batch_size

    def tokens(self, step: int) -> int:
        index, each = step % self.epoch_steps(), self.batch_size * self.max_length
        return min(each, self.stream.size - 1 - index * each)

    def documents(self, step: int) -> list[str]:
        """Of each row of a step, the documents that it has text of."""
        epoch, index = divmod(step, self.epoch_steps())
        starts = [(index * self.batch_size + row) * self.max_length for row in range(self.batch_size)]
        return [self.stream.documents(epoch, start, start + self.max_length + 1) for start in starts]

    def draw(self, first: int, last: int) -> Window:
        epoch, index = divmod(first, self.epoch_steps())
        rows = (last - first) * self.batch_size
        start = index * self.batch_size * self.max_length
        size = rows * self.max_length + 1
        text = filled(self.stream.read(epoch, start, min(start + size, self.stream.size)), size)
        ids = sliding_window_view(text, self.max_length + 1)[:: self.max_length]
        return of_streams(first, self.batch_size, "clm", {"ids": ids}, self.byte_lengths)


def isolate(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids (batch, length) -> positions (batch, length) counted from each document's `[CLS]`, and the mask (batch, 1, length, length)
    that shows a token the earlier ones of its own document. Resetting positions alone would not isolate documents."""
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    starts = torch.where(ids == CLS, places, 0).cummax(1).values
    same = starts[:, :, None] == starts[:, None, :]
    causal = places[:1, :, None] >= places[:1, None, :]
    return places - starts, (same & causal)[:, None]


Objective = CausalLM
