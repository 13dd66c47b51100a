"""`sesame price`: the cost of a model, a study or the whole project, and the predicted cost and loss of more tokens."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence

from components import params
from components.comparison import price, scaling
from components.comparison.price import Price, short
from components.core import storage
from components.core.errors import SesameError
from components.stages import registry
from components.studies.folders import REPORTS
from pipelines import terminal
from pipelines.execution import graph
from pipelines.money import estimates, meter, spent
from pipelines.money.forecast import duration, number

COLUMNS = ["time", "core-hours", "FLOPs", "kWh", "CO2e", "USD"]
Parts = dict[str, list[Price]]
"""Part -> its costs."""


def cells(own: Price) -> list[str]:
    """The cells of `COLUMNS`. GPU-hours follow the core-hours if there are any."""
    hours = short(own.core_hours) + f" + {short(own.gpu_hours)} GPU" * bool(own.gpu_hours)
    usd = f"{short(own.usd_preemptible)} – {short(own.usd_on_demand)}"
    return [duration(own.seconds), hours, f"{own.flops:.2g}", short(own.kwh), f"{short(own.co2e_kg)} kg", usd]


def told(own: Price) -> str:
    """A cost in words."""
    return f"{duration(own.seconds)}, {short(own.kwh)} kWh, {short(own.co2e_kg)} kg CO2e, {cells(own)[-1]} USD"


def basis(all_params: params.Params) -> str:
    """The assumptions behind the figures, for the foot of a table."""
    own = all_params.price
    return (
        f"estimated, not measured: kWh from busy cores, memory, GPUs and a PUE of {all_params.energy.pue:g}; "
        f"{own.intensity:g} kg CO2e per kWh ({own.country}); {own.core_hour.preemptible:g} to "
        f"{own.core_hour.on_demand:g} USD per core-hour, "
        f"{own.gpu_hour.preemptible:g} to {own.gpu_hour.on_demand:g} per GPU-hour, from pre-emptible to on demand"
    )


def everything(all_params: params.Params) -> None:
    """Print the cost of the project so far, by kind of stage."""
    book = spent.read(all_params)
    by_group: dict[str, list[spent.Spent]] = defaultdict(list)
    for run in book.runs:
        by_group[run.group].append(run)
    rows = []
    for group, runs in sorted(by_group.items(), key=lambda item: -sum(run.price.kwh for run in item[1])):
        bad = sum(run.state in spent.NOT_SO_WELL for run in runs)
        rows.append([group, f"{len(runs):,}", str(bad or ""), *cells(price.total(run.price for run in runs))])
    whole = price.total(run.price for run in book.runs)
    rows.append(["all", f"{len(book.runs):,}", str(sum(run.state in spent.NOT_SO_WELL for run in book.runs) or ""), *cells(whole)])
    terminal.table(["stage", "runs", "failed or stopped", *COLUMNS], rows, "The project so far")
    for state, words in (*spent.NOT_SO_WELL.items(), (spent.ELSEWHERE, "have results here and no record in MLflow")):
        if chosen := [run.price for run in book.runs if run.state == state]:
            terminal.say(f"of this {number(len(chosen), 'run')} {words}: {told(price.total(chosen))}")
    if book.endless:
        terminal.say(
            f"{number(book.endless, 'run')} still running or killed: MLflow has no end of them, so they "
            "are not included"
        )
    terminal.say(_measured(book))
    terminal.say(familiar(whole))
    _foot(all_params, book.missing)


def _measured(book: spent.Book) -> str:
    """Measured energy of whole flows, next to the estimates of their stages."""
    if not book.flows:
        return (
            "the energy of whole flows was not measured: "
            f"{meter.why_not() or 'no flow ran since counters are available'}"
        )
    parts = [
        f"{words} {short(sum(own))} kWh in {number(len(own), 'flow')}"
        for kind, words in ((meter.CPU, "CPUs and memory"), (meter.GPU, "GPUs"))
        if (own := [flow[kind] for flow in book.flows if kind in flow])
    ]  # fmt: skip
    estimated = short(sum(flow["estimated"] for flow in book.flows))
    return (
        f"measured by the energy counters of the whole machine: {', '.join(parts)}; estimated for the "
        f"same stages: {estimated} kWh"
    )


def familiar(own: Price) -> str:
    """The CO2e in comparison with table 1 of Strubell et al. 2019."""
    from components.report.benchmarks import PUBLISHED

    rows = PUBLISHED["familiar"]["rows"]
    shares = [f"{price.ratio(own.co2e_lb, pounds)} {what} ({pounds:,})" for what, pounds in rows.items() if own.co2e_lb]
    return f"{short(own.co2e_lb)} lb CO2e: {', '.join(shares)}; {PUBLISHED['familiar']['source']}"


def _foot(all_params: params.Params, missing: str) -> None:
    if missing:
        terminal.say(
            f"no MLflow records ({missing}): runs that failed, were stopped or repeated are not included", "yellow"
        )
    terminal.say(basis(all_params), "dim")


def overview(all_params: params.Params) -> None:
    """Print a line for each model and each study that has run."""
    made, rows = _made(all_params), []
    with graph.at_once():
        for name in _models(all_params):
            parts = _of_model(all_params, name, made)
            if any(own for group, own in parts.items() if registry.makes_model(group)):
                rows.append([name, "model", *_sum(parts)])
        for name in all_params.studies:
            if (parts := _of_study(all_params, name, made)) and any(parts[variant] for variant in all_params.studies[name].variants):
                rows.append([name, "study", *_sum(parts)])
    terminal.table(
        ["name", "", "stages", *COLUMNS], rows, "Cost of each model and study, with all stages that it needs"
    )
    terminal.say(
        "stages that several need are counted in each, so these rows have no meaningful sum: see `sesame price --all`"
    )
    _foot(all_params, spent.no_ledger())


def one(all_params: params.Params, name: str, tokens: float | None, times: float | None) -> None:
    """Print the cost of a model or a study, and the predicted cost and loss of more tokens.

    Raises SesameError if the name is neither.
    """
    models, made = _models(all_params), _made(all_params)
    if name not in models and name not in all_params.studies:
        raise SesameError(f"no model or study {name!r} (models: {', '.join(models)}; studies: {', '.join(all_params.studies)})")
    if (tokens or times) and name not in all_params.models:
        cure = f"name one of {', '.join(all_params.models)}"
        raise SesameError(
            f"{name} is not pre-trained here, and --tokens and --times are about a model of `models`: {cure}"
        )
    with graph.at_once():
        parts = (_of_model if name in models else _of_study)(all_params, name, made)
        stages = [each.name for each in graph.plan(_ends(all_params, name))]
    terminal.table([name, "stages", *COLUMNS], [[part, *_sum({part: own})] for part, own in {**parts, "all": _all(parts)}.items() if own])
    if name in models:
        _per_task(all_params, name, parts, made)
    _beside(all_params, stages, made, [own.price for own in _by_table(all_params, name, made)])
    if tokens or times:
        _forecast(all_params, name, tokens, times)


def _models(all_params: params.Params) -> list[str]:
    return [*all_params.models, *all_params.checkpoints, *all_params.derived]


def _made(all_params: params.Params) -> dict[str, Price]:
    """Stage with results here -> the price of the run that made them."""
    lefts = estimates.lasting(graph.lock_entries())
    return {name: price.run_price(all_params, name.partition("@")[0], metrics["cost"]) for name, metrics in lefts.items()}


def _ends(all_params: params.Params, name: str) -> list[str]:
    """The stages that a model or a study ends in: of a model its scores, or where it has none its own."""
    if name not in _models(all_params):
        return [f"study@{name}"]
    scored = [
        f"{entry.stage}@{entry.name}" for stage in registry.stages().values() if stage.scores
        for entry in stage.entries(all_params) if entry.model == name
    ]  # fmt: skip
    own = "pretrain" if name in all_params.models else "checkpoint" if name in all_params.checkpoints else "derive"
    return scored or [f"{own}@{name}"]


def _of_model(all_params: params.Params, name: str, made: Mapping[str, Price]) -> Parts:
    """By the kind of stage, in the order of the pipeline."""
    parts: Parts = defaultdict(list)
    for each in graph.plan(_ends(all_params, name)):
        if each.name in made:
            parts[each.name.partition("@")[0]].append(made[each.name])
    return parts


def _of_study(all_params: params.Params, name: str, made: Mapping[str, Price]) -> Parts:
    """By variant; a study whose trainings are not here by its table."""
    study = all_params.studies[name]
    variants = {own.name: own.variant for own in params.members({name: study})}
    parts: Parts = {"text and tasks": [], **{variant: [] for variant in study.variants}, "comparison": []}
    for each in graph.plan(_ends(all_params, name)):
        group, _, own = each.name.partition("@")
        if each.name in made:
            trained = variants[own] if group in spent.OF_VARIANTS and own in variants else None
            parts[trained or ("comparison" if group == "study" else "text and tasks")].append(made[each.name])
    for own in _by_table(all_params, name, made):
        parts[own.stage.partition("@")[2].removeprefix(f"{name}-")].append(own.price)
    return parts


def _by_table(all_params: params.Params, name: str, made: Mapping[str, Price]) -> list[spent.Spent]:
    return spent.of_table(all_params, name, made) if name in all_params.studies else []


def _all(parts: Parts) -> list[Price]:
    return [own for prices in parts.values() for own in prices]


def _sum(parts: Parts) -> list[str]:
    """How many stages, and what they cost together."""
    return [str(len(_all(parts))), *cells(price.total(_all(parts)))]


def _per_task(all_params: params.Params, name: str, parts: Parts, made: Mapping[str, Price]) -> None:
    """The model and its text shared out among the tasks that use it, and what one more task costs."""
    tasks = [task for task in all_params.finetune.tasks if f"finetune@{name}-{task}" in made and name in all_params.finetune.models]
    if tasks:
        shared = price.total(_all({group: own for group, own in parts.items() if group != "task" and not registry.scores(group)}))
        tuned = price.total(made[f"finetune@{name}-{task}"] for task in tasks) * (1 / len(tasks))
        terminal.say(
            f"a task costs {told(shared * (1 / len(tasks)) + tuned)}, where {len(tasks)} share the model and its text; "
            f"one more task costs {told(tuned)} ({number(len(all_params.finetune.seeds), 'seed')} from "
            f"each of {', '.join(all_params.finetune.inits)})"
        )


def _beside(all_params: params.Params, stages: Sequence[str], made: Mapping[str, Price], by_table: Sequence[Price]) -> None:
    """Print which of these stages have no figures, what MLflow has recorded of them, and the assumptions."""
    silent = [each for each in stages if each not in made and each != graph.RESOLVE]
    if by_table:
        terminal.say(
            "trainings without results here are estimated from the seconds in the study's table, on one core each",
            "yellow",
        )
    elif silent:
        names = ", ".join(silent[:3]) + f" and {len(silent) - 3} more" * (len(silent) > 3)
        terminal.say(f"{number(len(silent), 'stage')} left out, never run or without results here: {names}", "yellow")
    missing = spent.no_ledger()
    if not missing:
        runs = [run for run in spent.of_ledger(all_params)[0] if run.stage in set(stages)]
        bad, whole = sum(run.state in spent.NOT_SO_WELL for run in runs), price.total(run.price for run in runs)
        terminal.say(f"MLflow has {number(len(runs), 'run')} of these stages, {bad} failed or stopped: {told(whole)}")
    _foot(all_params, missing)


def _forecast(all_params: params.Params, name: str, tokens: float | None, times: float | None) -> None:
    """Print the predicted cost of a pre-training on more tokens, at the measured rate, and its loss by a study's
    curve."""
    metrics = storage.last_metrics("pretrain", name, name in all_params.of_studies("models"))
    if not metrics.get("tokens"):
        raise SesameError(
            f"{name} was not pre-trained here yet, so its speed is not known: `sesame run pretrain@{name}` first"
        )
    read, made = metrics["tokens"], price.run_price(all_params, "pretrain", metrics["cost"])
    wanted = tokens or times * read
    encoding = all_params.models[name].encoding
    text = storage.last_metrics("encode", encoding, encoding in all_params.of_studies("encodings"))["train"]["tokens"]
    terminal.say(
        f"a pre-training on {wanted:,.0f} tokens, {short(wanted / read)} times the {read:,} tokens so far "
        f"and {short(wanted / text)} epochs of its text, costs "
        f"{told(made * (wanted / read))}, at the measured {short(read / made.seconds)} tokens per second",
        "bold",
    )
    terminal.say(gain(all_params, name, read, wanted), "bold")


def gain(all_params: params.Params, name: str, now: float, then: float) -> str:
    """The predicted gain of more compute, by the first study that trained this model with several budgets."""
    question = "its loss can't be predicted"
    fitting = [
        (study, variant) for study, block in all_params.studies.items() if block.model == name and block.milestones
        for variant, own in block.variants.items() if not own.change and not own.encoding
    ]  # fmt: skip
    if not fitting:
        return (
            f"{question}: no study trains {name} unchanged with `milestones`; "
            f"{params.STUDY_FOLDER}/tokens.yaml shows how"
        )
    study, variant = fitting[0]
    path = REPORTS / f"{study}.csv"
    if not path.exists():
        return f"{question}: the study {study} was not run; run `sesame study {study}`"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["variant"] == variant and row["loss"]]
    figures = {key: [float(row[key] or 0) for row in rows] for key in ("tokens", "loss", "loss_std", "n")}
    try:
        curve = scaling.fit(figures["tokens"], figures["loss"], figures["loss_std"], [int(n) for n in figures["n"]])
    except SesameError as error:
        return f"{question} from the study {study}: {error}"
    return (
        f"by the curve of study {study} ({len(rows)} budgets up to {max(figures['tokens']):,.0f} tokens) the loss goes from "
        f"{curve.at(now).shown} to {curve.at(then).shown}, {curve.gain(now, then).shown} lower, and its lower limit is "
        f"{curve.floor.shown}; this is optimistic, as the smaller budgets were measured before the "
        "learning rate had decayed"
    )
