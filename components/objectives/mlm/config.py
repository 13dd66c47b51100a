"""Settings of MaskedLM."""

from typing import Annotated, Literal

from pydantic import model_validator

from components.core.config import Added
from components.objectives.config import check_has_gap
from components.objectives.examples.config import MaskedInputs


class MaskedLM(MaskedInputs):
    """Masked language modelling, with or without a question about pairs of segments (Devlin et al. 2019, section 3.1)."""

    samples_title = "likeliest fillings of [MASK]"

    name: Literal["mlm"]
    next_sentence: bool = True
    """Whether the model predicts for each pair of segments if B followed A."""
    sentence_order: Annotated[bool, Added(neutral=False)] = False
    """Whether the model predicts for each pair of consecutive segments if they were exchanged (ALBERT, Lan et al. 2020, section 3.1)."""
    span_boundary: Annotated[bool, Added(neutral=False)] = False
    """Whether each token of a span is also predicted from the two tokens around it (SpanBERT, Joshi et al. 2020, section 3.2)."""

    @property
    def question(self) -> Literal["nsp", "sop"] | None:
        return "nsp" if self.next_sentence else "sop" if self.sentence_order else None

    @model_validator(mode="after")
    def one_question(self):
        if self.next_sentence and self.sentence_order:
            raise ValueError("sentence_order and next_sentence can't both be true; set next_sentence: false")
        if self.span_boundary and not self.span_probability:
            raise ValueError("span_boundary needs spans: set span_probability, e.g. 0.2 as in SpanBERT")
        return self

    def check_prompt(self, prompt: str) -> None:
        check_has_gap(prompt)


Objective = MaskedLM
