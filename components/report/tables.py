"""The figures of the report, gathered from the metrics files and samples that the stages wrote."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd

from components import params
from components.comparison import calibration as believed
from components.comparison import price, verdicts
from components.core import storage
from components.core.frames import of_csv
from components.report import STARTS
from components.stages import registry

SCORES = [
    "model", "task", "method", "pair", "init", "metric", "mean", "std", "n", "protocol", "trainable_parameters",
    "median", "trainable_share",
    "seconds", "memory_mib", "cut", "lost", "outside", "stage",
]  # fmt: skip
GAINS = ["model", "task", "metric", "against", "difference", "low", "high", "p", "verdict", "detectable"]
COSTS = ["stage", "seconds", "tokens", "flops", "kwh", "core_hours", "gpu_hours", "co2e_kg", "usd_preemptible", "usd_on_demand"]
CALIBRATION = ["model", "task", "init", "expected_calibration_error", "ece_std", "brier_score", "brier_std", "temperature", "n"]
LEARNING = ["model", "task", "metric", "start", "examples", "mean", "std", "n"]
PRETRAINING = [
    "model", "parameters", "tokens", "steps", "loss", "loss_se", "perplexity", "bits_per_byte", "tokens_per_second", "context_free_loss",
    "ngram_loss", "ngram_perplexity", "ngram_bits_per_byte", "pretrainings", "bits_per_byte_mean", "bits_per_byte_std",
]  # fmt: skip


def read(all_params: params.Params) -> dict[tuple[str, str], dict]:
    """The metrics of every declared stage. Raises SesameError that names the stage whose metrics are not there."""
    return {key: storage.read_json(storage.metrics_path(*key)) for key in registry.reported(all_params)}


def named(measured: dict) -> str:
    """A model as every table calls it: with the tasks that it was tuned on before."""
    return f"{measured['model']} ({', '.join(measured['derived'])})" if measured["derived"] else measured["model"]


def parts(metrics: dict[tuple[str, str], dict]) -> Iterator[tuple[dict, dict]]:
    """Of each task, model, method and start, and each baseline: what it is, and its figures by split."""
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
    """A row for each of `parts`, by the task's own metric."""
    rows = []
    for about, splits in parts(metrics):
        figures = splits[about["split"]][about["metric"]]
        about |= {key: about[key][about["split"]] for key in ("cut", "lost") if key in about}
        if "outside" in about:
            about |= {"outside": fmean(about["outside"][about["init"]][about["split"]])}
        rows.append({key: about.get(key) for key in SCORES} | {key: figures[key] for key in ("mean", "median", "std", "n")})
    return pd.DataFrame(rows, columns=SCORES).astype({key: float for key in ("mean", "median", "std", "outside")})  # undefined is NaN here


@dataclass(frozen=True)
class Judged:
    """A model fine-tuned from its own weights, less something else on the same task."""

    difference: verdicts.Difference
    verdict: str
    """One of `verdicts.verdicts`, over all comparisons of the page that answer the same question."""


def comparisons(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> dict[tuple[str, str, str], Judged]:
    """(model as tables call it, task, another start or a baseline) -> what `finetune` gave less that.

    A model is held against random weights of its architecture and its own token vectors, and against every baseline: two questions, and
    Holm's correction is over all comparisons that answer the same one.
    """
    tuned = [measured for (group, _), measured in metrics.items() if group == "finetune"]
    names, compared = {own["model"]: named(own) for own in tuned}, {}
    for task in dict.fromkeys(measured["task"] for measured in tuned):
        arms = [(own["model"], init) for own in tuned if own["task"] == task for init in ("pretrained", *STARTS) if init in own]
        split, metric = next((own["split"], own["metric"]) for own in tuned if own["task"] == task)
        baselines = list(metrics["baseline", task]["baselines"])
        places = {arm: [(Path("data/scores", arm[0], task), arm[1])] for arm in arms}
        places |= {("baseline", method): [(Path("data/baselines", task), method)] for method in baselines}
        _, sides = verdicts.sides(all_params, task, split, metric, places)
        for model, init in arms:
            others = [(model, start) for start in STARTS if (model, start) in sides]
            for other in [*others, *(("baseline", method) for method in baselines)] if init == "pretrained" else ():
                compared[names[model], task, other[1]] = verdicts.difference(sides[model, init], sides[other])
    judged = {}
    for question in (True, False):
        asked = {key: difference for key, difference in compared.items() if (key[2] in STARTS) == question}
        said = verdicts.verdicts(list(asked.values()))
        judged |= {key: Judged(difference, verdict) for (key, difference), verdict in zip(asked.items(), said, strict=True)}
    return judged


def gains(table: pd.DataFrame, compared: dict[tuple[str, str, str], Judged]) -> list[dict]:
    """For each model and task of `finetune`: from its own weights, from other starts, the best baseline, and what it has less each."""
    rows = []
    for (model, task), scored in table[table["stage"] == "finetune"].groupby(["model", "task"], sort=False):
        by_init = scored.set_index("init")
        against = {other: judged for (*place, other), judged in compared.items() if place == [model, task]}
        # a baseline whose score is undefined is none to be held against
        baselines = table[(table["init"] == "baseline") & (table["task"] == task)].dropna(subset="mean").sort_values("mean")
        best = baselines.iloc[-1] if len(baselines) else None
        said = {judged.verdict for other, judged in against.items() if other not in STARTS} - {"undefined"}
        rows.append({
            "model": model, "task": task, "metric": by_init.loc["pretrained"]["metric"], "pretrained": by_init.loc["pretrained"],
            "starts": {start: by_init.loc[start] for start in STARTS if start in by_init.index}, "baseline": best,
            "gains": {start: against[start] for start in STARTS if start in against},
            "lead": None if best is None else against.get(best["model"]), "ahead": said == {"higher"},
        })  # fmt: skip
    return rows


def judged(table: pd.DataFrame, compared: dict[tuple[str, str, str], Judged]) -> pd.DataFrame:
    """A row for each comparison: the difference, its 95 % interval, the verdict after correction, and the smallest effect that it could
    have seen by itself."""
    metrics = dict(zip(table["task"], table["metric"], strict=True))
    rows = [
        (model, task, metrics[task], other, own.difference.difference, own.difference.low, own.difference.high, own.difference.p,
         own.verdict, own.difference.detectable)
        for (model, task, other), own in compared.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=GAINS)


def learning(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each number of labelled examples, of each learning curve: both starts and the baselines, up to those of `finetune`."""
    rows = []
    for (group, name), measured in metrics.items():
        if group != "learning_curve":
            continue
        task, metric, split = measured["task"], measured["metric"], measured["split"]
        points = {int(examples): point for examples, point in measured["points"].items()}
        examples = all_params.finetune.train_examples or metrics["task", task]["examples"]["train"]
        if ("finetune", name) in metrics:
            starts = {init: metrics["finetune", name][init][split][metric] for init in all_params.finetune.inits}
            baselines = metrics["baseline", task]["baselines"]
            beside = {key: baselines[key][split][metric] for key in all_params.learning_curve.baselines if key in baselines}
            points[examples] = starts | beside
        for examples, point in sorted(points.items()):
            about = {"model": named(measured), "task": task, "metric": metric, "examples": examples}
            rows += [about | {"start": key} | figures for key, figures in point.items() if isinstance(figures, dict)]
    return pd.DataFrame(rows, columns=LEARNING).astype({key: float for key in ("mean", "std")})


def calibration(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each model, task and start with probabilities: how far these are to be believed, on the split that is judged."""
    rows = []
    for (group, _), measured in metrics.items():
        for init, splits in measured.get("calibration", {}).items() if group in ("finetune", "adapt", "baseline") else ():
            about = (init, measured["task"], "baseline") if group == "baseline" else (named(measured), measured["task"], init)
            own = splits[measured["split"]]
            error, brier = own["expected_calibration_error"], own["brier_score"]
            figures = (error["mean"], error["std"], brier["mean"], brier["std"], own["temperature"]["mean"], error["n"])
            rows.append(dict(zip(CALIBRATION, (*about, *figures), strict=True)))
    return pd.DataFrame(rows, columns=CALIBRATION)


def reliability(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> dict[str, dict[str, np.ndarray]]:
    """Task -> model of `finetune` as tables call it -> bins (bins, 3) over all seeds: answers, their mean probability, the share of right
    ones; from the models' own weights, on the split that is judged."""
    drawn: dict[str, dict[str, np.ndarray]] = {}
    for (group, _), measured in metrics.items():
        if group == "finetune" and "calibration" in measured:
            path = Path("data/scores", measured["model"], measured["task"], "predictions.jsonl")
            rows = [row for row in storage.read_lines(path) if (row["init"], row["split"]) == ("pretrained", measured["split"])]
            labels = all_params.tasks[measured["task"]].labels
            likely, gold = np.array([row["probabilities"] for row in rows]), np.array([labels.index(row["label"]) for row in rows])
            drawn.setdefault(measured["task"], {})[named(measured)] = believed.reliability(likely, gold)
    return drawn


def pretraining(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each model: the figures of its first pre-training, and the bits per byte of all."""
    rows = []
    for (group, name), measured in metrics.items():
        if group == "pretrain":
            bits = [own["bits_per_byte"] for own in measured.get("seeds", {"": measured}).values() if "bits_per_byte" in own]
            of_all = {"bits_per_byte_mean": fmean(bits)} if bits else {}
            of_all |= {"bits_per_byte_std": stdev(bits)} if len(bits) > 1 else {}
            rows.append({"model": name, "pretrainings": len(measured.get("seeds", [name])), **measured, **of_all})
    return pd.DataFrame(rows, columns=PRETRAINING)


def once(metrics: dict[tuple[str, str], dict]) -> list[str]:
    """The models that were tuned from a single pre-training."""
    counts = {named(own): own.get("pretrainings", 1) for (group, _), own in metrics.items() if group == "finetune"}
    return [model for model, count in counts.items() if count == 1]


def costs(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each stage; energy is estimated, not measured, and what follows from it, too."""
    rows = [
        {"stage": f"{group}@{name}"} | measured["cost"] | asdict(price.run_price(all_params, group, measured["cost"]))
        for (group, name), measured in metrics.items()
    ]
    return pd.DataFrame(rows, columns=COSTS)


def price_tags(all_params: params.Params, metrics: dict[tuple[str, str], dict], published: dict) -> list[dict]:
    """Strubell et al. 2019, table 3, with a row for each of our pre-trainings and one for all stages; their watts are without the PUE."""
    rows = [{"model": model} | figures for model, figures in published["rows"].items()]
    prices = {key: price.run_price(all_params, key[0], measured["cost"]) for key, measured in metrics.items()}
    ours = {f"{name}, ours": own for (group, name), own in prices.items() if group == "pretrain"}
    for model, own in (ours | {"all stages here": price.total(prices.values())}).items():
        if not own.seconds:
            continue
        hours = own.seconds / 3600
        rented = [(own.core_hours, "CPU core"), (own.gpu_hours, "GPU")]
        rows.append({
            "model": model, "hours": hours, "kwh": own.kwh, "co2e_lb": own.co2e_lb,
            "hardware": ", ".join(f"{kind} x {used / hours:.1f}" for used, kind in rented if used),
            "watts": 1000 * own.kwh / all_params.energy.pue / hours,
            "usd_preemptible": own.usd_preemptible, "usd_on_demand": own.usd_on_demand,
        })  # fmt: skip
    return rows


def bars(table: pd.DataFrame) -> pd.DataFrame:
    """A labelled bar for each score, for `dvc plots show`."""
    names = [" ".join(row) for row in table[["task", "model", "method", "init"]].itertuples(index=False)]
    return pd.DataFrame({"score": names, "mean": table["mean"].to_list()})


def curves(all_params: params.Params) -> pd.DataFrame:
    """The validation rows of every model: step, tokens, losses."""
    read = {name: model.loss_of for name, model in all_params.main("models").items()}
    frames = [csv(Path("data/curves", f"{name}.csv")).assign(model=name, reads=reads) for name, reads in read.items()]
    return pd.concat(frames) if frames else pd.DataFrame(columns=["model", "reads", "tokens", "loss", "bits_per_byte"])


def samples(all_params: params.Params) -> dict[str, list[dict[str, str]]]:
    """What each model made of its prompts."""
    return {name: storage.read_json(Path("data/samples", f"{name}.json")) for name in all_params.main("models")}


def cards(all_params: params.Params, metrics: dict[tuple[str, str], dict]) -> list[dict]:
    """A line for each corpus, mix and task: what it is and how much."""

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


def unguarded(all_params: params.Params) -> list[str]:
    """Tasks with scores whose dev and test text was not taken out of what the models were trained on."""
    guarded = {task for mix in all_params.mixes.values() for task in (*mix.tasks, *mix.also_held_out)}
    return [task for task in dict.fromkeys((*all_params.finetune.tasks, *all_params.adapt.tasks)) if task not in guarded]


def csv(path: Path) -> pd.DataFrame:
    """A table that a stage wrote. Raises SesameError where it is not there, or broken."""
    with storage.reading(path):
        return of_csv(path)
