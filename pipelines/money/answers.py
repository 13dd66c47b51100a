"""The cost of a thousand answers of a model (`sesame price MODEL --answers`), measured now on one thread of this
machine."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from components import params
from components.comparison.price import short
from components.core.errors import SesameError
from components.finetune.task_setup import TaskSetup, check_max_length, reported_split
from components.labs.efficiency import measure
from pipelines import terminal

EXAMPLES = 100
"""Examples on which time is measured, one at a time and 32 together."""


def uses(all_params: params.Params, model: str) -> Iterator[tuple[str, params.Recipe]]:
    """The tasks that a model is tuned on, with the recipe."""
    if model in all_params.finetune.models:
        yield from ((task, all_params.finetune.recipes[model]) for task in all_params.finetune.tasks)
    if model in all_params.adapt.models:
        yield from ((task, all_params.adapt.recipes[way]) for way in all_params.adapt.methods for task in all_params.adapt.tasks)


def print_costs(all_params: params.Params, model: str) -> None:
    """Print a line for each task and recipe. The head is drawn at random, as its weights do not change the cost.

    Raises SesameError if the model is not tuned on any task, does not exist, or generates all its answers as text.
    """
    every = list(uses(all_params, model))
    if not every:
        known = dict.fromkeys((*all_params.finetune.models, *all_params.adapt.models))
        raise SesameError(f"no {model!r} in finetune.models or adapt.models of {params.FILE} (there are: {', '.join(known)})")
    kept = [(task, recipe) for task, recipe in every if recipe.method not in ("text_to_text", "in_context")]
    if not kept:
        cure = "see tokens_per_second in the metrics of the stage `generations` for their cost"
        raise SesameError(f"{model} generates its answers as text, which --answers can't measure; {cure}")
    rows = [_row(all_params, model, task, recipe) for task, recipe in kept]
    columns = [
        "task", "method", "ms, p50", "p95", "a second", "ms of 32", "a second", "MFLOPs", "MiB", "kWh of 1000", "of 32", "USD of 1000",
    ]  # fmt: skip
    terminal.table(columns, rows, f"Cost of answers of {model}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    energy, price = all_params.energy, all_params.price
    terminal.say(
        f"on one thread of this machine, {EXAMPLES} examples, one at a time and 32 together, "
        f"{measure.ROUNDS} times; the model "
        "alone, without tokenization; MiB of weights (peak of this process with libraries: "
        f"{peak:,.0f}); energy estimated per core "
        f"({energy.watts_per_core:g} W, PUE {energy.pue:g}); "
        f"{price.core_hour.preemptible:g} to {price.core_hour.on_demand:g} USD a core-hour, "
        "32 together to one at a time",
        "dim",
    )


def _row(all_params: params.Params, model: str, task: str, recipe: params.Recipe) -> list[str]:
    folder = Path("data/models", model)
    check_max_length(folder, recipe)
    split = reported_split(all_params.tasks[task])
    setup = TaskSetup.load(all_params, task, {"train": all_params.finetune.train_examples, split: EXAMPLES})
    prepared = setup.prepare(folder, recipe, all_params.seed)
    inputs, module = prepared.encode(setup.examples)[split], prepared.module.cpu().eval()
    size = sum(part.numel() * part.element_size() for part in measure.weights(module, inputs)) / 2**20
    answer = measure.answering(module)
    operations = measure.flops(answer, inputs, EXAMPLES) / 1e6
    times = measure.times({"own": answer}, {"own": inputs}, "own", EXAMPLES)["own"]
    alone, together = float(times.alone.mean()), float(np.median(times.together))
    hours = [1000 * seconds / 3600 for seconds in (together, alone)]
    kwh = [all_params.energy.pue * all_params.energy.watts_per_core * duration / 1000 for duration in hours]
    rates = all_params.price.core_hour
    usd = f"{short(hours[0] * rates.preemptible)} – {short(hours[1] * rates.on_demand)}"
    return [
        task, recipe.method,
        *(f"{1e3 * np.quantile(times.alone, quantile):.2f}" for quantile in (0.5, 0.95)), f"{1 / alone:,.0f}",
        f"{1e3 * together:.3f}", f"{1 / together:,.0f}", f"{operations:,.1f}", f"{size:.2f}", short(kwh[1]), short(kwh[0]), usd,
    ]  # fmt: skip
