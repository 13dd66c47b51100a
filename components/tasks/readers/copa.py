"""COPA (Roemmele et al. 2011): which of two choices is the cause or the effect of a premise."""

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import Examples, label_name
from components.text.sources import tables
from components.text.sources.tables import text

QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
RIGHT = {"0": "0", "1": "1", "choice1": "0", "choice2": "1"}
"""The correct choice in the published files and on the hub -> its name."""


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the premise and its question as text_a; the premise is the group. Raise SesameError for an unknown question or label."""
    for place, row in tables.records(source):
        premise, question = text(place, row, "premise").strip(), text(place, row, "question")
        if question not in QUESTIONS:
            raise SesameError(f"{place}: question {question!r} (allowed: {', '.join(QUESTIONS)})")
        label = [label_name(place, row, RIGHT)] if labelled else None
        choices = {"0": text(place, row, "choice1").strip(), "1": text(place, row, "choice2").strip()}
        yield place, premise, Example(text(place, row, "idx"), f"{premise} {QUESTIONS[question]}", None, label, choices=choices)
