"""Settings of bits per byte."""

from typing import Annotated, Literal

from pydantic import Field

from components.evaluations.config import EvaluationBlock


class BitsPerByte(EvaluationBlock):
    """Minus the log-probability of held-out sentences, each by itself, over the bytes of their text: left to right the
    chain rule's, of a masked model the pseudo-log-likelihood's (Salazar et al. 2020; Kauf and Ivanova 2023). So models
    of other tokenizers and lengths of rows compare. The two rules do not: a pseudo-log-likelihood sees both sides of
    each word, and its sum is no probability of a text."""

    kind: Literal["bits_per_byte"]
    sentences: Annotated[int, Field(ge=2, le=10**15)] = 500
    """Of the corpus' test text, drawn, the same ones each time. A masked model reads each as often as it has tokens."""


Evaluation = BitsPerByte
