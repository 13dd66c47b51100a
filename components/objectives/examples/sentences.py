"""Sentences and their neighbours in a document, and the vectors that a model makes of them."""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from components.core.errors import SesameError
from components.core.keyed import generator
from components.models.contract import LanguageModel
from components.objectives.config import ObjectiveBlock
from components.objectives.contract import Objective as Contract
from components.objectives.examples.segments import pieces
from components.objectives.examples.windows import Batches, Rows, padded
from components.text.encode import Split
from components.text.tokenizer import CLS, PAD, SEP, Tokenizer

BANK = 5000  # sentences that a prompt's neighbours are sought among
NEAREST = 3


class SentenceBatches(Batches):
    """Steps of sentences, `[CLS] ... [SEP]` each, in a new order in every epoch; one that is longer than a row is read
    as several. A document of a single sentence has no neighbours and is left out. Memory holds 50 bytes a sentence."""

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.text, self.batch_size, self.max_length, self.seed = text, batch_size, max_length, seed
        self.byte_lengths, self.epoch = np.asarray(tokens.byte_lengths), -1
        rows, documents, all_tokens = [], [], 0
        for number, (shard, first) in enumerate(zip(text.shards, text.first_documents, strict=True)):
            firsts, ends, openings = pieces(shard, max_length - 2)
            real = np.flatnonzero(ends > firsts)  # a segment may make no token
            document = np.searchsorted(openings, real, side="right") - 1
            keep = np.bincount(document, minlength=len(shard))[document] > 1
            all_tokens += int((ends - firsts).sum())
            rows.append(np.stack([np.full(keep.sum(), number), firsts[real[keep]], ends[real[keep]]], 1))
            documents.append(first + document[keep])
        self.sentences, self.documents = np.concatenate(rows), np.concatenate(documents)  # the latter as they are numbered in the split
        if len(self.sentences) < batch_size:
            raise SesameError(
                f"the text has {len(self.sentences)} sentences with a neighbour in their document, less than one batch of {batch_size}; "
                "use more text, of documents of several sentences, or a smaller batch_size"
            )
        sizes = self.sentences[:, 2] - self.sentences[:, 1]
        self.lengths = sizes + 2  # with both specials
        self.left_out = 1 - sizes.sum() / all_tokens

    @abstractmethod
    def ordered(self, rng: np.random.Generator) -> np.ndarray:
        """The sentences of an epoch by their numbers, step after step, (steps * batch_size,) or more."""

    def epoch_steps(self) -> int:
        return len(self.sentences) // self.batch_size

    def chosen(self, first: int, last: int) -> np.ndarray:
        """The sentences of the steps first, ..., last - 1 of one epoch, (steps * batch_size,)."""
        epoch, index = divmod(first, self.epoch_steps())
        if epoch != self.epoch:
            self.epoch, self.order = epoch, self.ordered(generator(self.seed, epoch))
        return self.order[index * self.batch_size : (index + last - first) * self.batch_size]

    def tokens(self, step: int) -> int:
        return int(self.lengths[self.chosen(step, step + 1)].sum())

    def read(self, chosen: np.ndarray, there: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows of sentences as a flat array of all steps, and the widths of the steps; those that are not `there` are of padding alone."""
        lengths = self.lengths[chosen]
        widths, begins = padded(lengths, self.batch_size)
        ids = np.full(self.batch_size * widths.sum(), PAD)
        rows = range(len(chosen)) if there is None else np.flatnonzero(there).tolist()
        for row in rows:
            (shard, start, _), length, at = self.sentences[chosen[row]].tolist(), int(lengths[row]), int(begins[row])
            ids[at] = CLS
            ids[at + 1 : at + length - 1] = self.text.shards[shard].tokens[start : start + length - 2]
            ids[at + length - 1] = SEP
        return ids, widths

    def bytes(self, ids: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Of text behind each row of such an array, (rows,)."""
        each = np.repeat(widths, self.batch_size)
        return np.bincount(np.repeat(np.arange(len(each)), each), self.byte_lengths[ids], minlength=len(each))


class SentenceObjective(Contract):
    """What is learned of a sentence from those that are next to it: nothing but the model's vector of it is used."""

    def __init__(self, config: ObjectiveBlock, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def untrained(self, model: LanguageModel) -> list[str]:
        return unreached(model)

    def explain(self, batches: SentenceBatches, step: int) -> list[dict[str, str]]:
        """A sentence a row."""
        documents = batches.documents[batches.chosen(step, step + 1)].tolist()
        rows = batches[step].rows["ids"].tolist()
        return [{"documents": str(own), "text": self.tokenizer.decode(ids)} for own, ids in zip(documents, rows, strict=True)]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Of each prompt the sentences of the text whose vectors have the largest cosine with its own."""
        shard = text.shards[0]
        bank = [shard.tokens[a:b].tolist() for a, b in shard.segments[:BANK] if b > a]
        known = _read(model, bank)
        shown = []
        for prompt, vector in zip(prompts, _read(model, self.tokenizer.encode(prompts)) if prompts else (), strict=True):
            found: list[str] = []
            for index in (known @ vector).argsort(descending=True).tolist():
                sentence = self.tokenizer.decode(bank[index])
                if sentence not in found:
                    found.append(sentence)
                if len(found) == NEAREST:
                    break
            shown.append({"prompt": prompt, "output": " | ".join(found)})
        return shown


def vectors(model: LanguageModel, rows: Rows) -> Tensor:
    """The model's own vector of each sentence, (batch, width)."""
    return model.pool(model.top(rows["ids"], rows["lengths"]), rows["lengths"])


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


def _read(model: LanguageModel, sentences: list[list[int]]) -> Tensor:
    """Unit vectors (sentences, width)."""
    made = []
    for i in range(0, len(sentences), 100):
        ids = [torch.tensor([CLS, *own[: model.max_length - 2], SEP]) for own in sentences[i : i + 100]]
        rows = {"ids": pad_sequence(ids, batch_first=True), "lengths": torch.tensor(list(map(len, ids)))}
        made.append(vectors(model, rows).float())
    return normalize(torch.cat(made), dim=1)
