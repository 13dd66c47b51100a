"""The figures of the report, collected from the metrics and other files of the stages."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd

from components import params
from components.comparison import calibration as calibration_metrics
from components.comparison import price, verdicts
from components.core import storage
from components.core.frames import read_csv
from components.report import STARTS
from components.stages import registry
from components.stages.outputs import read_json, read_lines, reading

SCORES = [
    "model", "task", "method", "pair", "init", "metric", "mean", "std", "n", "protocol", "trainable_parameters",
    "median", "trainable_share",
    "seconds", "memory_mib", "cut", "lost", "outside", "stage",
]  # fmt: skip
GAINS = ["model", "task", "metric", "against", "difference", "low", "high", "p", "verdict", "detectable"]
COSTS = ["stage", "seconds", "tokens", "flops", "kwh", "core_hours", "gpu_hours", "co2e_kg", "usd_preemptible", "usd_on_demand"]
CALIBRATION = ["model", "task", "method", "init", "expected_calibration_error", "ece_std", "brier_score", "brier_std", "temperature", "n"]
LEARNING = ["model", "task", "metric", "start", "examples", "mean", "std", "n"]
PRETRAINING = [
    "model", "parameters", "tokens", "steps", "loss", "loss_se", "perplexity", "bits_per_byte", "tokens_per_second", "context_free_loss",
    "ngram_loss", "ngram_perplexity", "ngram_bits_per_byte", "pretrainings", "bits_per_byte_mean", "bits_per_byte_std",
]  # fmt: skip


def read(all_params: params.Params) -> dict[tuple[str, str], dict]:
    """The metrics of every declared stage. Raises SesameError with the name of a stage without metrics."""
    return {key: read_json(storage.metrics_path(*key)) for key in registry.reported(all_params)}


def named(measured: dict) -> str:
    """A model's name in every table: with the tasks on which it was fine-tuned before."""
    return f"{measured['model']} ({', '.join(measured['derived'])})" if measured["derived"] else measured["model"]


def parts(metrics: dict[tuple[str, str], dict]) -> Iterator[tuple[dict, dict]]:
    """For each task, model, method and start, and each baseline: its description, and its figures by split."""
    for (group, _), measured in metrics.items():
        if group in ("finetune", "adapt"):
            about = measured | {"model": named(measured), "method": measured.get("recipe", measured["method"]), "stage": group}
            for init in ("pretrained", *STARTS):
                if init in measured:
                    yield about | {"init": init} | measured["costs"][init], measured[init]
        elif group == "baseline":
            for name, splits in measured["baselines"].items():
                yield measured | splits | {"model": name, "method": name, "init": "baseline", "stage": group}, splits


def scores(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """One row for each of `parts`, with the task's main metric."""
    rows = []
    for about, splits in parts(metrics):
        figures = splits[about["split"]][about["metric"]]
        about |= {key: about[key][about["split"]] for key in ("cut", "lost") if key in about}
        if "outside" in about:
            about |= {"outside": fmean(about["outside"][about["init"]][about["split"]])}
        rows.append({key: about.get(key) for key in SCORES} | {key: figures[key] for key in ("mean", "median", "std", "n")})
    return pd.DataFrame(rows, columns=SCORES).astype({key: float for key in ("mean", "median", "std", "outside")})  # None becomes NaN


@dataclass(frozen=True)
class Compared:
    """A fine-tuned model minus another start or a baseline on the same task."""

    difference: verdicts.Difference
    verdict: str
    """One of `verdicts.verdicts`, corrected over all comparisons of the page on the same question."""


def comparisons(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> dict[tuple[str, str, str], Compared]:
    """(model's name in tables, task, another start or a baseline) -> the scores of `finetune` minus the other ones.

    A model is compared with random weights of its architecture and its token vectors alone, and with every baseline: two questions, and
    Holm's correction is over all comparisons on the same one.
    """
    tuned = [measured for (group, _), measured in metrics.items() if group == "finetune"]
    names, compared = {measured["model"]: named(measured) for measured in tuned}, {}
    for task in dict.fromkeys(measured["task"] for measured in tuned):
        on_task = [measured for measured in tuned if measured["task"] == task]
        starts = [(measured["model"], init) for measured in on_task for init in ("pretrained", *STARTS) if init in measured]
        baselines = list(metrics["baseline", task]["baselines"])
        sources = {start: [(Path("data/scores", start[0], task), start[1])] for start in starts}
        sources |= {("baseline", method): [(Path("data/baselines", task), method)] for method in baselines}
        _, sides = verdicts.sides(all_params, task, on_task[0]["split"], on_task[0]["metric"], sources)
        for model in dict.fromkeys(model for model, init in starts if init == "pretrained"):
            others = [(model, start) for start in STARTS if (model, start) in sides]
            for other in [*others, *(("baseline", method) for method in baselines)]:
                compared[names[model], task, other[1]] = verdicts.difference(sides[model, "pretrained"], sides[other])
    result = {}
    for with_starts in (True, False):
        differences = {key: difference for key, difference in compared.items() if (key[2] in STARTS) == with_starts}
        words = verdicts.verdicts(list(differences.values()))
        result |= {key: Compared(difference, verdict) for (key, difference), verdict in zip(differences.items(), words, strict=True)}
    return result


def gains(table: pd.DataFrame, compared: dict[tuple[str, str, str], Compared]) -> list[dict]:
    """For each model and task of `finetune`: scores from pre-trained weights and other starts, the best baseline, and the differences."""
    rows = []
    for (model, task), scored in table[table["stage"] == "finetune"].groupby(["model", "task"], sort=False):
        by_init = scored.set_index("init")
        against = {other: one for (*key, other), one in compared.items() if key == [model, task]}
        # baselines with an undefined score are left out
        baselines = table[(table["init"] == "baseline") & (table["task"] == task)].dropna(subset="mean").sort_values("mean")
        best = baselines.iloc[-1] if len(baselines) else None
        told = {other: one.verdict for other, one in against.items() if other not in STARTS and one.verdict != "undefined"}
        level = [other for other, verdict in told.items() if verdict != "higher"]
        rows.append({
            "model": model, "task": task, "metric": by_init.loc["pretrained"]["metric"], "pretrained": by_init.loc["pretrained"],
            "starts": {start: by_init.loc[start] for start in STARTS if start in by_init.index}, "baseline": best,
            "gains": {start: against[start] for start in STARTS if start in against},
            "lead": None if best is None else against.get(best["model"]),
            "ahead": bool(told) and not level, "not_ahead_of": level,
        })  # fmt: skip
    return rows


def comparison_table(table: pd.DataFrame, compared: dict[tuple[str, str, str], Compared]) -> pd.DataFrame:
    """One row per comparison: the difference, its 95 % interval, the verdict after correction, and the smallest effect that it could
    have detected alone."""
    metrics = dict(zip(table["task"], table["metric"], strict=True))
    rows = [
        (model, task, metrics[task], other, one.difference.difference, one.difference.low, one.difference.high, one.difference.p,
         one.verdict, one.difference.detectable)
        for (model, task, other), one in compared.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=GAINS)


def learning(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """One row per number of labelled examples of each learning curve: both starts and the baselines.

    It goes up to those of `finetune` where its recipe has `min_steps`, too.
    """
    rows = []
    for (group, name), measured in metrics.items():
        if group != "learning_curve":
            continue
        task, metric, split = measured["task"], measured["metric"], measured["split"]
        points = {int(examples): point for examples, point in measured["points"].items()}
        rows_of_task = metrics["task", task]["examples"]["train"]
        examples = min(all_params.finetune.train_examples or rows_of_task, rows_of_task)
        if ("finetune", name) in metrics:
            starts = {init: metrics["finetune", name][init][split][metric] for init in all_params.finetune.inits}
            baselines = metrics["baseline", task]["baselines"]
            others = {key: baselines[key][split][metric] for key in all_params.learning_curve.baselines if key in baselines}
            recipe = all_params.finetune.recipes[measured["model"]]
            # not over a point that was measured, nor with fewer steps than the others have
            if examples not in points and all_params.learning_curve.lengthened(recipe, examples) == recipe:
                points[examples] = starts | others
        for examples, point in sorted(points.items()):
            about = {"model": named(measured), "task": task, "metric": metric, "examples": examples}
            rows += [about | {"start": key} | figures for key, figures in point.items() if isinstance(figures, dict)]
    return pd.DataFrame(rows, columns=LEARNING).astype({key: float for key in ("mean", "std")})


def calibration(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """One row per model, task, method and start with probabilities: their calibration on the reported split."""
    rows = []
    for (group, _), measured in metrics.items():
        for init, splits in measured.get("calibration", {}).items() if group in ("finetune", "adapt", "baseline") else ():
            if group == "baseline":
                about = (init, measured["task"], init, "baseline")
            else:
                about = (named(measured), measured["task"], measured.get("recipe", measured["method"]), init)
            figures = splits[measured["split"]]
            error, brier = figures["expected_calibration_error"], figures["brier_score"]
            values = (error["mean"], error["std"], brier["mean"], brier["std"], figures["temperature"]["mean"], error["n"])
            rows.append(dict(zip(CALIBRATION, (*about, *values), strict=True)))
    return pd.DataFrame(rows, columns=CALIBRATION)


def reliability(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> dict[str, dict[str, np.ndarray]]:
    """Task -> name of a model of `finetune` in tables -> bins (bins, 3) over all seeds: count, mean probability and accuracy, from
    pre-trained weights on the reported split."""
    drawn: dict[str, dict[str, np.ndarray]] = {}
    for (group, _), measured in metrics.items():
        if group == "finetune" and "calibration" in measured:
            path = Path("data/scores", measured["model"], measured["task"], "predictions.jsonl")
            rows = [row for row in read_lines(path) if (row["init"], row["split"]) == ("pretrained", measured["split"])]
            labels = all_params.tasks[measured["task"]].labels
            probabilities = np.array([row["probabilities"] for row in rows])
            gold = np.array([labels.index(row["label"]) for row in rows])
            drawn.setdefault(measured["task"], {})[named(measured)] = calibration_metrics.reliability(probabilities, gold)
    return drawn


def pretraining(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """One row per model: the figures of its first pre-training, and the bits per byte of all."""
    rows = []
    for (group, name), measured in metrics.items():
        if group == "pretrain":
            bits = [one["bits_per_byte"] for one in measured.get("seeds", {"": measured}).values() if "bits_per_byte" in one]
            of_all = {"bits_per_byte_mean": fmean(bits)} if bits else {}
            of_all |= {"bits_per_byte_std": stdev(bits)} if len(bits) > 1 else {}
            rows.append({"model": name, "pretrainings": len(measured.get("seeds", [name])), **measured, **of_all})
    return pd.DataFrame(rows, columns=PRETRAINING)


def once(metrics: dict[tuple[str, str], dict]) -> list[str]:
    """The models that were fine-tuned from a single pre-training."""
    counts = {named(measured): measured.get("pretrainings", 1) for (group, _), measured in metrics.items() if group == "finetune"}
    return [model for model, count in counts.items() if count == 1]


def costs(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """One row per stage; energy is estimated, not measured, and so is what follows from it."""
    rows = [
        {"stage": f"{group}@{name}"} | measured["cost"] | asdict(price.run_price(all_params, group, measured["cost"]))
        for (group, name), measured in metrics.items()
    ]
    return pd.DataFrame(rows, columns=COSTS)


def price_tags(all_params: params.Params, metrics: dict[tuple[str, str], dict], published: dict) -> list[dict]:
    """Table 3 of Strubell et al. 2019, with a row for one pre-training of each of our models, the mean over its seeds, and one for all
    stages; their watts exclude the PUE."""
    rows = [{"model": model} | figures for model, figures in published["rows"].items()]
    prices = {key: price.run_price(all_params, key[0], measured["cost"]) for key, measured in metrics.items()}
    ours = {
        f"{name}, ours": prices[group, name] * (1 / len(measured.get("seeds", [name])))  # a stage pre-trains with all seeds
        for (group, name), measured in metrics.items() if group == "pretrain"
    }  # fmt: skip
    for model, one in (ours | {"all stages here": price.total(prices.values())}).items():
        if not one.seconds:
            continue
        hours = one.seconds / 3600
        rented = [(one.core_hours, "CPU core"), (one.gpu_hours, "GPU")]
        rows.append({
            "model": model, "hours": hours, "kwh": one.kwh, "co2e_lb": one.co2e_lb,
            "hardware": ", ".join(f"{kind} x {used / hours:.1f}" for used, kind in rented if used),
            "watts": 1000 * one.kwh / all_params.energy.pue / hours,
            "usd_preemptible": one.usd_preemptible, "usd_on_demand": one.usd_on_demand,
        })  # fmt: skip
    return rows


def bars(table: pd.DataFrame) -> pd.DataFrame:
    """One labelled bar per score, for `dvc plots show`."""
    names = [" ".join(row) for row in table[["task", "model", "method", "init"]].itertuples(index=False)]
    return pd.DataFrame({"score": names, "mean": table["mean"].to_list()})


def curves(all_params: params.Params) -> pd.DataFrame:
    """The validation curve of every model: step, tokens, losses."""
    reads = {name: model.loss_of for name, model in all_params.main("models").items()}
    frames = [csv(Path("data/curves", f"{name}.csv")).assign(model=name, reads=way) for name, way in reads.items()]
    return pd.concat(frames) if frames else pd.DataFrame(columns=["model", "reads", "tokens", "loss", "bits_per_byte"])


def samples(all_params: params.Params) -> dict[str, list[dict[str, str]]]:
    """What each model generated from its prompts."""
    return {name: read_json(Path("data/samples", f"{name}.json")) for name in all_params.main("models")}


def cards(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> list[dict]:
    """One card per corpus, mix and task: what it is, and its size."""

    def card(kind: str, name: str, language: str, licence: str, source: str) -> dict:
        return {"name": name, "kind": kind, "language": language, "licence": licence, "source": source, "metrics": metrics[kind, name]}

    listed = []
    for name, corpus in all_params.corpora.items():
        sources = sorted({part.source.shown for part in corpus.parts})
        listed.append(card("corpus", name, corpus.language, corpus.licence, ", ".join(sources)))
    for name, mix in all_params.mixes.items():
        source = f"{mix.corpus} and the unlabelled training text of {', '.join(mix.tasks)}; sentences of their other splits taken out"
        listed.append(card("mix", name, all_params.corpora[mix.corpus].language, "as its parts", source))
    for name, task in all_params.tasks.items():
        source = task.train.source.shown + (f" ({task.note})" if task.note else "")
        listed.append(card("task", name, task.language, task.licence, source))
    for name, published in all_params.published_vectors.items():
        listed.append(card("published_vectors", name, "", published.licence, published.source.shown))
    for name, checkpoint in all_params.checkpoints.items():
        listed.append(card("checkpoint", name, "", checkpoint.licence, checkpoint.source.shown))
    return listed


def unguarded(all_params: params.Params) -> dict[str, list[str]]:
    """Tasks with scores -> the models whose pre-training text their dev and test text was not held out of."""
    tuned = (all_params.finetune, all_params.adapt)
    pairs = dict.fromkeys((task, model) for block in tuned for task in block.tasks for model in block.models)
    result: dict[str, list[str]] = {}
    for task, model in pairs:
        if not all(all_params.held_out(corpus, task) for corpus in all_params.corpora_of(model) or ()):
            result.setdefault(task, []).append(model)
    return result


def of_unknown_text(all_params: params.Params) -> list[str]:
    """Models with scores that come from elsewhere."""
    models = dict.fromkeys((*all_params.finetune.models, *all_params.adapt.models))
    return [model for model in models if all_params.corpora_of(model) is None]


def csv(path: Path) -> pd.DataFrame:
    """A table that a stage wrote, empty where the stage had no row for it. Raises SesameError where it is missing or broken."""
    with reading(path):
        return read_csv(path) if path.read_text(encoding="utf-8").strip() else pd.DataFrame()
