"""What each stage is made of: its settings with all defaults, and a fingerprint of the code that it runs (`python -m components.resolve`).

DVC watches `data/resolved.json`, an entry a stage, in place of folders of code and of `params.yaml` itself. So a stage is stale when,
and only when, a setting that it uses (written or by default), a module that it imports, or a file that it reads has changed: a new
family, objective, reader, method or page makes nothing stale, and neither do comments, docstrings and where a training runs.
`entries` says which stage uses what, and is the one place where that is written; `closure` finds the modules behind it.
A resumed training or search is keyed by the same entry.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from components.params import Params, begun_by, members, read_by, trained_by
from components.resolve.closure import forget
from components.resolve.entries import Entry, entries, entry, of_studies
from components.stage import output

FILE = Path("data/resolved.json")
STUDIES = Path("studies/resolved.json")
"""The same for the stages of `studies/dvc.yaml`."""
TRAININGS = Path("studies/trainings.json")
"""What `studies/dvc.yaml` makes stages of: a seed of a variant each, and what only studies read."""
FILES = (FILE, STUDIES, TRAININGS)

__all__ = ["FILE", "FILES", "STUDIES", "TRAININGS", "Entry", "contents", "entries", "entry", "refresh"]


def points(params: Params) -> dict[str, dict]:
    """The points of `efficiency` on its tasks: those that have no teacher, and those whose teacher's comes first."""
    made = {"points": {}, "taught": {}}
    for name, (label, task) in params.efficiency.runs.items():
        point = params.efficiency.points[label]
        read = {"point": label, "task": task, "model": point.model}
        if point.teacher is None:
            made["points"][name] = read
        else:
            made["taught"][name] = read | {"teacher": point.teacher}
    return made


def _parts_of(runs: Mapping[str, tuple], last: str) -> dict[str, dict]:
    """What DVC makes stages of, of names that stand for a model, a task and one thing more."""
    return {name: {"model": model, "task": task, last: own} for name, (model, task, own) in runs.items()}


def contents(params: Params) -> dict[Path, str]:
    """What the files should hold."""
    stages: dict[Path, dict[str, dict]] = {FILE: {}, STUDIES: {}}
    for own in entries(params):
        path = STUDIES if of_studies(params, own) else FILE
        stages[path].setdefault(own.stage, {})[own.name] = {"code": own.code, "settings": own.settings}
    trainings, further, intermediate, tunings = {}, {}, {}, {}
    for member in members(params.ablations):
        study = params.ablations[member.study]
        read = {**member._asdict(), "encoding": read_by(params.models, study, member.variant)}
        if study.variants[member.variant].start is None:
            trainings[member.name] = read
        elif study.variants[member.variant].by:
            intermediate[member.name] = {**member._asdict(), "start": begun_by(study, member.variant)}
        elif not study.variants[member.variant].only_tuned:
            further[member.name] = read | {"start": begun_by(study, member.variant)}
        tunings[member.name] = {**member._asdict(), "weights": trained_by(study, member.variant)}
    # what DVC makes stages of, by other names than the sections: it has read those of both files
    made = {
        "trainings": trainings,
        "further": further,
        "intermediate": intermediate,
        "tunings": tunings,
        "study_tokenizers": {name: {"corpus": params.tokenizers[name].corpus} for name in sorted(params.of_studies("tokenizers"))},
        "study_encodings": {name: params.encodings[name].settings() for name in sorted(params.of_studies("encodings"))},
        "study_models": {name: {"encoding": params.models[name].encoding} for name in sorted(params.of_studies("models"))},
        "study_derived": {
            name: {"start": params.derived[name].start, "on": params.derived[name].on} for name in sorted(params.of_studies("derived"))
        },
        "searches": _parts_of(params.search.runs, "init"),
        "seed_rows": _parts_of(params.seed_grid.runs, "seed"),
        "ticket_runs": _parts_of(params.tickets.runs, "seed"),
        **points(params),
    }
    files = {**stages, TRAININGS: made}
    return {path: json.dumps(value, indent=1, ensure_ascii=False) + "\n" for path, value in files.items()}


def refresh(params: Params) -> list[Path]:
    """Bring the files up to date with params and code; those that were not."""
    forget()  # a process that serves flows outlives many an edit
    stale = [(path, text) for path, text in contents(params).items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        with output(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [path for path, _ in stale]
