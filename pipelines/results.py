"""What a build has made, shown at its end: its own figures, then the page that has them."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from components.core import storage
from components.studies.folders import REPORTS
from pipelines import studies, terminal
from pipelines.execution import graph

REPORT = Path("data/report")
SEARCH = Path("data/search")
Metrics = dict[tuple[str, str], dict]
"""(stage, name) -> the metrics that it wrote."""


def show(plan: Sequence[graph.Stage], targets: Sequence[str]) -> None:
    """The figures of the stages that were asked for; without targets, the report's table.

    Without the report no page has them but the ledger's, and the report that lies there is of an earlier run: both are said.
    """
    made = [one for one in plan if not targets or graph.selects(targets, one.name)]
    names = [one.name for one in made]
    if "report" in names:
        _report()
        return
    for name in [name.removeprefix("study@") for name in names if name.startswith("study@")]:
        studies.show(name)
        terminal.say(f"report   {REPORTS / name}.html")
    files = {tuple(name.split("@", 1)): storage.metrics_path(*name.split("@", 1)) for name in names if "@" in name}
    metrics = {key: storage.read_json(path) for key, path in files.items() if path.exists()}
    shown = [table(metrics) for table in TABLES]
    if any(shown) and (REPORT / "index.html").exists():
        terminal.say("report   not among what was built, so without these figures: `sesame run report`")
    if "budget" in names or any(name.startswith("search@") for name in names):
        _search("budget" in names)
    if "efficiency" in names:
        _efficiency()
    for page, own in (("seed_grid", "seeds"), ("tickets_page", "tickets")):
        if page in names:
            terminal.say(f"report   {REPORT / own}.html")


def _report() -> None:
    path = REPORT / "scores.csv"
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            _scores_table(list(csv.DictReader(file)))
    terminal.say(f"report   {REPORT / 'index.html'}")


def _scores_table(rows: Sequence[dict]) -> None:
    about = ("model", "task", "method", "init", "metric")
    cells = [[*(str(row[key] or "") for key in about), spread(row["mean"], row["std"], row["n"])] for row in rows]
    terminal.say("")
    terminal.table(["model", "task", "method", "init", "metric", "mean ± std (n)"], cells)


def spread(mean: float | str | None, std: float | str | None, n: float | str) -> str:
    """`0.512 ± 0.010 (3)`; what is undefined is left out."""
    known = [f"{float(figure):.3f}" for figure in (mean, std) if figure not in ("", None) and float(figure) == float(figure)]
    return f"{' ± '.join(known)} ({int(float(n))})"


def _scores(metrics: Metrics) -> bool:
    from components.report import tables

    rows = tables.scores(metrics).to_dict("records")
    if rows:
        _scores_table(rows)
    return bool(rows)


def _pretraining(metrics: Metrics) -> bool:
    rows = [
        [name, f"{measured['parameters']:,}", f"{measured['tokens']:,}", f"{measured['loss']:.3f}", f"{measured['perplexity']:.1f}",
         f"{measured['bits_per_byte']:.3f}", f"{measured['cost']['seconds']:.0f}"]
        for (group, name), measured in metrics.items() if group == "pretrain" or (group == "derive" and "loss" in measured)
    ]  # fmt: skip
    if rows:
        terminal.say("")
        terminal.table(["model", "parameters", "tokens", "loss", "perplexity", "bits/byte", "seconds"], rows)
    return bool(rows)


def _alignment(metrics: Metrics) -> bool:
    rows = [
        [name, method, retrieval, *(f"{figures[f'p{k}']:.3f}" for k in (1, 5, 10)), f"{measured['coverage']:.3f}"]
        for (group, name), measured in metrics.items() if group == "align"
        for method, by in measured["methods"].items()
        for retrieval, figures in by.items() if isinstance(figures, dict) and "p1" in figures  # of costs and of what moved there is none
    ]  # fmt: skip
    if rows:
        terminal.say("")
        terminal.table(["pair", "method", "retrieval", "P@1", "P@5", "P@10", "coverage"], rows)
    return bool(rows)


def _texts(metrics: Metrics) -> bool:
    rows = [
        [name, f"{measured['texts']:,}", *(f"{measured[key]:.1f}" if key in measured else "–" for key in ("bleu", "chrf")),
         "–" if "word_by_word" not in measured else f"{measured['word_by_word']['bleu']:.1f}", f"{measured['tokens_per_second']:,.0f}"]
        for (group, name), measured in metrics.items() if group == "generate"
    ]  # fmt: skip
    if rows:
        terminal.say("")
        terminal.table(["texts of", "texts", "BLEU", "chrF", "word by word", "tokens/s"], rows)
    return bool(rows)


TABLES: tuple[Callable[[Metrics], bool], ...] = (_pretraining, _alignment, _texts, _scores)
"""Each shows what it knows of, and says whether there was any."""


def _efficiency() -> None:
    with (REPORT / "efficiency.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = [
        [row["task"], row["point"], spread(row["score"], row["std"], row["n"]), row["difference"], row["verdict"],
         *(f"{float(row[key]):.2f}" for key in ("ms", "ms_ratio", "ms_together_ratio", "mflops", "mib"))]
        for row in rows
    ]  # fmt: skip
    terminal.say("")
    terminal.table(["task", "point", "score", "less the base", "verdict", "ms", "× base", "× base, 32", "MFLOPs", "MiB"], cells)
    terminal.say(f"report   {REPORT / 'efficiency.html'}")


def _search(page: bool) -> None:
    rows = []
    for path in sorted((SEARCH / "trials").glob("*/*/*.json")):
        metrics = storage.read_json(path)
        best = metrics["best"] or {"score": None, "drawn": {}}
        drawn = ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in best["drawn"].items())
        score = "–" if best["score"] is None else f"{best['score']:.3f}"
        rows.append([
            metrics["model"], metrics["init"], metrics["task"], metrics["metric"], score, f"{metrics['trials']}",
            f"{metrics['cost']['seconds']:.0f}", drawn,
        ])  # fmt: skip
    terminal.say("")
    terminal.table(["model", "start", "task", "metric", "best on dev", "trials", "seconds", "drawn"], rows)
    terminal.say(f"report   {SEARCH / 'index.html'}" if page else "report   not among what was built: `sesame run budget`")
