"""WiC (Pilehvar and Camacho-Collados 2019): has a word the same sense in two sentences."""

from components import params
from components.core.errors import SesameError
from components.tasks import Example
from components.tasks.readers.fields import TRUTH, Examples, label_name, mark
from components.text.sources import tables
from components.text.sources.tables import text, value


def read(task: params.Task, source: params.Source, split: str, labelled: bool) -> Examples:
    """Yield the sentences as text_a and text_b, with the inflected word between asterisks; the word is the group.

    Raise SesameError with the place of a word outside its sentence or an unknown label.
    """
    for place, row in tables.records(source):
        texts, spans = {}, []
        for field, n in (("text_a", "1"), ("text_b", "2")):
            sentence, start, end = text(place, row, f"sentence{n}"), value(place, row, f"start{n}"), value(place, row, f"end{n}")
            if not 0 <= start < end <= len(sentence):
                raise SesameError(f"{place}: the word at {start} to {end} is outside sentence{n} of {len(sentence)} characters")
            texts[field], marked = mark(sentence, [(start, end, "*")])
            spans += [(field, *span) for span in marked]
        label = label_name(place, row, TRUTH) if labelled else None
        yield place, text(place, row, "word"), Example(text(place, row, "idx"), texts["text_a"], texts["text_b"], label, spans=spans)
