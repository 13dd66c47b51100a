"""`sesame compress`: the cheaper form of a model that scores best, among the points of `efficiency` that were run."""

import re

from components import params
from components.core.errors import SesameError
from components.core.frames import read_csv
from components.labs.efficiency.__main__ import PAGE, spread
from components.labs.efficiency.point import FOLDER
from pipelines import terminal
from pipelines.money.forecast import number

COSTS = {"latency": "ms_ratio", "latency-of-32": "ms_together_ratio", "flops": "mflops", "bytes": "mib", "energy": "kwh_per_1000"}
"""Name in a budget -> column of the page's table."""


def budget(said: str) -> tuple[float, str]:
    """`0.5x-latency` -> (0.5, "latency"). Raises SesameError if it is not a budget."""
    known = re.fullmatch(rf"(\d*\.?\d+)x-({'|'.join(COSTS)})", said)
    if not known or not 0 < float(known[1]) <= 1:
        raise SesameError(
            f"--to {said}: write a share above 0 and up to 1, and a cost, e.g. 0.5x-latency (costs: {', '.join(COSTS)})"
        )
    return float(known[1]), known[2]


def made_of(all_params: params.Params, point: params.Point, model: str) -> bool:
    """Whether a point runs a model, one that was made of it over any number of steps, or one that such a one has taught."""
    name = point.model
    while name != model and name in all_params.derived:
        name = all_params.derived[name].start
    teacher = all_params.efficiency.points.get(point.teacher)
    return name == model or (teacher is not None and made_of(all_params, teacher, model))


def plain(all_params: params.Params, model: str) -> str:
    """The point that runs a model unchanged. Raises SesameError if there is none."""
    as_they_are = {
        point.model: name for name, point in reversed(all_params.efficiency.points.items())
        if point.init == "pretrained" and point.quantised is point.teacher is point.factorised is None
        and point.recipe.get("method") != "early_exit"
    }  # fmt: skip
    if model not in as_they_are:
        raise SesameError(
            f"no point of `efficiency` runs {model} unchanged (models with one: {', '.join(as_they_are) or 'none'})"
        )
    return as_they_are[model]


def compress(model: str, to: str, task: str | None) -> list[str]:
    """Print which point derived from `model` is best on dev within the budget, with its cost and scores.

    Returns the stages whose results are compared: the table has those of their last run, whatever is declared now.
    """
    all_params, (share, what) = params.load(), budget(to)
    whole, block = plain(all_params, model), all_params.efficiency
    task = task or block.tasks[0]
    if task not in block.tasks:
        raise SesameError(f"no {task!r} in efficiency.tasks of {params.STUDIES} (there are: {', '.join(block.tasks)})")
    path = PAGE.with_suffix(".csv")
    if not path.exists():
        raise SesameError(f"{path}: no such file; run the points first (`sesame run efficiency`)")
    table = read_csv(path)
    table = table[(table["task"] == task) & table["series"].isin(block.points)].set_index("point")
    if whole not in table.index or "dev" not in table:  # written by an older version
        raise SesameError(
            f"{path} has no {whole} on {task} with its score on dev; run `sesame run efficiency` to update it"
        )
    table["share"] = table[COSTS[what]] / table[COSTS[what]][whole]
    descendants = table["series"].map(lambda point: made_of(all_params, block.points[point], model))
    ways = table[descendants & (table.index != whole)].sort_values("share")
    names = dict.fromkeys([table["series"][whole], *ways["series"]])
    compared = [f"{'taught' if block.points[name].teacher else 'point'}@{name}-{task}" for name in names]
    terminal.table(
        ["point", f"of the {what}", "dev", all_params.tasks[task].metric, f"minus {block.base}", "verdict"],
        [[name, f"{row.share:.2f}", f"{row.dev:.3f}", spread(row), row.difference, row.verdict] for name, row in ways.iterrows()],
        f"Smaller forms of {model}, on {task}",
    )
    fits = ways[ways["share"] <= share].sort_values("dev", ascending=False)
    if fits.empty:
        terminal.say(
            f"none of {number(len(ways), 'form')} is within {share:g} of the {what}; the cheapest "
            f"takes {ways['share'].min():.2f}"
        )
        return compared
    chosen, base = fits.iloc[0], table.loc[whole]
    terminal.say(
        f"{len(fits)} of {number(len(ways), 'form')} within {share:g} of the {what}; the best of "
        f"these on dev is {chosen.name}: "
        f"{chosen.dev:.3f} on dev, {spread(chosen)} on the evaluated split, at {chosen.share:.2f} of the {what}; "
        f"{whole} has {base.dev:.3f} and {spread(base)}",
        "bold",
    )
    better = table[~descendants & (table["share"] <= share) & (table["dev"] >= chosen["dev"])].sort_values(
        "dev", ascending=False
    )
    for name, row in better.iterrows():
        terminal.say(
            f"not worse within the same budget, from another model than {model}: {name}, dev "
            f"{row.dev:.3f}, {spread(row)}",
            "yellow",
        )
    weights = FOLDER / chosen.series / task / "module.safetensors"
    terminal.say(f"defined by the point {chosen.series} of {params.STUDIES}; weights of the first seed: {weights}")
    return compared
