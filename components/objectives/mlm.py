"""Masked language modelling with next-sentence prediction (Devlin et al. 2019, section 3.1 and appendix A)."""

import numpy as np
import torch
from torch import Tensor, nn

from components import params
from components.encode import Split
from components.errors import SesameError
from components.objectives.keyed import uniform
from components.objectives.scoring import score
from components.tokenizer import CLS, MASK, SEP, SPECIALS, Tokenizer, fit_pair

IGNORED = -100
MASKED, REPLACED, NEW_TOKEN = 1, 2, 3  # what a keyed number decides
BUCKET = 50  # batches whose examples are sorted by length together


class MaskedLM:
    """Predicts `mlm_probability` of the tokens and, if asked for, whether segment B followed segment A."""

    main = "mlm"

    def __init__(self, config: params.MaskedLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.byte_lengths = torch.from_numpy(tokens.byte_lengths)

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "MaskedBatches":
        return MaskedBatches(self.config, self.tokenizer, text, batch_size, max_length, seed)

    def counts(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        targets = rows["labels"][rows["labels"] != IGNORED]
        counts = {"tokens": rows["lengths"].sum(), "mlm": torch.tensor(len(targets)), "bytes": self.byte_lengths[targets.cpu()].sum()}
        return counts | ({"nsp": (rows["is_random"] != IGNORED).sum()} if self.config.next_sentence else {})

    def losses(self, model: nn.Module, rows: dict[str, Tensor], carry: None) -> tuple[dict[str, tuple[Tensor, Tensor]], None]:
        hidden = model(rows["ids"], rows["lengths"], rows["segment_ids"])
        target = rows["labels"] != IGNORED
        labels, logits = rows["labels"][target], model.logits(hidden[target])  # the head sees targets only
        parts = {"mlm": score(logits, labels, model.training)}
        if self.config.next_sentence:
            logits = model.next_sentence(model.pool(hidden, rows["lengths"]))
            parts["nsp"] = score(logits, rows["is_random"], model.training)
        return parts, None

    def samples(self, model: nn.Module, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """The five likeliest pieces for each `[MASK]` of a prompt."""
        shown = []
        for prompt in prompts:
            spans = self.tokenizer.encode(prompt.split("[MASK]"))
            ids = [CLS, *spans[0]]
            for span in spans[1:]:
                ids += [MASK, *span]
            ids = torch.tensor([[*ids[: model.max_length - 1], SEP]])
            logits = model.logits(model(ids, torch.tensor([ids.shape[1]]))[ids == MASK])
            logits[:, : len(SPECIALS)] = -torch.inf
            best = [", ".join(self.tokenizer.pieces[i].decode(errors="replace").strip() for i in row) for row in logits.topk(5).indices]
            shown.append({"prompt": prompt, "output": " | ".join(best)})
        return shown


class MaskedBatches:
    """Examples `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` in batches of similar length, masked anew in every epoch."""

    def __init__(self, config: params.MaskedLM, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        self.config, self.text, self.batch_size, self.max_length, self.seed = config, text, batch_size, max_length, seed
        self.ordinary = np.arange(len(SPECIALS), tokens.vocab_size)
        self.starts_word = tokens.starts_word if config.whole_word else None
        self.epochs: list[int] = []  # steps of each epoch seen so far
        self._load(0)
        if not self.epochs[0]:
            raise SesameError(f"the text makes {len(self.examples)} examples, less than one batch of {batch_size}; use more text or a smaller batch_size")

    def _load(self, epoch: int) -> None:
        rng = np.random.default_rng([self.seed, epoch])
        self.epoch = epoch
        drawn = np.random.default_rng([self.seed, 0]) if self.config.static else rng
        self.examples = pairs(self.text, self.max_length, drawn) if self.config.next_sentence else spans(self.text, self.max_length)
        inner = np.diff(np.searchsorted(self.text.segments[:, 1], self.examples[:, :4]), axis=1)  # [SEP]s inside A, between, inside B
        self.lengths = np.diff(self.examples[:, :4], axis=1)[:, [0, 2]].sum(1) - inner[:, [0, 2]].sum(1)
        self.lengths += np.where(self.examples[:, 2] < self.examples[:, 3], 3, 2)
        order = rng.permutation(len(self.examples))
        window = self.batch_size * BUCKET
        order = np.concatenate([part[np.argsort(self.lengths[part], kind="stable")] for part in np.split(order, range(window, len(order), window))])
        steps = len(order) // self.batch_size
        self.order = order[: steps * self.batch_size].reshape(steps, self.batch_size)[rng.permutation(steps)]
        if epoch == len(self.epochs):
            self.epochs.append(steps)

    def _find(self, step: int) -> np.ndarray:
        """The examples of a step; loads its epoch."""
        epoch = 0
        while True:
            if epoch >= len(self.epochs):
                self._load(epoch)
            if step < self.epochs[epoch]:
                break
            step -= self.epochs[epoch]
            epoch += 1
        if epoch != self.epoch:
            self._load(epoch)
        return self.order[step]

    def epoch_steps(self) -> int:
        return self.epochs[0]

    def tokens(self, step: int) -> int:
        chosen = self._find(step)  # first, since it may load another epoch with other lengths
        return int(self.lengths[chosen].sum())

    def _ordinary(self, start: int, end: int) -> np.ndarray:
        tokens = self.text.tokens[start:end]
        return tokens[tokens != SEP]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        chosen = self._find(step)
        lengths = self.lengths[chosen]
        ids = np.zeros((len(chosen), lengths.max()), dtype=np.int64)
        segment_ids = np.zeros_like(ids)
        for row, (a, a_end, b, b_end, _) in enumerate(self.examples[chosen]):
            first, second = self._ordinary(a, a_end), self._ordinary(b, b_end)
            ids[row, 0], ids[row, 1 + len(first)] = CLS, SEP
            ids[row, 1 : 1 + len(first)] = first
            if len(second):
                ids[row, 2 + len(first) : lengths[row] - 1] = second
                ids[row, lengths[row] - 1] = SEP
                segment_ids[row, 2 + len(first) : lengths[row]] = 1
        ids, labels = mask(ids, self.config, self.ordinary, (self.seed, 0 if self.config.static else self.epoch), chosen, self.starts_word)
        batch = {"ids": ids, "labels": labels, "segment_ids": segment_ids, "lengths": lengths, "is_random": self.examples[chosen, 4]}
        return {key: torch.from_numpy(value) for key, value in batch.items()}


def mask(
    ids: np.ndarray, config: params.MaskedLM, ordinary: np.ndarray, key: tuple[int, int], examples: np.ndarray, starts_word: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """ids (batch, length) -> masked ids and labels, IGNORED where nothing is predicted.

    Exactly round(mlm_probability * n), at least one, of a row's n ordinary tokens are targets; of these mask_share become
    `[MASK]`, random_share an ordinary token, and the rest stay. With `starts_word` (vocab_size,) whole words are targets, in a random order,
    those passed over that would be too much (at least the shortest is one); the shares are still of tokens. A pure function of (seed, epoch) = key and the example.
    """
    example, position = examples[:, None], np.arange(ids.shape[1])[None, :]
    real = ids >= len(SPECIALS)
    count = np.maximum(1, np.round(config.mlm_probability * real.sum(1))).astype(int)[:, None]
    if starts_word is None:
        rank = np.where(real, uniform(*key, example, position, MASKED), 2.0).argsort(1, kind="stable").argsort(1, kind="stable")
        target = real & (rank < count)
    else:
        opens = real & (starts_word[ids] | ~np.pad(real, ((0, 0), (1, 0)))[:, :-1])  # what follows a special opens a word, too
        word = np.where(real, opens.cumsum(1), 0)  # (batch, length), from 1
        order = np.where(opens, uniform(*key, example, position, MASKED), 2.0).argsort(1, kind="stable")
        target = np.zeros_like(real)
        for row, limit in enumerate(count[:, 0]):
            sizes, taken = np.bincount(word[row]), 0
            for first in order[row, : opens[row].sum()]:
                size = sizes[word[row, first]]
                if taken + size <= limit:  # a word that is too long is passed over, as in Devlin's
                    target[row, first : first + size], taken = True, taken + size
            if not taken:
                shortest = sizes[1:].argmin() + 1
                target[row] = word[row] == shortest
    decision = uniform(*key, example, position, REPLACED)
    drawn = ordinary[(uniform(*key, example, position, NEW_TOKEN) * len(ordinary)).astype(int)]
    masked = np.where(target & (decision < config.mask_share), MASK, ids)
    masked = np.where(target & (decision >= config.mask_share) & (decision < config.mask_share + config.random_share), drawn, masked)
    return masked, np.where(target, ids, IGNORED)


def spans(text: Split, max_length: int) -> np.ndarray:
    """Examples of one segment, (n, 5) like `pairs` with an empty B: windows of a document, max_length - 2 tokens each."""
    first, last = text.document_tokens[:-1] + 1, text.document_tokens[1:] - 1  # without [CLS] and the last [SEP]
    found = [(a, min(a + max_length - 2, end), end, end, IGNORED) for start, end in zip(first, last, strict=True) for a in range(start, end, max_length - 2)]
    return np.array(found, dtype=np.int64).reshape(-1, 5)


def pairs(text: Split, max_length: int, rng: np.random.Generator) -> np.ndarray:
    """Examples for next-sentence prediction, (n, 5): A's first token and end, B's first token and end, 1 where B is random.

    As in BERT's data: segments of a document are gathered up to max_length, split at a random place into A and B, and half
    of the time B is text of another document instead; the segments B would have had go back and open the next example.
    Unlike there, a segment left alone is an example of its own without a B and without a question (IGNORED): paired with
    random text it would make "random" the answer nine times in ten where a document does not open with A.
    """
    limit, documents = max_length - 3, len(text)
    if documents < 2:
        raise SesameError("next-sentence prediction needs at least two documents")
    starts, ends, firsts = text.segments[:, 0].tolist(), text.segments[:, 1].tolist(), text.documents.tolist()
    found = []
    for document in range(documents):
        segment, last = firsts[document], firsts[document + 1]
        while segment < last:
            stop = segment + 1
            while stop < last and ends[stop - 1] - starts[segment] < limit:
                stop += 1
            if stop - segment == 1:
                end = min(ends[segment], starts[segment] + max_length - 2)
                found.append((starts[segment], end, end, end, IGNORED))
                segment = stop
                continue
            split = segment + 1 if stop - segment < 3 else int(rng.integers(segment + 1, stop))
            is_random = rng.random() < 0.5
            if is_random:
                other = int(rng.integers(documents - 1))
                other += other >= document
                b_first, b_last = int(rng.integers(firsts[other], firsts[other + 1])), firsts[other + 1]
                stop = split
            else:
                b_first, b_last = split, stop
            a_size, b_size = ends[split - 1] - starts[segment], ends[b_last - 1] - starts[b_first]
            a_size, b_size = fit_pair(a_size, b_size, limit)
            found.append((starts[segment], starts[segment] + a_size, starts[b_first], starts[b_first] + b_size, is_random))
            segment = stop
    return np.array(found, dtype=np.int64)
