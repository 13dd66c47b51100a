"""Subwords of a text that is encoded as ids of characters."""

from functools import cached_property
from io import BytesIO

import numpy as np
import sentencepiece

from components.core.errors import SesameError
from components.objectives.subwords.config import SubwordLM
from components.text import encode
from components.text.encode import Shard
from components.text.tokenizer import SPECIALS, Tokenizer
from components.text.tokenizer.spm import LONGEST_SEGMENT

PRIVATE = 0xE000
"""The first code point for ids that are no single character: bytes of characters without an id, unknown characters."""
SEGMENTS_AT_ONCE = 10_000


class Subwords:
    """A subword vocabulary, trained on the encoded text next to the tokenizer when it is first used; the same in every run."""

    def __init__(self, config: SubwordLM, tokens: Tokenizer):
        self.config, self.tokens = config, tokens
        texts = [piece.decode(errors="replace") for piece in tokens.pieces]
        self.points = np.array(
            [ord(text) if len(text) == 1 and not tokens.falls_back(i) else PRIVATE + i for i, text in enumerate(texts)], np.dtype("<u4")
        )

    def __len__(self) -> int:
        return self.processor.vocab_size()

    def piece(self, i: int) -> str:
        return self.processor.id_to_piece(i).replace("▁", " ")

    @cached_property
    def lengths(self) -> np.ndarray:
        """Characters of each subword, (subwords,); -1 for the first, which stands for unknown characters."""
        return np.array([-1] + [len(self.piece(i)) for i in range(1, len(self))])

    @cached_property
    def characters(self) -> np.ndarray:
        """The ids of each subword's characters, (subwords, longest); padded with -1."""
        ids, characters = {point: i for i, point in enumerate(self.points.tolist())}, np.full((len(self), self.lengths.max()), -1)
        for i in range(1, len(self)):
            characters[i, : self.lengths[i]] = [ids[ord(character)] for character in self.piece(i)]
        return characters

    @cached_property
    def by_length(self) -> dict[int, np.ndarray]:
        """Number of characters -> the subwords of this length."""
        return {length: np.nonzero(self.lengths == length)[0] for length in np.unique(self.lengths[1:]).tolist()}

    @cached_property
    def processor(self) -> sentencepiece.SentencePieceProcessor:
        folder = self.tokens.path.parent
        if not (folder / "meta.json").exists():
            raise SesameError(f"objective subwords trains its vocabulary on the encoded text next to {self.tokens.path}, and there is none")
        shards = encode.load(folder, "train").shards
        every = max(1, sum(len(shard.segments) for shard in shards) // self.config.sample_segments)
        model = BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(text for shard in shards for text in self._texts(shard, shard.segments[::every])),
                model_writer=model, model_type="bpe", vocab_size=self.config.subword_vocab_size,
                # a character is an id: no normalisation, no added or removed characters
                normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, character_coverage=1.0,
                max_sentence_length=LONGEST_SEGMENT, unk_id=0, bos_id=-1, eos_id=-1, pad_id=-1, minloglevel=2,
            )  # fmt: skip
        except RuntimeError as error:
            raise SesameError(f"objective.subword_vocab_size {self.config.subword_vocab_size}: {str(error).splitlines()[-1]}") from None
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def _texts(self, shard: Shard, segments: np.ndarray) -> list[str]:
        """Return segments with one character per id, so that positions are the same."""
        return [self.points[shard.tokens[first:end]].tobytes().decode("utf-32-le") for first, end in segments.tolist()]

    def with_subwords(self, shard: Shard) -> np.ndarray:
        """Return the ids of a shard, (n,); where subword i begins, (i + 1) * vocab_size is added to the id of the character."""
        ids = shard.tokens.astype(np.int64)
        for at in range(0, len(shard.segments), SEGMENTS_AT_ONCE):
            segments = shard.segments[at : at + SEGMENTS_AT_ONCE]
            encoded = self.processor.encode(self._texts(shard, segments), return_type="offset_mapping")
            for (first, _), subwords in zip(segments.tolist(), encoded, strict=True):
                positions = first + np.array([begin for begin, _ in subwords["offsets"]], int)
                ids[positions] += self.tokens.vocab_size * (1 + np.array(subwords["ids"], int))
        return ids


class DummySubwords(Subwords):
    """Stands in for subwords whose text does not exist yet when only sizes count: all have four characters."""

    def __init__(self, config: SubwordLM, tokens: Tokenizer):
        self.config, self.tokens, self.lengths = config, tokens, np.array([-1] + [4] * (config.subword_vocab_size - 1))
        self.characters = np.broadcast_to(np.int64(len(SPECIALS)), (len(self), 4))

    def __len__(self) -> int:
        return self.config.subword_vocab_size

    def with_subwords(self, shard: Shard) -> np.ndarray:
        ids = shard.tokens.astype(np.int64)
        for first, end in shard.segments.tolist():
            ids[first:end:4] += 2 * self.tokens.vocab_size  # subword 1
        return ids
