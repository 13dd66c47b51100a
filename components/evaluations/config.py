"""What all evaluations have in common."""

from typing import Annotated

from components.core.config import Block, Label, Name


class EvaluationBlock(Block):
    """What models are asked without being tuned."""

    corpus: Name
    """Of `corpora` or `mixes`: the text that the models read. Its training part says what n-grams know, its held-out
    parts are asked about."""
    licence: Annotated[str | None, Label()] = None
    """Of what is fetched."""
