"""Subwords of a text that stands there as ids of characters."""

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
"""From here on ids that are no character of a text: bytes of such as have no id, what is unknown."""
SEGMENTS_AT_ONCE = 10_000


class Subwords:
    """A vocabulary, made of the encoded text beside the tokenizer when it is first asked for; the same in every run."""

    def __init__(self, config: SubwordLM, tokens: Tokenizer):
        self.config, self.tokens = config, tokens
        shown = [piece.decode(errors="replace") for piece in tokens.pieces]
        ordinary = [len(own) == 1 and not tokens.falls_back(i) for i, own in enumerate(shown)]
        self.points = np.array(
            [ord(own) if fits else PRIVATE + i for i, (own, fits) in enumerate(zip(shown, ordinary, strict=True))], np.dtype("<u4")
        )

    def __len__(self) -> int:
        return self.processor.vocab_size()

    def piece(self, i: int) -> str:
        return self.processor.id_to_piece(i).replace("▁", " ")

    @cached_property
    def lengths(self) -> np.ndarray:
        """Characters of each subword, (subwords,); -1 of the first, which is any unknown character."""
        return np.array([-1] + [len(self.piece(i)) for i in range(1, len(self))])

    @cached_property
    def spelled(self) -> np.ndarray:
        """The ids of each subword's characters, (subwords, characters of the longest); -1 behind them."""
        ids, spelled = {point: i for i, point in enumerate(self.points.tolist())}, np.full((len(self), self.lengths.max()), -1)
        for i in range(1, len(self)):
            spelled[i, : self.lengths[i]] = [ids[ord(character)] for character in self.piece(i)]
        return spelled

    @cached_property
    def of_length(self) -> dict[int, np.ndarray]:
        """Number of characters -> the subwords that have so many."""
        return {length: np.nonzero(self.lengths == length)[0] for length in np.unique(self.lengths[1:]).tolist()}

    @cached_property
    def processor(self) -> sentencepiece.SentencePieceProcessor:
        folder = self.tokens.path.parent
        if not (folder / "meta.json").exists():
            raise SesameError(
                f"objective subwords makes its vocabulary of the text that {self.tokens.path} stands beside, and there is none"
            )
        shards = encode.load(folder, "train").shards
        spread = max(1, sum(len(shard.segments) for shard in shards) // self.config.sample_segments)
        model = BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(text for shard in shards for text in self._texts(shard, shard.segments[::spread])),
                model_writer=model, model_type="bpe", vocab_size=self.config.subword_vocab_size,
                # a character is an id: nothing is folded, put before or left out
                normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, character_coverage=1.0,
                max_sentence_length=LONGEST_SEGMENT, unk_id=0, bos_id=-1, eos_id=-1, pad_id=-1, minloglevel=2,
            )  # fmt: skip
        except RuntimeError as error:
            raise SesameError(f"objective.subword_vocab_size {self.config.subword_vocab_size}: {str(error).splitlines()[-1]}") from None
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def _texts(self, shard: Shard, segments: np.ndarray) -> list[str]:
        """A character for each id, so that places are the same."""
        return [self.points[shard.tokens[first:end]].tobytes().decode("utf-32-le") for first, end in segments.tolist()]

    def numbered(self, shard: Shard) -> np.ndarray:
        """The ids of a shard, (n,), and those that a subword begins with that number plus one times vocab_size higher: a token is a
        character and what begins there."""
        ids = shard.tokens.astype(np.int64)
        for at in range(0, len(shard.segments), SEGMENTS_AT_ONCE):
            segments = shard.segments[at : at + SEGMENTS_AT_ONCE]
            for (first, _), own in zip(
                segments.tolist(), self.processor.encode(self._texts(shard, segments), return_type="offset_mapping"), strict=True
            ):
                places = first + np.array([begin for begin, _ in own["offsets"]], int)
                ids[places] += self.tokens.vocab_size * (1 + np.array(own["ids"], int))
        return ids


class Alike(Subwords):
    """In the place of subwords whose text is not there yet, when only sizes count: as many as were asked for, of four characters each."""

    def __init__(self, config: SubwordLM, tokens: Tokenizer):
        self.config, self.tokens, self.lengths = config, tokens, np.array([-1] + [4] * (config.subword_vocab_size - 1))
        self.spelled = np.broadcast_to(np.int64(len(SPECIALS)), (len(self), 4))

    def __len__(self) -> int:
        return self.config.subword_vocab_size

    def numbered(self, shard: Shard) -> np.ndarray:
        ids = shard.tokens.astype(np.int64)
        for first, end in shard.segments.tolist():
            ids[first:end:4] += 2 * self.tokens.vocab_size  # subword 1
        return ids
