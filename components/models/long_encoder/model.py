"""BERT's encoder with attention of linear cost, for long texts."""

from components.models.common.transformer import initialise
from components.models.encoder.model import Encoder
from components.models.long_encoder.attention import ATTENTIONS
from components.models.long_encoder.config import LongEncoderArchitecture
from components.text.tokenizer import Tokenizer


class LongEncoder(Encoder):
    """The `encoder`, each of whose layers attends in another way. With `attention: full` it computes what the encoder
    does."""

    low_rank = ("query_key_value", "key_value")

    def __init__(self, config: LongEncoderArchitecture, tokens: Tokenizer):
        super().__init__(config, tokens)
        for block in self.blocks:
            block.attention = ATTENTIONS[config.attention](config)
        initialise(self)


Model = LongEncoder
