"""Output of `sesame study`, `sesame runs` and `sesame champion`, from the files that stages wrote and from MLflow."""

import shutil
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from components import params
from components.core import storage, tracking
from components.core.errors import SesameError
from components.params import LOSS
from components.stages.outputs import read_json, rows
from components.studies import folders
from components.studies.folders import RATES, REPORTS
from pipelines import terminal

BUDGET = ("parameters", "tokens", "steps", "flops", "seconds")
SPENT = ("tokens", "flops", "seconds")
"""The columns of a budget that a terminal has room for."""
COMPARED = ("perplexity", "bits_per_byte")


def listed() -> list[list[str]]:
    """(study, variants, question) of each."""
    return [[name, str(len(block.variants)), block.question] for name, block in params.load().studies.items()]


def _declared(name: str) -> params.Study:
    studies = params.load().studies
    if name not in studies:
        raise SesameError(f"no study {name!r} in {params.STUDY_FOLDER} (there are: {', '.join(studies) or 'none'})")
    return studies[name]


def power(name: str) -> str:
    """The smallest differences that a study can show, in a line."""
    from components.studies.power import sentence

    return sentence(name, _declared(name))


def clear_removed(name: str) -> None:
    """Remove what variants and seeds have left that the params no longer have:
    DVC would still see it beside the others. Its cache keeps it."""
    block = _declared(name)
    known, rates = {str(seed) for seed in block.seeds}, set()
    for trial in params.rate_trials({name: block}):
        known.add(RATES)
        rates |= {folders.rate_trials(name, trial.variant) / f"{trial.label}.json", folders.chosen_rate(name, trial.variant)}
    storage.STATE.mkdir(exist_ok=True)
    with suppress(Timeout), FileLock(storage.STATE / "flow.lock").acquire(timeout=0):  # a flow at work may be reading them
        for root in (Path("data/variants", name), Path("data/studies", name)):
            for folder in root.glob("*"):
                if folder.is_dir() and folder.name not in block.variants:
                    shutil.rmtree(folder)
            for folder in root.glob("*/*"):
                if folder.is_dir() and folder.name not in known:
                    shutil.rmtree(folder)
        for pattern in (f"*/{RATES}/*", "*/rate.json"):
            for file in Path("data/variants", name).glob(pattern):
                if file not in rates:
                    file.unlink()


def show(name: str) -> None:
    """The table of a study in the terminal, and its reading."""
    path, block = REPORTS / f"{name}.csv", _declared(name)
    if not path.exists():
        return
    table = rows(path)
    spent = ["parameters", *SPENT] if len({row["parameters"] for row in table}) > 1 else SPENT
    names = ["variant", "milestone"] if block.milestones else ["variant"]
    columns = [*names, *spent]
    shown = [[*(row[key] for key in names), *(_short(row[key]) for key in spent)] for row in table]
    for measure in (LOSS, *block.measures):
        columns += [f"{measure} ± std", f"minus {block.base}"]
        for row, cells in zip(table, shown, strict=True):
            cells.append(f"{_short(row[measure])} ± {_short(row[f'{measure}_std'])}")
            difference, low, high = (row.get(f"{measure}_{key}") for key in ("difference", "low", "high"))
            cells.append(f"{float(difference):+.3f} [{float(low):+.3f}, {float(high):+.3f}]" if difference and low and high else "")
    terminal.say("")
    terminal.table(columns, shown, f"{name}: {block.question} ({len(block.seeds)} seeds)")
    terminal.say(read_json(REPORTS / f"{name}.json")["reading"], "bold")


def _short(text: str | float | None) -> str:
    if text in (None, ""):
        return "\u2013"
    value = float(text)
    if value.is_integer() and abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e7 else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def tunings(last: int) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the newest fine-tunings in the ledger, each with its scores on test, or on dev where that is what is judged."""
    columns = ["model", "task", "method", "init", "seed", "recipe", "scores", "seconds", "experiment", "commit"]
    found, experiments = [], {"": ""}
    for run in _search("tags.task != '' and tags.seed != ''", last):
        tags, metrics = run.data.tags, run.data.metrics
        judged = "test." if any(key.startswith("test.") for key in metrics) else "dev."
        scores = " ".join(f"{key} {value:.3f}" for key, value in sorted(metrics.items()) if key.startswith(judged))
        flow = tags.get(tracking.FLOW, "")
        if flow not in experiments:
            experiments[flow] = tracking.client().get_run(flow).data.tags.get("experiment", "")
        about = [*(tags.get(key, "") for key in columns[:6]), scores]
        found.append([*about, f"{metrics.get('seconds', 0):.1f}", experiments[flow], tags.get("git_commit", "")[:8]])
    return columns, found


def recorded(name: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what the ledger has of a study: the variants and seeds of its newest run."""
    columns = [*BUDGET, *COMPARED, *_declared(name).measures]
    parents = _search(f"tags.stage = 'study' and tags.name = '{name}' and attributes.status = 'FINISHED'", 1)
    if not parents:
        raise SesameError(f"MLflow has no finished run of study {name}; run `sesame study {name}`")
    runs = _search(f"tags.mlflow.parentRunId = '{parents[0].info.run_id}'", 1000)
    return ["variant", "seed", *columns], [
        [run.data.tags["variant"], run.data.tags["seed"], *(_short(run.data.metrics.get(key)) for key in columns)] for run in reversed(runs)
    ]


def _search(wanted: str, last: int) -> list:
    """Runs in MLflow, the newest first. Raises SesameError if MLflow can't be read."""
    try:
        client = tracking.client()
        return client.search_runs([client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id], wanted, max_results=last)
    except Exception as error:  # whatever the ledger's client raises
        raise SesameError(tracking.unusable(error)) from None


def champion(name: str) -> str:
    """Register the best model of a study; a line that says which. The choice is made on dev, over variants and seeds."""
    block = _declared(name)
    if not block.tasks:
        raise SesameError(f"study {name} has no tasks, and a champion is chosen by its scores on their dev splits")

    from components.studies import champion as champions  # which takes seconds
    from pipelines.execution import staleness

    if staleness.stale([f"study@{name}"]):
        raise SesameError(f"study {name} was not run with the current params and code; run `sesame study {name}` first")
    chosen = champions.best(params.load(), name)
    version = champions.register(name, chosen)
    equals = f"; as good are {chosen.equals} others of the study, of which it is the first" if chosen.equals else ""
    return (
        f"{champions.registered_name(name)} version {version}, alias champion: {chosen.variant}, seed {chosen.seed}, "
        f"dev mean {chosen.score:.3f} over {', '.join(block.tasks)}{equals}"
    )
