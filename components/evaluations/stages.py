"""The stages `evaluation`, which prepares the items, and `evaluate`, which evaluates a model on them."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.evaluations.config import LOWER_IS_BETTER
from components.params import Params
from components.stages.declaration import Entry, Stage, Table
from components.stages.parts import model_modules, reader_modules, source_modules


def evaluations(p: Params) -> Iterator[Entry]:
    for name, block in p.evaluations.items():
        modules = ("components.evaluations.__main__", f"components.evaluations.{block.kind}.evaluation")
        settings, sources = block.settings(), source_modules(block)
        if task := p.tasks.get(getattr(block, "task", None)):
            modules += reader_modules(task)
            settings, sources = settings | {"seed": p.seed, "task_settings": task.settings()}, source_modules(task)
        yield Entry("evaluation", name, (*modules, *sources), settings)


def evaluate_entries(p: Params) -> Iterator[Entry]:
    for model, name in p.asked:
        kind = p.evaluations[name].kind
        modules = ("components.evaluations.evaluate", f"components.evaluations.{kind}.evaluation", *model_modules(p, model))
        yield Entry("evaluate", f"{model}-{name}", modules, {"kind": kind, "twins": p.evaluate.twins}, model)


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    rows = []
    for (_, name), measured in metrics.items():
        error = "–" if measured["error"] is None else f"{measured['error']:.3f}"
        rows.append([
            *name.split("-"), measured["measure"], f"{measured['score']:.3f} ± {error}", f"{measured['random']['mean']:.3f}",
            best_reference(measured), f"{measured['items']:,}",
        ])  # fmt: skip
    return Table(["model", "evaluation", "measure", "score ± error", "random weights", "best reference", "items"], rows)


def best_reference(measured: Mapping[str, Any]) -> str:
    """Score and name of the best reference, such as a bigram."""
    if not (references := measured.get("references")):
        return "–"
    name = (min if measured["measure"] in LOWER_IS_BETTER else max)(references, key=references.get)
    return f"{references[name]:.3f} ({name.replace('_', ' ')})"


STAGES = (
    Stage("evaluation", evaluations, "evaluations/{0}", section="evaluations", fetches=True),
    Stage("evaluate", evaluate_entries, "evaluated/{0}/{1}", table=table),
)
