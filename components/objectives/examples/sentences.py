"""Sentences in the order of their documents, and the vectors that a model makes of them."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from components.encode import Split
from components.errors import SesameError
from components.keyed import generator
from components.models.contract import LanguageModel
from components.objectives.examples.segments import ranges
from components.objectives.examples.windows import Batches, Rows, Window, padded
from components.tokenizer import CLS, SEP, Tokenizer

BANK = 5000  # sentences that a prompt's neighbours are sought among
NEAREST = 3


class SentenceBatches(Batches):
    """Steps of consecutive sentences, `[CLS] ... [SEP]` each, documents in a new order in every epoch. A document of a single sentence has
    no neighbours and is left out. Memory holds 40 bytes a sentence."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.text, self.batch_size, self.max_length, self.seed = text, batch_size, max_length, seed
        self.byte_lengths, self.epoch = np.asarray(tokens.byte_lengths), -1
        rows, sizes = [], []
        for number, shard in enumerate(text.shards):
            real = np.flatnonzero(shard.segments[:, 1] > shard.segments[:, 0])  # a segment may make no token
            document = np.searchsorted(shard.documents, real, side="right") - 1
            count = np.bincount(document, minlength=len(shard))
            keep = count[document] > 1
            rows.append(np.stack([np.full(keep.sum(), number), shard.segments[real[keep], 0], shard.segments[real[keep], 1]], 1))
            sizes.append(count[count > 1])
        self.sentences, self.sizes = np.concatenate(rows), np.concatenate(sizes)
        if len(self.sentences) < batch_size:
            raise SesameError(
                f"the text has {len(self.sentences)} sentences with a neighbour in their document, less than one batch of {batch_size}; "
                "use more text, of documents of several sentences, or a smaller batch_size"
            )

    def epoch_steps(self) -> int:
        return len(self.sentences) // self.batch_size

    def _load(self, epoch: int) -> None:
        """Put the documents into the order of an epoch."""
        if epoch != self.epoch:
            order = generator(self.seed, epoch).permutation(len(self.sizes))
            starts = (np.cumsum(self.sizes) - self.sizes)[order]
            self.epoch, self.order = epoch, ranges(starts, self.sizes[order])
            self.document = np.repeat(order, self.sizes[order])  # of each place in the epoch

    def _lengths(self, chosen: np.ndarray) -> np.ndarray:
        """Tokens of sentences with both specials, cut to what the model reads."""
        return np.minimum(self.sentences[chosen, 2] - self.sentences[chosen, 1] + 2, self.max_length)

    def places(self, step: int) -> slice:
        """Of a step in its epoch, which is loaded."""
        epoch, index = divmod(step, self.epoch_steps())
        self._load(epoch)
        return slice(index * self.batch_size, (index + 1) * self.batch_size)

    def tokens(self, step: int) -> int:
        places = self.places(step)
        return int(self._lengths(self.order[places]).sum())

    def draw(self, first: int, last: int) -> Window:
        begin, end = self.places(first).start, self.places(last - 1).stop
        chosen, document = self.order[begin:end], self.document[begin:end]
        lengths = self._lengths(chosen)
        widths, begins = padded(lengths, self.batch_size)
        ids = np.zeros(self.batch_size * widths.sum(), np.int64)
        for (shard, start, _), length, at in zip(self.sentences[chosen].tolist(), lengths.tolist(), begins.tolist(), strict=True):
            ids[at] = CLS
            ids[at + 1 : at + length - 1] = self.text.shards[shard].tokens[start : start + length - 2]
            ids[at + length - 1] = SEP
        within = document.reshape(-1, self.batch_size)
        follows = np.pad(within[:, 1:] == within[:, :-1], ((0, 0), (1, 0))).ravel()  # the row before it, in this step
        precedes = np.pad(within[:, 1:] == within[:, :-1], ((0, 0), (0, 1))).ravel()
        row = np.repeat(np.arange(len(lengths)), lengths)
        sizes = np.bincount(row, self.byte_lengths[ids[ranges(begins, lengths)]], minlength=len(lengths))
        counts = {"tokens": lengths} | self.counts(lengths, sizes, follows, precedes)
        flat = {"ids": (ids, widths), "lengths": (lengths, None), "documents": (document, None)}
        return Window.laid_out(first, self.batch_size, flat, counts)

    def counts(self, lengths: np.ndarray, sizes: np.ndarray, follows: np.ndarray, precedes: np.ndarray) -> dict[str, np.ndarray]:
        """Of each row the targets of each part, and the `bytes` behind those of the main part."""
        raise NotImplementedError


def vectors(model: LanguageModel, rows: Rows) -> Tensor:
    """The model's own vector of each sentence, (batch, width)."""
    return model.pool(model.top(rows["ids"], rows["lengths"]), rows["lengths"])


def neighbours(rows: Rows) -> Tensor:
    """(batch - 1,): whether row i + 1 follows on row i in its document."""
    return rows["documents"][1:] == rows["documents"][:-1]


def unreached(model: LanguageModel) -> list[str]:
    """The model's parts that its vector of a text does not depend on, as the head of a language model."""
    training = model.training
    model.eval()  # draws nothing
    ids, lengths = torch.tensor([[CLS, SEP]], device=next(model.parameters()).device), torch.tensor([2])
    with torch.enable_grad():
        vectors(model, {"ids": ids, "lengths": lengths.to(ids.device)}).sum().backward()
    reached = {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad(set_to_none=True)
    model.train(training)
    return [part for part in dict.fromkeys(name.partition(".")[0] for name, _ in model.named_parameters()) if part not in reached]


def explained(batches: SentenceBatches, step: int, tokens: Tokenizer) -> list[dict[str, str]]:
    """A sentence a row; `+` follows on the one above."""
    rows, shown, before = batches[step].rows, [], None
    for ids, length, document in zip(rows["ids"].tolist(), rows["lengths"].tolist(), rows["documents"].tolist(), strict=True):
        shown.append({"documents": str(document), "text": ("+ " if document == before else "") + tokens.decode(ids[1 : length - 1])})
        before = document
    return shown


def nearest(model: LanguageModel, tokens: Tokenizer, text: Split, prompts: list[str]) -> list[dict[str, str]]:
    """Of each prompt the sentences of the text whose vectors have the largest cosine with its own."""
    shard = text.shards[0]
    bank = [shard.tokens[a:b].tolist() for a, b in shard.segments[:BANK] if b > a]
    known = _read(model, bank)
    shown = []
    for prompt, vector in zip(prompts, _read(model, tokens.encode(prompts)) if prompts else (), strict=True):
        found: list[str] = []
        for index in (known @ vector).argsort(descending=True).tolist():
            sentence = tokens.decode(bank[index])
            if sentence not in found:
                found.append(sentence)
            if len(found) == NEAREST:
                break
        shown.append({"prompt": prompt, "output": " | ".join(found)})
    return shown


def _read(model: LanguageModel, sentences: list[list[int]]) -> Tensor:
    """Unit vectors (sentences, width)."""
    made = []
    for i in range(0, len(sentences), 100):
        ids = [torch.tensor([CLS, *own[: model.max_length - 2], SEP]) for own in sentences[i : i + 100]]
        rows = {"ids": pad_sequence(ids, batch_first=True), "lengths": torch.tensor(list(map(len, ids)))}
        made.append(vectors(model, rows).float())
    return normalize(torch.cat(made), dim=1)
