"""Sentences and their neighbours in a document, and the sentence vectors of a model."""

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
from components.objectives.examples.batches import Batches, Tensors, padded_layout
from components.objectives.examples.segments import split_segments
from components.text.encode import Split
from components.text.tokenizer import CLS, PAD, SEP, Tokenizer

CANDIDATES = 5000  # sentences among which the neighbours of a prompt are searched
NEAREST = 3


class SentenceBatches(Batches):
    """Batches of sentences, `[CLS] ... [SEP]` each, in a new order in every epoch.

    A sentence longer than max_length is split. A document of one sentence is left out, since it has no neighbours. Memory holds
    50 bytes per sentence.
    """

    varying_lengths = True

    def __init__(self, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.text, self.batch_size, self.max_length, self.seed = text, batch_size, max_length, seed
        self.byte_lengths, self.epoch = np.asarray(tokens.byte_lengths), -1
        sentences, documents, all_tokens = [], [], 0
        for number, (shard, first) in enumerate(zip(text.shards, text.first_documents, strict=True)):
            firsts, ends, openings = split_segments(shard, max_length - 2)
            real = np.flatnonzero(ends > firsts)  # a segment may have no token
            document = np.searchsorted(openings, real, side="right") - 1
            keep = np.bincount(document, minlength=len(shard))[document] > 1
            all_tokens += int((ends - firsts).sum())
            sentences.append(np.stack([np.full(keep.sum(), number), firsts[real[keep]], ends[real[keep]]], 1))
            documents.append(first + document[keep])
        self.sentences, self.documents = np.concatenate(sentences), np.concatenate(documents)  # documents by their numbers in the split
        if len(self.sentences) < batch_size:
            raise SesameError(
                f"the text has {len(self.sentences)} sentences with a neighbour in their document, less than one batch of {batch_size}; "
                "use more text, of documents of several sentences, or a smaller batch_size"
            )
        sizes = self.sentences[:, 2] - self.sentences[:, 1]
        self.lengths = sizes + 2  # with [CLS] and [SEP]
        self.left_out = 1 - sizes.sum() / all_tokens

    @abstractmethod
    def order_epoch(self, rng: np.random.Generator) -> np.ndarray:
        """Return the numbers of the sentences of an epoch, step after step, (steps * batch_size,) or more."""

    def epoch_steps(self) -> int:
        return len(self.sentences) // self.batch_size

    def selected(self, first: int, last: int) -> np.ndarray:
        """Return the sentences of the steps [first, last) of one epoch, (steps * batch_size,)."""
        epoch, index = divmod(first, self.epoch_steps())
        if epoch != self.epoch:
            self.epoch, self.order = epoch, self.order_epoch(generator(self.seed, epoch))
        return self.order[index * self.batch_size : (index + last - first) * self.batch_size]

    def tokens(self, step: int) -> int:
        return int(self.lengths[self.selected(step, step + 1)].sum())

    def read(self, selected: np.ndarray, present: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return sentences as a flat array of all steps, and the width of each step; those that are not `present` are only padding."""
        lengths = self.lengths[selected]
        widths, begins = padded_layout(lengths, self.batch_size)  # as recurrent networks take a step for each column of padding, too
        ids = np.full(self.batch_size * widths.sum(), PAD)
        for i in range(len(selected)) if present is None else np.flatnonzero(present).tolist():
            (shard, start, _), length, at = self.sentences[selected[i]].tolist(), int(lengths[i]), int(begins[i])
            ids[at] = CLS
            ids[at + 1 : at + length - 1] = self.text.shards[shard].tokens[start : start + length - 2]
            ids[at + length - 1] = SEP
        return ids, widths

    def bytes(self, ids: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Return the bytes of the text of each sentence in such an array, (sentences,)."""
        per_sentence = np.repeat(widths, self.batch_size)
        return np.bincount(np.repeat(np.arange(len(per_sentence)), per_sentence), self.byte_lengths[ids], minlength=len(per_sentence))


class SentenceObjective(Contract):
    """Predictions about neighbouring sentences from a sentence's vector, the only output of the model that is used."""

    def __init__(self, config: ObjectiveBlock, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def untrained(self, model: LanguageModel) -> list[str]:
        return unused_modules(model)

    def explain(self, batches: SentenceBatches, step: int) -> list[dict[str, str]]:
        documents = batches.documents[batches.selected(step, step + 1)].tolist()
        rows = batches[step].tensors["ids"].tolist()
        return [{"documents": str(number), "text": self.tokenizer.decode(ids)} for number, ids in zip(documents, rows, strict=True)]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return for each prompt the sentences of the text whose vectors have the largest cosine with its vector."""
        shard = text.shards[0]
        candidates = [shard.tokens[a:b].tolist() for a, b in shard.segments[:CANDIDATES] if b > a]
        vectors = _unit_vectors(model, candidates)
        samples = []
        for prompt, vector in zip(prompts, _unit_vectors(model, self.tokenizer.encode(prompts)) if prompts else (), strict=True):
            nearest: list[str] = []
            for index in (vectors @ vector).argsort(descending=True).tolist():
                sentence = self.tokenizer.decode(candidates[index])
                if sentence not in nearest:
                    nearest.append(sentence)
                if len(nearest) == NEAREST:
                    break
            samples.append({"prompt": prompt, "output": " | ".join(nearest)})
        return samples


def sentence_vectors(model: LanguageModel, batch: Tensors) -> Tensor:
    """Return the model's vector of each sentence, (batch, width)."""
    return model.pool(model.top(batch["ids"], batch["lengths"]), batch["lengths"])


def unused_modules(model: LanguageModel) -> list[str]:
    """Return the modules of the model that its sentence vector does not depend on, e.g. the language model's head."""
    training = model.training
    model.eval()  # without dropout, which would advance the random state
    ids, lengths = torch.tensor([[CLS, SEP]], device=next(model.parameters()).device), torch.tensor([2])
    with torch.enable_grad():
        sentence_vectors(model, {"ids": ids, "lengths": lengths.to(ids.device)}).sum().backward()
    used = {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad(set_to_none=True)
    model.train(training)
    return [module for module in dict.fromkeys(name.partition(".")[0] for name, _ in model.named_parameters()) if module not in used]


def _unit_vectors(model: LanguageModel, sentences: list[list[int]]) -> Tensor:
    """Return unit vectors (sentences, width)."""
    vectors = []
    for i in range(0, len(sentences), 100):
        ids = [torch.tensor([CLS, *tokens[: model.max_length - 2], SEP]) for tokens in sentences[i : i + 100]]
        batch = {"ids": pad_sequence(ids, batch_first=True), "lengths": torch.tensor(list(map(len, ids)))}
        vectors.append(sentence_vectors(model, batch).float())
    return normalize(torch.cat(vectors), dim=1)
