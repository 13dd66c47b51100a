"""MultiRC (Khashabi et al. 2018): is this answer to this question about a passage correct; several may be."""

from collections.abc import Iterator

from components import params
from components.tasks import Example
from components.tasks.readers.fields import TRUTH, Examples, label_name
from components.text.sources import tables
from components.text.sources.tables import text, value


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the passage as text_a, question and answer as text_b. Metrics evaluate the answers to one question together.

    Raise SesameError with the place of an unknown label or a missing field.
    """
    for place, row in tables.records(source):
        for passage, question, answer, (passage_id, question_id, answer_id) in _answers(place, row):
            label = label_name(place, answer, TRUTH) if labelled else None
            group = f"{passage_id}-{question_id}"
            pair = passage.strip(), f"{question} {answer['text']}".strip()
            # splits are by passage, not by question, or its text would be in both
            yield place, passage_id, Example(f"{group}-{answer_id}", *pair, label, group=group)


def _answers(place: str, row: tables.Row) -> Iterator[tuple[str, str, tables.Row, tuple[str, str, str]]]:
    """Yield `(passage, question, {"text", "label"}, the three ids)` of a published line (a passage) or a row of the hub (an answer)."""
    if "paragraph" in row:
        ids = value(place, row, "idx")
        answer = {"text": text(place, row, "answer")} | {key: row[key] for key in ("label",) if key in row}
        numbers = tuple(text(place, ids, key) for key in ("paragraph", "question", "answer"))
        yield text(place, row, "paragraph"), text(place, row, "question"), answer, numbers
        return
    passage = value(place, row, "passage")
    for question in value(place, passage, "questions"):
        for answer in value(place, question, "answers"):
            numbers = (text(place, row, "idx"), text(place, question, "idx"), text(place, answer, "idx"))
            yield text(place, passage, "text"), text(place, question, "question"), answer | {"text": text(place, answer, "text")}, numbers
