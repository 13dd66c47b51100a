"""`sesame price`: the cost of a model, a study or the whole project, and the predicted cost and loss of more tokens."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from components import params
from components.comparison import price, scaling
from components.comparison.price import Price, short
from components.core.errors import SesameError
from components.stages import outputs, registry
from components.stages.outputs import last_metrics, read_json
from components.studies.folders import REPORTS
from pipelines import terminal
from pipelines.execution import graph, repository
from pipelines.money import energy, estimates, usage
from pipelines.money.forecast import duration
from pipelines.terminal import number

COLUMNS = ["time", "core-hours", "FLOPs", "kWh", "CO2e", "USD"]
CostsByGroup = dict[str, list[Price]]
"""Kind of stage, or variant of a study -> what its stages cost."""


def cells(cost: Price) -> list[str]:
    """The cells of `COLUMNS`. GPU-hours follow the core-hours if there are any."""
    hours = short(cost.core_hours) + f" + {short(cost.gpu_hours)} GPU" * bool(cost.gpu_hours)
    usd = f"{short(cost.usd_preemptible)} – {short(cost.usd_on_demand)}"
    return [duration(cost.seconds), hours, f"{cost.flops:.2g}", short(cost.kwh), f"{short(cost.co2e_kg)} kg", usd]


def in_words(cost: Price) -> str:
    """A cost in words."""
    return f"{duration(cost.seconds)}, {short(cost.kwh)} kWh, {short(cost.co2e_kg)} kg CO2e, {cells(cost)[-1]} USD"


def basis(all_params: params.Params) -> str:
    """The assumptions behind the figures, for the foot of a table."""
    rates = all_params.price
    return (
        f"estimated, not measured: kWh from busy cores, memory, GPUs and a PUE of {all_params.energy.pue:g}; "
        f"{rates.intensity:g} kg CO2e per kWh ({rates.country}); {rates.core_hour.preemptible:g} to "
        f"{rates.core_hour.on_demand:g} USD per core-hour, "
        f"{rates.gpu_hour.preemptible:g} to {rates.gpu_hour.on_demand:g} per GPU-hour, from pre-emptible to on demand"
    )


def everything(all_params: params.Params) -> None:
    """Print the cost of the project so far, by kind of stage."""
    recorded = usage.read(all_params)
    by_group: dict[str, list[usage.StageRun]] = defaultdict(list)
    for run in recorded.runs:
        by_group[run.group].append(run)
    rows = []
    for group, runs in sorted(by_group.items(), key=lambda item: -sum(run.price.kwh for run in item[1])):
        bad = sum(run.state in usage.UNSUCCESSFUL for run in runs)
        rows.append([group, f"{len(runs):,}", str(bad or ""), *cells(price.total(run.price for run in runs))])
    total = price.total(run.price for run in recorded.runs)
    bad = sum(run.state in usage.UNSUCCESSFUL for run in recorded.runs)
    rows.append(["all", f"{len(recorded.runs):,}", str(bad or ""), *cells(total)])
    terminal.table(["stage", "runs", "failed or stopped", *COLUMNS], rows, "The project so far")
    for state, words in (*usage.UNSUCCESSFUL.items(), (usage.ELSEWHERE, "have results here and no record in MLflow")):
        if chosen := [run.price for run in recorded.runs if run.state == state]:
            terminal.say(f"of this {number(len(chosen), 'run')} {words}: {in_words(price.total(chosen))}")
    if recorded.without_end:
        terminal.say(
            f"{number(recorded.without_end, 'run')} still running or killed: MLflow has no end of them, so they "
            "are not included"
        )
    terminal.say(_measured(recorded))
    terminal.say(familiar(total))
    _print_basis(all_params, recorded.missing)


def _measured(recorded: usage.Usage) -> str:
    """Measured energy of complete flows, next to the estimates of their stages."""
    if not recorded.flows:
        return (
            "the energy of whole flows was not measured: "
            f"{energy.why_not() or 'no flow ran since counters are available'}"
        )
    measured = [
        f"{words} {short(sum(kwh))} kWh in {number(len(kwh), 'flow')}"
        for kind, words in ((energy.CPU, "CPUs and memory"), (energy.GPU, "GPUs"))
        if (kwh := [flow[kind] for flow in recorded.flows if kind in flow])
    ]  # fmt: skip
    estimated = short(sum(flow["estimated"] for flow in recorded.flows))
    return (
        f"measured by the energy counters of the whole machine: {', '.join(measured)}; estimated for the "
        f"same stages: {estimated} kWh"
    )


def familiar(cost: Price) -> str:
    """The CO2e in comparison with table 1 of Strubell et al. 2019."""
    from components.report.benchmarks import PUBLISHED

    rows = PUBLISHED["familiar"]["rows"]
    shares = [f"{price.ratio(cost.co2e_lb, pounds)} {what} ({pounds:,})" for what, pounds in rows.items() if cost.co2e_lb]
    return f"{short(cost.co2e_lb)} lb CO2e: {', '.join(shares)}; {PUBLISHED['familiar']['source']}"


def _print_basis(all_params: params.Params, missing: str) -> None:
    if missing:
        terminal.say(
            f"no MLflow records ({missing}): runs that failed, were stopped or repeated are not included", "yellow"
        )
    terminal.say(basis(all_params), "dim")


def overview(all_params: params.Params) -> None:
    """Print a line for each model and each study that has run."""
    prices, rows = _prices(all_params), []
    with repository.at_once():
        for name in all_params.all_models:
            costs = _of_model(all_params, name, prices)
            if any(of_group for group, of_group in costs.items() if registry.declared(group).makes_model):
                rows.append([name, "model", *_sum(costs)])
        for name in all_params.studies:
            if (costs := _of_study(all_params, name, prices)) and any(costs[variant] for variant in all_params.studies[name].variants):
                rows.append([name, "study", *_sum(costs)])
    terminal.table(
        ["name", "", "stages", *COLUMNS], rows, "Cost of each model and study, with all stages that it needs"
    )
    terminal.say(
        "stages that several need are counted in each, so these rows have no meaningful sum: see `sesame price --all`"
    )
    _print_basis(all_params, usage.why_no_mlflow())


def one(all_params: params.Params, name: str, tokens: float | None, times: float | None) -> None:
    """Print the cost of a model or a study, and the predicted cost and loss of more tokens.

    Raises SesameError if the name is neither.
    """
    models, prices = all_params.all_models, _prices(all_params)
    if name not in models and name not in all_params.studies:
        raise SesameError(f"no model or study {name!r} (models: {', '.join(models)}; studies: {', '.join(all_params.studies)})")
    if (tokens or times) and name not in all_params.models:
        cure = f"name one of {', '.join(all_params.models)}"
        raise SesameError(
            f"{name} is not pre-trained here, and --tokens and --times are about a model of `models`: {cure}"
        )
    with repository.at_once():
        costs = (_of_model if name in models else _of_study)(all_params, name, prices)
        stages = [each.name for each in graph.plan(_last_stages(all_params, name))]
    rows = [[group, *_sum({group: of_group})] for group, of_group in {**costs, "all": _all(costs)}.items() if of_group]
    terminal.table([name, "stages", *COLUMNS], rows)
    if name in models:
        _per_task(all_params, name, costs, prices)
    by_table = [run.price for run in _runs_of_table(all_params, name, prices)]
    _print_gaps(all_params, stages, prices, by_table)
    if by_table and not ran_as_declared(all_params, name):
        terminal.say(f"the table is not of the settings that are declared now: `sesame study {name}` brings it up to date", "yellow")
    if tokens or times:
        _forecast(all_params, name, tokens, times)


def _prices(all_params: params.Params) -> dict[str, Price]:
    """Stage with results here, or in the last report -> the price of the run that wrote them.

    A run with other settings than those of params.yaml now is left out: it was of another model of the same name.
    """
    results = registry.declared_now(all_params, estimates.lasting(graph.lock_entries()))
    return {name: price.run_price(all_params, name.partition("@")[0], metrics["cost"]) for name, metrics in results.items()}


def _last_stages(all_params: params.Params, name: str) -> list[str]:
    """The stages that a model or a study ends in: of a model its scores, or where it has none its stage."""
    if name not in all_params.all_models:
        return [f"study@{name}"]
    scored = [
        f"{entry.stage}@{entry.name}" for stage in registry.stages().values() if stage.scores
        for entry in stage.entries(all_params) if entry.model == name
    ]  # fmt: skip
    [made_by] = [stage.name for stage in registry.stages().values() if stage.makes_model and name in getattr(all_params, stage.section)]
    return scored or [f"{made_by}@{name}"]


def _of_model(all_params: params.Params, name: str, prices: Mapping[str, Price]) -> CostsByGroup:
    """By the kind of stage, in the order of the pipeline."""
    costs: CostsByGroup = defaultdict(list)
    for each in graph.plan(_last_stages(all_params, name)):
        if each.name in prices:
            costs[each.name.partition("@")[0]].append(prices[each.name])
    return costs


def _of_study(all_params: params.Params, name: str, prices: Mapping[str, Price]) -> CostsByGroup:
    """By variant; a study whose trainings are not here by its table."""
    study = all_params.studies[name]
    variants = {member.name: member.variant for member in params.members({name: study})}
    variants |= {trial.name: trial.variant for trial in params.rate_trials({name: study})}
    costs: CostsByGroup = {"text and tasks": [], **{variant: [] for variant in study.variants}, "comparison": []}
    for each in graph.plan(_last_stages(all_params, name)):
        group, _, name_in_group = each.name.partition("@")
        if each.name in prices:
            trained = variants[name_in_group] if group in usage.OF_VARIANTS and name_in_group in variants else None
            costs[trained or ("comparison" if group == "study" else "text and tasks")].append(prices[each.name])
    for run in _runs_of_table(all_params, name, prices):
        costs[run.stage.partition("@")[2].removeprefix(f"{name}-")].append(run.price)
    return costs


def _runs_of_table(all_params: params.Params, name: str, prices: Mapping[str, Price]) -> list[usage.StageRun]:
    return usage.runs_of_table(all_params, name, prices) if name in all_params.studies else []


def _all(costs: CostsByGroup) -> list[Price]:
    return [each for of_group in costs.values() for each in of_group]


def _sum(costs: CostsByGroup) -> list[str]:
    """How many stages, and what they cost together."""
    return [str(len(_all(costs))), *cells(price.total(_all(costs)))]


def _per_task(all_params: params.Params, name: str, costs: CostsByGroup, prices: Mapping[str, Price]) -> None:
    """The model and its text shared out among the tasks that use it, and what one more task costs."""
    tasks = [task for task in all_params.finetune.tasks if f"finetune@{name}-{task}" in prices and name in all_params.finetune.models]
    if tasks:
        groups = [group for group in costs if group != "task" and not registry.declared(group).scores]
        shared = price.total(each for group in groups for each in costs[group])
        tuned = price.total(prices[f"finetune@{name}-{task}"] for task in tasks) * (1 / len(tasks))
        terminal.say(
            f"a task costs {in_words(shared * (1 / len(tasks)) + tuned)}, where {len(tasks)} share the model and its text; "
            f"one more task costs {in_words(tuned)} ({number(len(all_params.finetune.seeds), 'seed')} from "
            f"each of {', '.join(all_params.finetune.inits)})"
        )


def _print_gaps(all_params: params.Params, stages: Sequence[str], prices: Mapping[str, Price], by_table: Sequence[Price]) -> None:
    """Print which of these stages have no figures, what MLflow has recorded of them, and the assumptions."""
    measured = [each for each in stages if each != repository.RESOLVE and not graph.is_digest(each)]
    without_figures = [each for each in measured if each not in prices]
    if by_table:
        terminal.say(
            "trainings without results here are estimated from the seconds in the study's table, on one core each",
            "yellow",
        )
    elif without_figures:
        names = terminal.some(without_figures)
        terminal.say(f"{number(len(without_figures), 'stage')} left out, never run or without results here: {names}", "yellow")
    missing = usage.why_no_mlflow()
    if not missing:
        runs = [run for run in usage.runs_in_mlflow(all_params)[0] if run.stage in set(stages)]
        bad, total = sum(run.state in usage.UNSUCCESSFUL for run in runs), price.total(run.price for run in runs)
        terminal.say(f"MLflow has {number(len(runs), 'run')} of these stages, {bad} failed or stopped: {in_words(total)}")
    _print_basis(all_params, missing)


def _forecast(all_params: params.Params, name: str, tokens: float | None, times: float | None) -> None:
    """Print the predicted cost of a pre-training on more tokens, at the measured rate, and its loss by a study's
    curve."""
    metrics, entry = last_metrics("pretrain", name, name in all_params.of_studies("models")), registry.entry(all_params, "pretrain", name)
    if not metrics.get("tokens") or not entry or not registry.is_of(metrics, entry.settings):
        raise SesameError(
            f"{name} was not pre-trained here yet, so its speed is not known: `sesame run pretrain@{name}` first"
        )
    read, prices = metrics["tokens"], price.run_price(all_params, "pretrain", metrics["cost"])
    prices *= read / metrics["cost"]["tokens"]  # of one pre-training, where the stage has several
    wanted = tokens or times * read
    encoding = all_params.models[name].encoding
    text = last_metrics("encode", encoding, encoding in all_params.of_studies("encodings"))["train"]["tokens"]
    terminal.say(
        f"a pre-training on {wanted:,.0f} tokens, {short(wanted / read)} times the {read:,} tokens so far "
        f"and {short(wanted / text)} epochs of its text, costs "
        f"{in_words(prices * (wanted / read))}, at the measured {short(read / prices.seconds)} tokens per second",
        "bold",
    )
    terminal.say(gain(all_params, name, read, wanted), "bold")


def ran_as_declared(all_params: params.Params, study: str) -> bool:
    """Whether a study's table is of the model, variants, seeds and budgets that are declared now. One of an older version does not say."""
    path, now = REPORTS / f"{study}.json", registry.entry(all_params, "study", study).settings
    ran = read_json(path).get("settings", {}) if path.exists() else {}
    # the model's own budget has no effect in a study
    sides = [each | {"model": {**each.get("model", {}), "budget": None}} for each in (ran, now)]
    return all(sides[0].get(key) == sides[1][key] for key in ("model", "encoding", "variants", "seeds", "budget", "milestones"))


def gain(all_params: params.Params, name: str, now: float, then: float) -> str:
    """The predicted gain of more compute, by the first study that trained this model with several budgets."""
    question = "its loss can't be predicted"
    fitting = [
        (study, variant) for study, block in all_params.studies.items()
        if block.model == name and block.milestones and not (block.encoding or block.learning_rates)
        for variant, declared in block.variants.items() if declared == params.Variant(recipe=declared.recipe)
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
    if not ran_as_declared(all_params, study):
        return f"{question}: the study {study} was not run with the settings that are declared now; run `sesame study {study}`"
    budgets = [row for row in outputs.rows(path) if row["variant"] == variant and row["loss"]]
    figures = {key: [float(row[key] or 0) for row in budgets] for key in ("tokens", "loss", "loss_std", "n")}
    try:
        curve = scaling.fit(figures["tokens"], figures["loss"], figures["loss_std"], [int(n) for n in figures["n"]])
    except SesameError as error:
        return f"{question} from the study {study}: {error}"
    return (
        f"by the curve of study {study} ({len(budgets)} budgets up to {max(figures['tokens']):,.0f} tokens) the loss goes from "
        f"{curve.at(now).shown} to {curve.at(then).shown}, {curve.gain(now, then).shown} lower, and its lower limit is "
        f"{curve.floor.shown}; this is optimistic, as the smaller budgets were measured before the "
        "learning rate had decayed"
    )
