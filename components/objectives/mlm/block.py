"""Settings of MaskedLM."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.block import Share
from components.objectives.block import ObjectiveBlock


class MaskedLM(ObjectiveBlock):
    """Masked language modelling, with or without next-sentence prediction (Devlin et al. 2019, section 3.1)."""

    needs = "both_sides"
    samples_title = "likeliest fillings of [MASK]"

    name: Literal["mlm"]
    mlm_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    mask_share: Share = 0.8
    random_share: Share = 0.1
    next_sentence: bool = True
    """Whether the model says of each pair of segments if B followed A."""
    pairs: bool | None = None
    """Whether examples are pairs of segments, half of them with a random B; null: where `next_sentence` asks for them. With pairs and
    without the question, what the loss teaches is told from what the form of the text does (Liu et al. 2019, section 4.2)."""
    whole_word: bool = False
    """All pieces of a word are targets, or none (Devlin's release of 2019-05-31)."""
    static: bool = False
    """The same examples and masks in every epoch, as BERT's were made once and for all;
    RoBERTa's are drawn anew (Liu et al. 2019, section 4.1)."""

    @model_validator(mode="after")
    def shares_fit(self):
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share + random_share is more than 1")
        return self

    @model_validator(mode="after")
    def the_question_has_pairs(self):
        if self.next_sentence and self.pairs is False:
            raise ValueError("next_sentence asks about pairs: drop `pairs: false`, or say `next_sentence: false`, too")
        return self

    @property
    def paired(self) -> bool:
        """Whether examples are pairs."""
        return self.next_sentence if self.pairs is None else self.pairs

    def check_prompt(self, prompt: str) -> None:
        if "[MASK]" not in prompt:
            raise ValueError(f"prompt {prompt!r} has no [MASK] to fill")


Objective = MaskedLM
