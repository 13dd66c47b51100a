"""Settings of SubwordLM."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Count
from components.models.common.config import ArchitectureBlock
from components.objectives.examples.config import MaskedInputs


class SubwordLM(MaskedInputs):
    """Mask subwords of a text of characters, and predict each from one of its characters (CANINE-S, Clark et al. 2022, section
    3.3). The subword vocabulary is used only in pre-training."""

    incomparable_loss = True
    samples_title = "likeliest subwords for [MASK]"

    name: Literal["subwords"]
    next_sentence: bool = True
    """Whether the model predicts for each pair of segments if B followed A."""
    subword_vocab_size: Annotated[int, Field(ge=2, le=2**24)] = 2048
    """The number of BPE subwords, learned from the training text."""
    sample_segments: Count = 50_000
    """The number of segments, evenly spread over that text, from which they are learned."""

    @property
    def question(self) -> Literal["nsp"] | None:
        return "nsp" if self.next_sentence else None

    @model_validator(mode="after")
    def units_are_subwords(self):
        if self.whole_word or self.span_probability:
            raise ValueError("objective subwords masks single subwords: leave whole_word and span_probability out")
        return self

    def check_reader(self, architecture: ArchitectureBlock) -> None:
        super().check_reader(architecture)
        if not architecture.of_characters:
            raise ValueError(
                f"objective subwords is for models that read characters, and {architecture.name} reads subword tokens; take mlm"
            )

    def check_prompt(self, prompt: str) -> None:
        raise ValueError(f"prompts: objective {self.name} predicts with a head that is not kept after training; leave prompts out")


Objective = SubwordLM
