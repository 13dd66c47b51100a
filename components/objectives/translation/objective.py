"""Translation of sentences (Vaswani et al. 2017)."""

import numpy as np

from components.core.errors import SesameError
from components.core.keyed import generator
from components.models.contract import LanguageModel
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.segments import ranges
from components.objectives.examples.source_target import Side, answered, laid_out, score, shown
from components.objectives.examples.windows import Batches, Rows, Window, bucketed
from components.objectives.translation import config
from components.text.encode import Shard, Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class Translation(Contract):
    """Predicts each token of the target from the source and those before it."""

    main = "translation"

    def __init__(self, config: config.Translation, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens
        self.weights = {"translation": 1 - config.label_smoothing, "uniform": config.label_smoothing}

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "PairBatches":
        return PairBatches(self.config.reverse, self.tokenizer, text, batch_size, max_length, seed)

    def losses(self, model: LanguageModel, rows: Rows, carry: None) -> tuple[Losses, None]:
        loss, uniform, right = score(model, rows)
        return {"translation": (loss, right), "uniform": (uniform, right.new_zeros(()))}, None

    def figures(self, figures: dict[str, float]) -> dict[str, float]:
        """That against pieces at random is part of the training alone."""
        return {name: value for name, value in figures.items() if not name.startswith("uniform")}

    def check(self, batches: "PairBatches", steps: int | None) -> None:
        if batches.cut:
            print(f"{batches.cut:,} of {len(batches.sizes):,} pairs cut: a side is longer than {batches.room} tokens", flush=True)

    def explain(self, batches: "PairBatches", step: int) -> list[dict[str, str]]:
        rows = batches[step].rows
        sides = zip(batches.chosen(step).tolist(), rows["ids"].tolist(), rows["targets"].tolist(), strict=True)
        names = dict.fromkeys((CLS, SEP), "")
        return [
            {"documents": str(document), "text": shown(source, names, self.tokenizer), "target": shown(target, names, self.tokenizer)}
            for document, source, target in sides
        ]

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """The likeliest translation of each prompt, a piece at a time."""
        made = []
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            source = [CLS, *ids[: model.max_length - 2], SEP]
            made.append({"prompt": prompt, "output": self.tokenizer.decode(answered(model, source, 2 * len(source) + 10))})
        return made


class PairBatches(Batches):
    """`[CLS] source [SEP]` and `target [SEP]` of documents of two segments, in batches of similar length, in a new order in every epoch."""

    def __init__(self, reverse: bool, tokens: Tokenizer, text: Split, batch_size: int, max_length: int, seed: int):
        """Raises SesameError where a document has more or fewer than two segments, and where they are less than a batch."""
        self.text, self.batch_size, self.seed, self.epoch = text, batch_size, seed, -1
        self.byte_lengths = np.asarray(tokens.byte_lengths)
        self.room = max_length - 2
        self.ends = np.concatenate([self._pairs(shard, int(first)) for shard, first in zip(text.shards, text.first_documents, strict=True)])
        self.ends = self.ends[:, ::-1] if reverse else self.ends
        self.shard = np.repeat(np.arange(len(text.shards)), [len(shard) for shard in text.shards])
        sizes = np.diff(self.ends, axis=2)[:, :, 0]
        self.cut = int((sizes > self.room).any(1).sum())
        self.sizes = np.minimum(sizes, self.room)
        self.some = np.flatnonzero((sizes > 0).all(1))  # a line may make no token
        self.left_out = 1 - self.sizes[self.some].sum() / max(1, sizes.sum())
        if len(self.some) < batch_size:
            raise SesameError(
                f"the text has {len(self.some)} pairs, less than one batch of {batch_size}; use more text or a smaller batch_size"
            )

    @staticmethod
    def _pairs(shard: Shard, first: int) -> np.ndarray:
        """First and end of both segments of each document, (documents, 2, 2)."""
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
            self.order = bucketed(self.some, self.sizes.sum(1), self.batch_size, generator(self.seed, epoch))

    def chosen(self, step: int) -> np.ndarray:
        """The documents of a step, (batch,)."""
        epoch, index = divmod(step, self.epoch_steps())
        self._load(epoch)
        return self.order[index]

    def epoch_steps(self) -> int:
        return len(self.some) // self.batch_size

    def tokens(self, step: int) -> int:
        return int(self.sizes[self.chosen(step)].sum()) + 3 * self.batch_size

    def draw(self, first: int, last: int) -> Window:
        epoch, index = divmod(first, self.epoch_steps())
        self._load(epoch)
        chosen = self.order[index : index + last - first].ravel()
        source, target = self._side(chosen, 0, [CLS]), self._side(chosen, 1, [])
        read = source.lengths + target.lengths
        return laid_out(first, self.batch_size, source, target, read, ("translation", "uniform"), self.byte_lengths)

    def _side(self, chosen: np.ndarray, side: int, opening: list[int]) -> Side:
        """One of the two texts of some documents, with what stands before it, and its `[SEP]`."""
        sizes, firsts = self.sizes[chosen, side], self.ends[chosen, side, 0]
        lengths = sizes + len(opening) + 1
        begins = np.cumsum(lengths) - lengths
        ids = np.full(lengths.sum(), SEP)
        ids[begins] = opening[0] if opening else ids[begins]
        at, from_, shards = ranges(begins + len(opening), sizes), ranges(firsts, sizes), np.repeat(self.shard[chosen], sizes)
        for shard in np.unique(shards):
            own = shards == shard
            ids[at[own]] = self.text.shards[shard].tokens[from_[own]]
        return Side(ids, lengths)


Objective = Translation
