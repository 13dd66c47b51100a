"""Settings of suites of regions."""

from typing import Literal

from components.evaluations.config import EvaluationBlock, Files


class Regions(EvaluationBlock):
    """Items that are one sentence in several conditions, split into regions, and predictions about the surprisal of regions:
    `(6;%mismatch%) > (6;%match%)`. An item is right where its prediction holds. For a masked model the surprisal is that of
    a pseudo-log-likelihood, for which the suites were not designed."""

    kind: Literal["regions"]
    source: Files
    """SyntaxGym's files: JSON, one suite each, or an object with several by name."""


Evaluation = Regions
