"""Whether what the labs and the learning curve ask for fits models, recipes and tasks."""

from components.params.fits import searched_methods
from components.params.recipe_fits import keeps_zeros, recipe_fits
from components.params.recipes import OF_CLASSES, has_effect
from components.params.whole import Params


def check(p: Params) -> None:
    """Raises ValueError for the first thing that does not fit."""
    _learning_curve_fits(p)
    _seed_grid_fits(p)
    _tickets_fit(p)
    _search_fits(p)
    _efficiency_fits(p)


def _learning_curve_fits(p: Params) -> None:
    curve = p.learning_curve
    missing = [name for name in curve.baselines if name not in p.baselines.methods]
    if curve.models and missing:
        raise ValueError(
            f"learning_curve.baselines: {missing[0]} is not in baselines.methods, from which the last point of the curve "
            "is taken; add it there"
        )
    for name in p.finetune.recipes.keys() & curve.models:
        if p.finetune.recipes[name].method == "in_context":
            raise ValueError(
                f"learning_curve.models: by {name}'s recipe nothing is trained (in_context); vary its shots in adapt instead"
            )


def _seed_grid_fits(p: Params) -> None:
    for name in p.finetune.recipes.keys() & p.seed_grid.models:
        _is_trained(p, "seed_grid", name)
        if p.finetune.recipes[name].patience is not None:
            raise ValueError(
                f"seed_grid.models: {name}'s recipe has patience, which gives trainings different lengths; leave patience out"
            )
    for name in p.tasks.keys() & p.seed_grid.tasks:
        if not (p.tasks[name].test and p.tasks[name].test.labelled):
            raise ValueError(
                f"seed_grid.tasks: {name} has no test split with labels, on which the best run on dev is evaluated"
            )


def _tickets_fit(p: Params) -> None:
    for name in p.finetune.recipes.keys() & p.tickets.models:
        if (method := p.finetune.recipes[name].method) != "full":
            raise ValueError(f"tickets.models: {name}'s recipe trains no weights that could be pruned ({method}, not full)")


def _is_trained(p: Params, section: str, name: str) -> None:
    if p.finetune.recipes[name].method == "in_context":
        raise ValueError(
            f"{section}.models: by {name}'s recipe nothing is trained (in_context), so seeds have no effect; leave {name} out"
        )


def _efficiency_fits(p: Params) -> None:
    for name in p.efficiency.tasks:
        if name in p.tasks and (kind := p.tasks[name].kind) != "classification":
            raise ValueError(f"efficiency.tasks: {name} is of kind {kind}; name tasks of kind classification")
        if name in p.tasks and not (p.tasks[name].test and p.tasks[name].test.labelled):
            raise ValueError(
                f"efficiency.tasks: {name} has no test split with labels; name another task, as dev "
                "is used to fit temperatures"
            )
    for name, point in p.efficiency.points.items():
        if point.factorised and p.sparse(point.model):
            raise ValueError(
                f"efficiency.points.{name}.factorised: a low-rank model can't be made of "
                f"{point.model}, whose zeros refer to the original matrices"
            )
        if architecture := p.architecture(point.model):
            section = "derived" if point.model in p.derived else "models"
            recipe_fits(f"efficiency.points.{name}.recipe", f"{section}.{point.model}", architecture, p.efficiency.tuned(name))
        keeps_zeros(p, f"efficiency.points.{name}.recipe", point.model, p.efficiency.tuned(name))


def _search_fits(p: Params) -> None:
    search = p.search
    _search_draws_what_matters(p)
    for name in search.models:
        if not (recipe := p.finetune.recipes.get(name)):
            continue
        if "in_context" in searched_methods(p, recipe):
            raise ValueError(f"search.models: by {name}'s recipe nothing is trained (in_context); leave {name} out")
        longest = search.longest(recipe)
        if search.pruner.name != "none" and search.pruner.min_epochs >= longest:
            raise ValueError(
                f"search.pruner: {name} has at most {longest} epochs, fewer than min_epochs {search.pruner.min_epochs} "
                "leaves to stop; lower min_epochs"
            )
    for name in p.tasks.keys() & search.tasks:
        metrics = p.tasks[name].dev.metrics or p.tasks[name].metrics
        if search.metric and search.metric not in metrics:
            raise ValueError(
                f"search.metric {search.metric} is not among those of the dev split of tasks.{name} ({', '.join(metrics)})"
            )


def _search_draws_what_matters(p: Params) -> None:
    """Raises ValueError for a field that is drawn and has no effect on any model and task: all trials would be alike."""
    recipes = [p.finetune.recipes[name] for name in p.search.models if name in p.finetune.recipes]
    methods = sorted({method for recipe in recipes for method in searched_methods(p, recipe)})
    kinds = {p.tasks[name].kind for name in p.tasks.keys() & p.search.tasks}
    for key in p.search.space if methods else ():
        if not any(has_effect(key, method) for method in methods):
            raise ValueError(f"search.space: {key} has no effect under method {' or '.join(methods)}; leave it out")
        able = OF_CLASSES.get(key, kinds)
        if kinds and not kinds & set(able) and "text_to_text" not in methods:
            raise ValueError(f"search.space: {key} has no effect: it needs a task of kind {' or '.join(able)}")
