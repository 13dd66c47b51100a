"""ReCoRD (Zhang et al. 2018): which of a passage's entities fills the gap in the query."""

import re
from collections.abc import Iterator

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import Examples
from components.text.sources import tables
from components.text.sources.tables import text, value

GAP = "@placeholder"


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the passage as text_a and as the group. The choices are the entities' texts, each read as the query with the gap filled.

    Entities with the same text are one choice. Raise SesameError with the place of a query without a gap, an entity outside its
    passage, or an answer that is no entity.
    """
    for place, row in tables.records(source):
        for passage, entities, query, answers, number in _queries(place, row):
            if GAP not in query:
                raise SesameError(f"{place}: no {GAP} in the query {query[:60]!r}")
            choices = {entity: query.replace(GAP, entity).strip() for entity in entities}
            label = list(dict.fromkeys(answers)) if labelled else None
            if labelled and (not label or set(label) - choices.keys()):
                raise SesameError(f"{place}: the answer {', '.join(label) or '(none)'} is not among the entities ({', '.join(choices)})")
            # "@highlight" precedes each bullet point of the article's summary, and a full stop may be missing before it
            prose = re.sub(r"\n@highlight\n", ". ", re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", passage))
            yield place, passage, Example(number, prose.strip(), None, label, choices=choices)


def _queries(place: str, row: tables.Row) -> Iterator[tuple[str, list[str], str, list[str], str]]:
    """Yield `(passage, entities, query, answers, id)` of a published line (a passage) or a row of the hub (a query)."""
    passage = value(place, row, "passage")
    if isinstance(passage, str):
        number = text(place, value(place, row, "idx"), "query")
        yield passage, value(place, row, "entities"), text(place, row, "query"), value(place, row, "answers"), number
        return
    body, entities = text(place, passage, "text"), []
    for span in value(place, passage, "entities"):
        first, last = value(place, span, "start"), value(place, span, "end")  # the last character, not the one after
        if not 0 <= first <= last < len(body):
            raise SesameError(f"{place}: the entity at {first} to {last} is outside its passage of {len(body)} characters")
        entities.append(body[first : last + 1])
    for query in value(place, row, "qas"):
        answers = [text(place, answer, "text") for answer in query.get("answers") or []]
        yield body, entities, text(place, query, "query"), answers, text(place, query, "idx")
