"""Settings of suites of regions."""

from typing import Literal

from components.evaluations.config import EvaluationBlock, Files


class Regions(EvaluationBlock):
    """Items that are one sentence in several conditions, cut into regions, and predictions about the surprisal of regions:
    `(6;%mismatch%) > (6;%match%)`. An item is right where its prediction holds. Of a masked model the surprisal is that of
    a pseudo-log-likelihood, which the suites were not made for."""

    kind: Literal["regions"]
    source: Files
    """SyntaxGym's files: JSON, a suite each, or one object with several by name."""


Evaluation = Regions
