"""Settings of sentence probes."""

from typing import Literal

from components.core.config import Count, TaskName
from components.evaluations.config import EvaluationBlock


class SentenceProbe(EvaluationBlock):
    """A task read from each layer of a frozen model: a linear model of the mean vector of a text, or of
    [u, v, |u - v|, u * v] for a pair (Conneau and Kiela 2018). A fifth of the training examples selects the layer and
    the penalty."""

    kind: Literal["sentence_probe"]
    task: TaskName
    """Of `tasks`: a classification or a regression."""
    train_examples: Count = 2_000
    """Number of training examples, drawn with a fixed seed."""
    split: Literal["dev", "test"] = "test"
    """Where it is scored; it needs labels."""
    test_examples: Count = 2_000
    """Number of examples of that split, drawn with a fixed seed."""


Evaluation = SentenceProbe
