"""Settings of the prefix language model."""

from typing import Annotated, Literal

from pydantic import Field

from components.models.decoder.config import DecoderArchitecture


class PrefixDecoderArchitecture(DecoderArchitecture):
    """The decoder as a model from source to target (Raffel et al. 2020, section 3.2.1): one stack of layers, in which the source stands
    before the target. It learns what an encoder-decoder learns, by the same objectives."""

    reads = "source_then_target"

    name: Literal["prefix_decoder"]
    prefix: Literal["both_sides", "left_to_right"] = "both_sides"
    """What a token of the source attends to: the whole source (prefix language model), or the tokens before it (language model)."""
    max_length: Annotated[int, Field(ge=8, le=2**40)]
    """Longest source, and longest target, in tokens."""
    positions: Literal["learned", "sinusoidal", "rotary", "alibi"] = "learned"
    """They count from the start of the source on. T5's `relative` has one bucket for all tokens to the right in a decoder."""


Architecture = PrefixDecoderArchitecture
