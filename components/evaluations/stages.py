"""The stages `evaluation`, which prepares what models are asked, and `evaluate`, which asks one."""

from collections.abc import Iterator, Mapping
from itertools import product

from components.params import Params
from components.stages.declaration import Entry, Stage, Table
from components.stages.parts import model_modules, source_modules


def evaluations(p: Params) -> Iterator[Entry]:
    for name, block in p.evaluations.items():
        modules = ("components.evaluations.__main__", f"components.evaluations.{block.kind}.evaluation", *source_modules(block))
        yield Entry("evaluation", name, modules, block.settings())


def evaluated(p: Params) -> Iterator[Entry]:
    for model, name in product(p.evaluate.models, p.evaluate.evaluations):
        kind = p.evaluations[name].kind
        modules = ("components.evaluations.evaluate", f"components.evaluations.{kind}.evaluation", *model_modules(p, model))
        yield Entry("evaluate", f"{model}-{name}", modules, {"kind": kind, "twins": p.evaluate.twins}, model)


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    rows = [
        [*name.split("-"), f"{measured['accuracy']:.3f} ± {measured['accuracy_error']:.3f}", f"{measured['random']['mean']:.3f}",
         *(f"{measured['references'].get(key, float('nan')):.3f}" for key in ("unigram", "bigram")), f"{measured['items']:,}"]
        for (_, name), measured in metrics.items()
    ]  # fmt: skip
    return Table(["model", "evaluation", "right ± error", "random weights", "unigram", "bigram", "items"], rows)


STAGES = (
    Stage("evaluation", evaluations, "evaluations/{0}", section="evaluations", fetches=True),
    Stage("evaluate", evaluated, "evaluated/{0}/{1}", table=table),
)
