"""Subcommands that estimate and compare costs: `plan`, `price`, `compress`.

Modules that are slow to import are imported inside the commands that use them.
"""

from typing import Annotated

import typer

from components import params
from components.core.errors import SesameError
from pipelines.cli.command import MOST, Targets, group

command = group("Costs")


@command("plan")
def plan_command(
    targets: Targets = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=MOST, help="How many stages would run side by side.")] = None,
    show_cards: Annotated[
        bool, typer.Option("--cards", help="Show what would fit on other GPUs, from a T4 to an H200.")
    ] = False,
) -> None:
    """List the stages of a run in order, with estimated time and memory. Fails if a stage can't fit."""
    from pipelines import studies, terminal
    from pipelines.execution import graph, repository, sources, staleness
    from pipelines.money import cards, forecast

    all_params = params.load()
    with repository.at_once():
        plan = graph.plan(targets or [])
        states = staleness.states(plan, away=all_params.away)
    outlook = forecast.forecast(plan, states, all_params, jobs)
    rows = []
    for stage in plan:
        estimate = outlook.estimates.get(stage.name)
        takes = [forecast.duration(estimate.seconds), forecast.amount(estimate.memory)] if estimate else ["", ""]
        needs = terminal.some(stage.upstream, most=5)
        rows.append([stage.name, states[stage.name], *takes, stage.meta.resource or "", needs])
    terminal.table(["stage", "state", "time", "memory", "resource", "needs"], rows)
    terminal.say(outlook.summary(), "bold")
    for line in sources.edited(all_params, states):
        terminal.say(line, "yellow")
    for target in targets or []:
        if target.startswith("study@"):
            terminal.say(studies.power(target.removeprefix("study@")))
    if show_cards:
        named = [stage.name for stage in plan if not targets or graph.selects(targets, stage.name)]
        terminal.table(cards.COLUMNS, cards.rows(named, all_params))
    elif not all_params.away:  # what fits into a worker's machine is not known here
        outlook.check()


@command()
def price(
    name: Annotated[
        str | None, typer.Argument(metavar="[MODEL|STUDY]", help="A model or a study. Default: one line for each.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="The whole project so far: all runs recorded in MLflow, including failed and stopped ones."
        ),
    ] = False,
    tokens: Annotated[
        float | None, typer.Option(min=1, max=1e15, help="Predict cost and loss of a pre-training on this many tokens.")
    ] = None,
    times: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1e9, help="Like --tokens, as a multiple of the tokens that the model was trained on."
        ),
    ] = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="Measure the cost of inference now: time, energy and money for 1000 answers."),
    ] = False,
) -> None:
    """Show the cost of a model, a study or the project: time, core-hours, FLOPs, kWh, CO2e, money."""
    from pipelines.money import price_tags

    if everything + (name is not None) > 1 or (tokens is not None) + (times is not None) + answers > 1:
        both = "more than one of MODEL, STUDY and --all, or of --tokens, --times and --answers"
        raise SesameError(f"{both}; give at most one of each group")
    if (tokens or times or answers) and name is None:
        raise SesameError("--tokens, --times and --answers need a model, e.g. `sesame price MODEL --times 10`")
    all_params = params.load()
    if answers:
        from pipelines.money.answers import print_costs

        print_costs(all_params, name)
    elif everything:
        price_tags.everything(all_params)
    elif name is None:
        price_tags.overview(all_params)
    else:
        price_tags.one(all_params, name, tokens, times)


@command()
def compress(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that a point of `efficiency` runs unchanged.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="BUDGET",
            help="A share of the model's cost: 0.5x-latency, 0.5x-latency-of-32 (batch of 32), 0.5x-flops, 0.5x-bytes "
            "or 0.5x-energy.",
        ),
    ],
    task: Annotated[
        str | None, typer.Option("--task", help="A task of `efficiency.tasks`. Default: the first one.")
    ] = None,
) -> None:
    """Show which way to make a model smaller is best on dev within a budget, among the points of `efficiency`."""
    from pipelines import terminal
    from pipelines.execution import staleness
    from pipelines.money.compress import compress

    compared = compress(model, to, task)
    if stale := staleness.stale(compared):
        some = f"{len(stale)} of these {len(compared)} points have not run with the current params and code, {stale[0]} first"
        terminal.say(f"{some}: `sesame run efficiency` brings the table up to date", "yellow")
