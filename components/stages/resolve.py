"""What each stage is made of: its settings with all defaults, and a fingerprint of the code that it runs (`python -m
components.stages.resolve`).

DVC watches `data/resolved/<stage>/<name>.json`, a file a stage, in place of folders of code and of `params.yaml` itself. So a stage is
stale when, and only when, a setting that it uses (written or by default), a module that it imports, or a file that it reads has changed:
a new family, objective, reader, method or page makes nothing stale, and neither do comments, docstrings and where a training runs.
Which stage uses what is in its declaration (`components.stages.declaration`); `closure` finds the modules behind it.
A resumed training or search is keyed by the same entry.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.core.storage import output
from components.params import Params, begun_by, members, rate_trials, read_by, trained_by, tries_rates
from components.stages import leftovers
from components.stages.closure import forget
from components.stages.registry import entries

FOLDER = Path("data/resolved")
"""An entry a file. DVC's cache keeps it, as all that stages read."""
TRAININGS = Path("studies/trainings.json")
"""What `studies/dvc.yaml` makes stages of: a seed of a variant each, and what only studies read. DVC reads it with that file, before any
stage runs, so it is in git."""


def file_of(stage: str, name: str) -> Path:
    """Where the entry of a stage is."""
    return FOLDER / stage / f"{name}.json"


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
    return {name: {"model": model, "task": task, last: part} for name, (model, task, part) in runs.items()}


def contents(params: Params) -> dict[Path, str]:
    """What the files should hold."""
    files = {file_of(each.stage, each.name): {"code": each.code, "settings": each.settings} for each in entries(params)}
    trainings, at_rate, further, intermediate, tunings = {}, {}, {}, {}, {}
    for member in members(params.studies):
        study = params.studies[member.study]
        read = {**member._asdict(), "encoding": read_by(params.models, study, member.variant)}
        if study.variants[member.variant].start is None:
            (at_rate if tries_rates(study, member.variant) else trainings)[member.name] = read
        elif study.variants[member.variant].by:
            intermediate[member.name] = {**member._asdict(), "start": begun_by(study, member.variant)}
        elif not study.variants[member.variant].only_tuned:
            further[member.name] = read | {"start": begun_by(study, member.variant)}
        tunings[member.name] = {**member._asdict(), "weights": trained_by(study, member.variant)}
    trials = list(rate_trials(params.studies))
    # what DVC makes stages of, by other names than the sections: it has read those of both files
    made = {
        "studies": {name: {} for name in sorted(params.studies)},
        "trainings": trainings,
        "rate_trials": {
            trial.name: {
                "study": trial.study, "variant": trial.variant, "factor": trial.label,
                "encoding": read_by(params.models, params.studies[trial.study], trial.variant),
            } for trial in trials
        },
        "rates": {f"{trial.study}-{trial.variant}": {"study": trial.study, "variant": trial.variant} for trial in trials},
        "at_rate": at_rate,
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
    files[TRAININGS] = made
    written = {path: json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n" for path, value in files.items()}
    # DVC refuses a dependency that is not there, as data/align where no alignment is declared
    return written | {Path("data", folder, ".keep"): "" for folder in leftovers.READ_AS_A_WHOLE}


def refresh(params: Params) -> list[Path]:
    """Bring the files up to date with params and code; those that changed."""
    forget()  # a process that serves flows outlives many an edit
    wanted = contents(params)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        with output(path) as temporary:
            temporary.write_text(wanted[path], encoding="utf-8")
    # an entry of what is declared no more would make the folder another one on each machine
    gone = [path for path in FOLDER.glob("*/*.json") if path not in wanted]
    for path in gone:
        path.unlink()
    return stale + gone


def main() -> None:
    try:
        all_params = params.load()
        if changed := refresh(all_params):
            print(f"resolve: {', '.join(map(str, changed[:5]))}{' ...' * (len(changed) > 5)} ({len(changed):,} files written or removed)")
        leftovers.remove(all_params)
    except SesameError as error:
        print(f"resolve: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
