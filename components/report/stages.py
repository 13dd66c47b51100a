"""The stage `report`."""

from collections.abc import Iterator

from components import params
from components.params import Params
from components.stages.declaration import Entry, Stage


def report(p: Params) -> Iterator[Entry]:
    sections = {key: value for key, value in p.settings().items() if key not in params.OF_STUDIES}
    for section in params.SHARED:
        sections[section] = {name: block for name, block in sections[section].items() if name not in p.of_studies(section)}
    studies = {name: study.question for name, study in p.studies.items()}  # which the page links to
    labels = {
        section: {name: [block.licence, getattr(block, "note", None)] for name, block in getattr(p, section).items()}
        for section in ("corpora", "tasks", "checkpoints", "published_vectors")
    }
    yield Entry("report", "all", ("components.report.__main__",), sections | {"studies": studies, "labels": labels})


STAGES = (Stage("report", report, "report"),)
