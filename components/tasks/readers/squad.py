"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): the span of the context that answers the question, if any does."""

from collections.abc import Iterator

from components import params
from components.core.errors import SesameError
from components.params.tasks import NO_ANSWER
from components.tasks import Example
from components.tasks.readers.fields import Examples
from components.text import sources
from components.text.sources import tables
from components.text.sources.tables import text, value


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the question as text_a, the context as text_b and group, and the spans of the answers; a question without an answer
    has the label "" and no spans.

    Raise SesameError with the place of an answer that is not at its position, or of a question without an answer in a task
    that has none of these.
    """
    for place, row, context, answers in _questions(source):
        number = text(place, row, "id")
        place = f"{place}: question {number}"
        spans = {}  # without duplicates, in their order
        for answer, first in answers if labelled else ():
            if context[first : first + len(answer)] != answer or not answer or first < 0:
                raise SesameError(f"{place}: the answer {answer!r} is not at character {first} of its context")
            spans["text_b", first, first + len(answer)] = answer
        if labelled and not spans and not task.unanswerable:
            raise SesameError(f"{place}: no answer; with `unanswerable: true` the task has questions without one, as SQuAD 2.0 has")
        label = (list(dict.fromkeys(spans.values())) or [NO_ANSWER]) if labelled else None
        yield place, context, Example(number, text(place, row, "question").strip(), context, label, spans=list(spans) or None)


def _questions(source: params.Source) -> Iterator[tuple[str, tables.Row, str, list[tuple[str, int]]]]:
    """Yield `(place, row, context, (answer, first character)...)` from SQuAD's JSON object or from rows of the hub."""
    if sources.brings_rows(source.kind):
        for place, row in tables.records(source):
            answers = value(place, row, "answers")
            yield place, row, text(place, row, "context"), list(zip(answers["text"], answers["answer_start"], strict=True))
        return
    for file in sources.open_files(source):
        with file.open() as stream:
            published = tables.parsed(file.name, stream.read())
        for article in value(file.name, published, "data"):
            for paragraph in value(file.name, article, "paragraphs"):
                context = text(file.name, paragraph, "context")
                for row in value(file.name, paragraph, "qas"):
                    answers = [(text(file.name, one, "text"), value(file.name, one, "answer_start")) for one in row.get("answers") or []]
                    yield file.name, row, context, answers
