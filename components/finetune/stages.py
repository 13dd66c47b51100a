"""The stages that fine-tune models on tasks: finetune, adapt, learning_curve, baseline."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from components.params import Params
from components.stages.declaration import Entry, Stage, Table
from components.stages.parts import judging_settings, method_modules, model_modules, tokenizer_modules, tuning_settings


def finetunings(p: Params) -> Iterator[Entry]:
    for model, task in product(p.finetune.models, p.finetune.tasks):
        recipe = p.finetune.recipes[model]
        settings = {"recipe": recipe.settings(), "task": judging_settings(p.tasks[task], recipe)}
        settings |= tuning_settings(p) | {"seeds": p.finetune.seeds, "inits": p.finetune.inits}
        modules = ("components.finetune.__main__", *model_modules(p, model), *method_modules(recipe, p.family(model)))
        yield Entry("finetune", f"{model}-{task}", modules, settings, model)


def adaptations(p: Params) -> Iterator[Entry]:
    for model, way, task in product(p.adapt.models, p.adapt.methods, p.adapt.tasks):
        recipe = p.adapt.recipes[way]
        settings = {"recipe": recipe.settings(), "task": judging_settings(p.tasks[task], recipe)}
        settings |= tuning_settings(p) | {"seeds": p.finetune.seeds}
        modules = ("components.finetune.adapt", *model_modules(p, model), *method_modules(recipe, p.family(model)))
        yield Entry("adapt", f"{model}-{way}-{task}", modules, settings, model)


def learning_curves(p: Params) -> Iterator[Entry]:
    curve = p.learning_curve
    for model, task in product(curve.models, curve.tasks):
        recipe = p.finetune.recipes[model]
        settings = {key: getattr(curve, key) for key in ("train_examples", "min_steps", "baselines")}
        settings = tuning_settings(p) | settings | {"seeds": p.finetune.seeds, "inits": p.finetune.inits}
        settings |= {"recipe": recipe.settings(), "task": judging_settings(p.tasks[task], recipe)}
        settings |= {"baseline": p.baselines.settings()}
        modules = ("components.finetune.learning_curve", *model_modules(p, model), *method_modules(recipe, p.family(model)))
        yield Entry("learning_curve", f"{model}-{task}", modules, settings, model)


def baselines(p: Params) -> Iterator[Entry]:
    for task in p.finetune.tasks:
        settings = tuning_settings(p) | {"seeds": p.finetune.seeds}
        settings |= {"baselines": p.baselines.settings(), "task": judging_settings(p.tasks[task])}
        modules = ("components.finetune.baseline", *tokenizer_modules(p.tokenizers[p.baselines.tokenizer]))
        yield Entry("baseline", task, modules, settings)


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    from components.report import tables

    return scores_table(tables.scores(metrics).to_dict("records"))


def scores_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A printable table of rows of the report's scores."""
    keys = ("model", "task", "method", "init", "metric")
    cells = [[*(str(row[key] or "") for key in keys), spread(row["mean"], row["std"], row["n"])] for row in rows]
    return Table([*keys, "mean ± std (n)"], cells)


def spread(mean: float | str | None, std: float | str | None, n: float | str) -> str:
    """`0.512 ± 0.010 (3)`; undefined values are left out."""
    known = [f"{float(figure):.3f}" for figure in (mean, std) if figure not in ("", None) and float(figure) == float(figure)]
    return f"{' ± '.join(known)} ({int(float(n))})"


STAGES = (
    Stage("finetune", finetunings, "scores/{0}/{1}", trains="tasks", scores=True, table=table),
    Stage("adapt", adaptations, "adapted/{0}/{1}/{2}", trains="tasks", scores=True, table=table),
    Stage("learning_curve", learning_curves, "learning_curves/{0}/{1}", trains="tasks", scores=True),
    Stage("baseline", baselines, "baselines/{0}", section="tasks", trains="tasks", table=table),
)
