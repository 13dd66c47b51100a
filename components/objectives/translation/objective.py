"""Translation of sentences (Vaswani et al. 2017)."""

import numpy as np

from components.core.errors import SesameError
from components.core.keyed import generator
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.batches import Batches, Chunk, Tensors, bucket_by_length
from components.objectives.examples.segments import ranges
from components.objectives.examples.source_target import Side, generate_target, smoothed_losses, source_target_chunk, to_text
from components.objectives.translation import config
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class Translation(Contract):
    """Predicts each token of the target from the source and the tokens before it."""

    main = "translation"

    def __init__(self, config: config.Translation, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.weights = {"translation": 1 - config.label_smoothing, "uniform": config.label_smoothing}

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "PairBatches":
        return PairBatches(self.config.reverse, self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, batch: Tensors, carry: None) -> tuple[Losses, None]:
        loss, uniform, correct = smoothed_losses(model, batch)
        return {"translation": (loss, correct), "uniform": (uniform, correct.new_zeros(()))}, None

    def validation_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Leave out the loss against the uniform distribution, which is only part of the training loss."""
        return {name: value for name, value in metrics.items() if not name.startswith("uniform")}

    def check(self, batches: "PairBatches", steps: int | None) -> None:
        if batches.truncated:
            print(f"{batches.truncated:,} of {len(batches.sizes):,} pairs cut: a side is longer than {batches.room} tokens", flush=True)

    def explain(self, batches: "PairBatches", step: int) -> list[dict[str, str]]:
        tensors = batches[step].tensors
        sequences = zip(batches.selected(step).tolist(), tensors["ids"].tolist(), tensors["targets"].tolist(), strict=True)
        names = dict.fromkeys((CLS, SEP), "")
        return [
            {"documents": str(document), "text": to_text(source, names, self.tokenizer), "target": to_text(target, names, self.tokenizer)}
            for document, source, target in sequences
        ]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """Return the greedy translation of each prompt."""
        samples = []
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            source = [CLS, *ids[: model.max_length - 2], SEP]
            output = generate_target(model, source, 2 * len(source) + 10)
            samples.append({"prompt": prompt, "output": self.tokenizer.decode(output)})
        return samples


class PairBatches(Batches):
    """`[CLS] source [SEP]` and `target [SEP]` of documents of two segments, in batches of similar length, in a new order in every epoch."""

    varying_lengths = True

    def __init__(self, reverse: bool, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        """Raise SesameError if a document has not two segments, or if there are fewer pairs than a batch."""
        self.text, self.batch_size, self.seed, self.epoch = text, batch_size, seed, -1
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.max_length, self.room = max_length, max_length - 2
        self.bounds_of_sides = np.concatenate(
            [self._pairs(shard, int(first)) for shard, first in zip(text.shards, text.first_documents, strict=True)]
        )
        if reverse:
            self.bounds_of_sides = self.bounds_of_sides[:, ::-1]
        self.shard = np.repeat(np.arange(len(text.shards)), [len(shard) for shard in text.shards])
        sizes = np.diff(self.bounds_of_sides, axis=2)[:, :, 0]
        self.truncated = int((sizes > self.room).any(1).sum())
        self.sizes = np.minimum(sizes, self.room)
        self.nonempty = np.flatnonzero((sizes > 0).all(1))  # a line may have no token
        self.left_out = 1 - self.sizes[self.nonempty].sum() / max(1, sizes.sum())
        if len(self.nonempty) < batch_size:
            raise SesameError(
                f"the text has {len(self.nonempty)} pairs, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    @staticmethod
    def _pairs(shard: Shard, first: int) -> np.ndarray:
        """Return first token and end of both segments of each document, (documents, 2, 2)."""
        counts = np.diff(shard.documents)
        if (wrong := np.flatnonzero(counts != 2)).size:
            raise SesameError(
                f"document {first + wrong[0]} has {counts[wrong[0]]} segments, not a text and its translation; "
                "the corpus of an objective translation is of `format: parallel`"
            )
        return np.asarray(shard.segments).reshape(-1, 2, 2)

    def _load(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.order = bucket_by_length(self.nonempty, self.sizes.sum(1), self.batch_size, generator(self.seed, epoch))

    def selected(self, step: int) -> np.ndarray:
        """Return the documents of a step, (batch,)."""
        epoch, index = divmod(step, self.epoch_steps())
        self._load(epoch)
        return self.order[index]

    def epoch_steps(self) -> int:
        return len(self.nonempty) // self.batch_size

    def tokens(self, step: int) -> int:
        return int(self.sizes[self.selected(step)].sum()) + 3 * self.batch_size

    def draw(self, first: int, last: int) -> Chunk:
        epoch, index = divmod(first, self.epoch_steps())
        self._load(epoch)
        selected = self.order[index : index + last - first].ravel()
        source, target = self._side(selected, 0, [CLS]), self._side(selected, 1, [])
        tokens = source.lengths + target.lengths
        return source_target_chunk(
            first, self.batch_size, self.max_length, source, target, tokens, ("translation", "uniform"), self.byte_lengths
        )  # fmt: skip

    def _side(self, selected: np.ndarray, side: int, opening: list[int]) -> Side:
        """Return one of the two texts of documents, with special tokens before it, and its `[SEP]`."""
        sizes, firsts = self.sizes[selected, side], self.bounds_of_sides[selected, side, 0]
        lengths = sizes + len(opening) + 1
        begins = np.cumsum(lengths) - lengths
        ids = np.full(lengths.sum(), SEP)
        if opening:
            ids[begins] = opening[0]
        target, source, shards = ranges(begins + len(opening), sizes), ranges(firsts, sizes), np.repeat(self.shard[selected], sizes)
        for shard in np.unique(shards):
            inside = shards == shard
            ids[target[inside]] = self.text.shards[shard].tokens[source[inside]]
        return Side(ids, lengths)


Objective = Translation
