"""The results of a build, printed at its end: the figures of its stages, then the page that shows them."""

from collections.abc import Sequence
from pathlib import Path

from components.core import storage
from components.finetune.stages import scores_table, spread
from components.stages import registry
from components.stages.declaration import Table
from components.stages.outputs import read_json, rows
from components.studies.folders import REPORTS
from pipelines import studies, terminal
from pipelines.execution import graph, staleness

REPORT = Path("data/report")
SEARCH = Path("data/search")
Metrics = dict[tuple[str, str], dict]
"""(stage, name) -> the metrics that it wrote."""


def show(plan: Sequence[graph.Stage], targets: Sequence[str]) -> None:
    """The figures of the stages that were asked for; without targets, and for the report alone, its table of scores.

    When the report was not built, say that the one on disk is older.
    """
    selection = [one for one in plan if not targets or graph.selects(targets, one.name)]
    names = [one.name for one in selection]
    if names == ["report"] or ("report" in names and not targets):
        _report()
        return
    for name in [name.removeprefix("study@") for name in names if name.startswith("study@")]:
        studies.show(name)
        terminal.say(f"report   {REPORTS / name}.html")
    files = {tuple(name.split("@", 1)): storage.metrics_path(*name.split("@", 1)) for name in names if "@" in name}
    metrics = {key: read_json(path) for key, path in files.items() if path.exists()}
    printed = _tables(metrics)
    if "report" in names:
        terminal.say(f"report   {REPORT / 'index.html'}")
    elif printed and (REPORT / "index.html").exists():
        waits = staleness.stale(["report"])
        terminal.say(f"report   {'does not show these figures yet: `sesame run report` updates it' if waits else REPORT / 'index.html'}")
    if "budget" in names or any(name.startswith("search@") for name in names):
        _search("budget" in names)
    if "efficiency" in names:
        _efficiency()
    for page, stem in (("seed_grid", "seeds"), ("tickets_page", "tickets")):
        if page in names:
            terminal.say(f"report   {REPORT / stem}.html")


def _report() -> None:
    path = REPORT / "scores.csv"
    if path.exists():
        _say(scores_table(rows(path)))
    terminal.say(f"report   {REPORT / 'index.html'}")


def _tables(metrics: Metrics) -> bool:
    """What each kind of stage shows of itself; whether there was any."""
    tables = {stage.table: None for stage in registry.stages().values() if stage.table}
    of = {table: {stage.name for stage in registry.stages().values() if stage.table is table} for table in tables}
    shown = [table({key: measured for key, measured in metrics.items() if key[0] in of[table]}) for table in tables]
    for table in shown:
        if table.rows:
            _say(table)
    return any(table.rows for table in shown)


def _say(table: Table) -> None:
    terminal.say("")
    terminal.table(table.columns, table.rows)


def _efficiency() -> None:
    cells = [
        [row["task"], row["point"], spread(row["score"], row["std"], row["n"]), row["difference"], row["verdict"],
         *(f"{float(row[key]):.2f}" for key in ("ms", "ms_ratio", "ms_together_ratio", "mflops", "mib"))]
        for row in rows(REPORT / "efficiency.csv")
    ]  # fmt: skip
    terminal.say("")
    columns = ["task", "point", "score", "minus baseline", "verdict", "ms", "× baseline", "× baseline, 32", "MFLOPs", "MiB"]
    terminal.table(columns, cells)
    terminal.say(f"report   {REPORT / 'efficiency.html'}")


def _search(page: bool) -> None:
    cells = []
    for path in sorted((SEARCH / "trials").glob("*/*/*.json")):
        metrics = read_json(path)
        best = metrics["best"] or {"score": None, "drawn": {}}
        drawn = ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in best["drawn"].items())
        score = "–" if best["score"] is None else f"{best['score']:.3f}"
        cells.append([
            metrics["model"], metrics["init"], metrics["task"], metrics["metric"], score, f"{metrics['trials']}",
            f"{metrics['cost']['seconds']:.0f}", drawn,
        ])  # fmt: skip
    terminal.say("")
    terminal.table(["model", "start", "task", "metric", "best on dev", "trials", "seconds", "drawn"], cells)
    terminal.say(
        f"report   {SEARCH / 'index.html'}" if page else ("report   is not up to date: `sesame run budget` updates it")
    )
