"""The stages of the labs: search and budget, seed_row and seed_grid, tickets and tickets_page, point, taught and efficiency."""

from collections.abc import Iterator
from typing import Any

from components.params import Params
from components.stages.declaration import Entry, Stage
from components.stages.parts import judging_settings, method_modules, model_modules, tuning_settings


def searches(p: Params) -> Iterator[Entry]:
    excluded = ("models", "tasks", "inits", "confidence")
    shared = {key: value for key, value in p.search.settings().items() if key not in excluded}
    for name, (model, task, init) in p.search.runs.items():
        recipe = p.finetune.recipes[model]
        methods = {recipe.method, *(p.search.space["method"].ends if "method" in p.search.space else ())}
        recipes = [recipe.model_copy(update={"method": method}) for method in sorted(methods)]
        modules = (module for drawn in recipes for module in method_modules(drawn, p.family(model)))
        settings = {"search": shared | {"init": init}, "recipe": recipe.settings(), "task": judging_settings(p.tasks[task], *recipes)}
        modules = ("components.labs.search.__main__", *model_modules(p, model), *modules)
        yield Entry("search", name, modules, tuning_settings(p) | settings)


def budget(p: Params) -> Iterator[Entry]:
    metrics = {task: p.tasks[task].metric for task in p.search.tasks}
    yield Entry("budget", "all", ("components.labs.search.budget",), p.search.settings() | {"metrics": metrics})


def _tuned(p: Params, module: str, model: str, task: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Modules and settings of a stage that fine-tunes a model with its recipe of `finetune`."""
    recipe = p.finetune.recipes[model]
    settings = tuning_settings(p) | {"recipe": recipe.settings(), "task": judging_settings(p.tasks[task], recipe)}
    return (module, *model_modules(p, model), *method_modules(recipe, p.family(model))), settings


def seed_rows(p: Params) -> Iterator[Entry]:
    grid = p.seed_grid
    shared = {"init": grid.init, "orders": grid.orders, "train_examples": grid.train_examples}
    for name, (model, task, seed) in grid.runs.items():
        modules, settings = _tuned(p, "components.labs.seeds.row", model, task)
        yield Entry("seed_row", name, modules, settings | shared | {"initialisation": seed})


def seed_grid(p: Params) -> Iterator[Entry]:
    settings = {"grid": p.seed_grid.settings(), "tasks": {task: judging_settings(p.tasks[task]) for task in p.seed_grid.tasks}}
    yield Entry("seed_grid", "all", ("components.labs.seeds.__main__",), settings)


def tickets(p: Params) -> Iterator[Entry]:
    block = p.tickets
    shared = {"rounds": block.rounds, "prune": block.prune, "train_examples": block.train_examples}
    for name, (model, task, seed) in block.runs.items():
        modules, settings = _tuned(p, "components.labs.tickets.rounds", model, task)
        yield Entry("tickets", name, modules, settings | shared | {"own_seed": seed})


def tickets_page(p: Params) -> Iterator[Entry]:
    settings = {"tickets": p.tickets.settings(), "tasks": {task: judging_settings(p.tasks[task]) for task in p.tickets.tasks}}
    yield Entry("tickets_page", "all", ("components.labs.tickets.__main__",), settings)


def _points(p: Params, stage: str) -> Iterator[Entry]:
    """The points with a teacher, or those without."""
    block = p.efficiency
    for name, (label, task) in block.runs.items():
        point, recipe = block.points[label], block.tuned(label)
        if bool(point.teacher) != (stage == "taught"):
            continue
        settings = tuning_settings(p) | {"seeds": p.finetune.seeds, "task": judging_settings(p.tasks[task], recipe)}
        settings |= {"recipe": recipe.settings(), "point": point.settings()}
        settings |= {"thresholds": block.thresholds if recipe.method == "early_exit" else []}
        modules = (*model_modules(p, point.model), *method_modules(recipe, p.family(point.model)))
        yield Entry(stage, name, (f"components.labs.efficiency.{stage}", *modules), settings)


def points(p: Params) -> Iterator[Entry]:
    return _points(p, "point")


def taught(p: Params) -> Iterator[Entry]:
    return _points(p, "taught")


def efficiency(p: Params) -> Iterator[Entry]:
    block = p.efficiency
    if block.points:
        modules = {module for entry in (*points(p), *taught(p)) for module in entry.modules[1:]}
        tasks = {task: judging_settings(p.tasks[task]) for task in block.tasks}
        settings = tuning_settings(p) | {"efficiency": block.settings(), "tasks": tasks, "energy": p.energy.settings()}
        yield Entry("efficiency", "all", ("components.labs.efficiency.__main__", *sorted(modules)), settings)


STAGES = (
    Stage("search", searches, "search/trials/{0}/{1}", trains="tasks"),
    Stage("budget", budget, "search"),
    Stage("seed_row", seed_rows, "seeds", trains="tasks"),
    Stage("seed_grid", seed_grid, "report"),
    Stage("tickets", tickets, "tickets", trains="tasks"),
    Stage("tickets_page", tickets_page, "report"),
    Stage("point", points, "efficiency", trains="tasks"),
    Stage("taught", taught, "efficiency", trains="tasks"),
    Stage("efficiency", efficiency, "report"),
)
