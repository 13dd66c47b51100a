"""Whether a model was asked enough for a score to have an error."""

import numpy as np

from components.core.errors import SesameError
from components.evaluations.contract import Answers

FEWEST = 2
"""Items, or clusters of them, of which an error can be estimated."""
COUNTED = ("pairs", "items", "sentences", "test_sentences")
"""What the figures of a prepared evaluation call its items."""


def prepared(figures: dict) -> dict:
    """The figures of a prepared evaluation. Raises SesameError where it has too few items for any model."""
    counted = next(key for key in COUNTED if key in figures)
    if figures[counted] < FEWEST:
        said = f"{counted.replace('_', ' ')}: {figures[counted]}, and the error of a score needs {FEWEST} or more"
        raise SesameError(f"{said}; give more of them")
    return figures


def answered(answers: Answers, name: str) -> Answers:
    """The answers of a model. Raises SesameError where too few items could be put to it."""
    clusters = np.arange(len(answers.values)) if answers.clusters is None else np.asarray(answers.clusters)
    there = len(np.unique(clusters[np.isfinite(answers.values)]))
    if there < FEWEST:
        what = "items" if answers.clusters is None else "sentences"
        raise SesameError(
            f"{name} can be asked {there} of {len(np.unique(clusters))} {what}, and the error of a score needs {FEWEST} or more; "
            "give more of them, or such that are no longer than it reads"
        )
    return answers
