"""Settings of bits per byte."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from components.evaluations.config import EvaluationBlock


class BitsPerByte(EvaluationBlock):
    """Minus the log-probability of held-out sentences, each on its own, divided by the bytes of their text: from left to right
    by the chain rule, for a masked model the pseudo-log-likelihood (Salazar et al. 2020; Kauf and Ivanova 2023). Models
    with different vocabularies and sequence lengths are comparable. The two rules are not: a pseudo-log-likelihood sees both
    sides of each word, and is not the probability of a text. Nor are lower-cased text and text with its capitals."""

    within_one_rule: ClassVar[bool] = True

    kind: Literal["bits_per_byte"]
    sentences: Annotated[int, Field(ge=2, le=10**15)] = 500
    """Number of sentences drawn with a fixed seed from the corpus' test split, without those that the training text
    has. A masked model reads each once per token."""


Evaluation = BitsPerByte
