"""The figures of the report, gathered from the metrics files and samples that the stages wrote."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from components import params, stage

SCORES = [
    "model", "task", "method", "init", "metric", "mean", "std", "n", "protocol", "trainable_parameters", "median", "trainable_share",
    "seconds", "memory_mib", "cut", "lost", "stage",
]  # fmt: skip
ALIGNMENT = ["pair", "mapping", "retrieval", "p1", "p5", "p10", "coverage", "queries"]
COSTS = ["stage", "seconds", "tokens", "flops", "kwh"]
PRETRAINING = ["model", "parameters", "tokens", "steps", "loss", "perplexity", "bits_per_byte", "tokens_per_second"]


def stages(all_params: params.Params) -> list[tuple[str, str]]:
    """(stage, name) of everything that params.yaml declares, in the order of the pipeline."""
    sections = [
        ("corpus", all_params.corpora), ("task", all_params.tasks), ("mix", all_params.mixes), ("tokenizer", all_params.tokenizers),
        ("encode", all_params.encodings), ("pretrain", all_params.models), ("checkpoint", all_params.checkpoints),
        ("derive", all_params.derived),
    ]  # fmt: skip
    declared = [(group, name) for group, names in sections for name in names]
    declared += [("finetune", f"{model}-{task}") for model in all_params.finetune.models for task in all_params.finetune.tasks]
    adapt = all_params.adapt
    declared += [("adapt", f"{model}-{method}-{task}") for model in adapt.models for method in adapt.methods for task in adapt.tasks]
    declared += [("baseline", task) for task in all_params.finetune.tasks]
    return declared + [("vectors", name) for name in all_params.vectors] + [("align", name) for name in all_params.alignments]


def read(all_params: params.Params) -> dict[tuple[str, str], dict]:
    """The metrics of every declared stage. Raises SesameError that names the stage whose metrics are not there."""
    return {key: stage.read_json(stage.metrics_path(*key)) for key in stages(all_params)}


def named(measured: dict) -> str:
    """A model as every table calls it: with the tasks that it was tuned on before."""
    return f"{measured['model']} ({', '.join(measured['derived'])})" if measured["derived"] else measured["model"]


def parts(metrics: dict[tuple[str, str], dict]) -> Iterator[tuple[dict, dict]]:
    """Of each task, model, method and start (pretrained, random), and each baseline: what it is, and its figures by split."""
    for (group, _), measured in metrics.items():
        if group in ("finetune", "adapt"):
            about = measured | {"model": named(measured), "method": measured.get("recipe", measured["method"]), "stage": group}
            for init in ("pretrained", "random"):
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
        rows.append({key: about.get(key) for key in SCORES} | {key: figures[key] for key in ("mean", "median", "std", "n")})
    return pd.DataFrame(rows, columns=SCORES).astype({key: float for key in ("mean", "median", "std")})  # undefined is NaN here


def verdicts(table: pd.DataFrame) -> list[dict]:
    """For each model and task of `finetune`: pre-trained less random, beside the spread over seeds, and the best baseline.

    The gain counts as beyond the spread when the difference of the means exceeds the sum of both standard deviations.
    """
    rows = []
    for (model, task), scored in table[table["stage"] == "finetune"].groupby(["model", "task"], sort=False):
        by_init = scored.set_index("init")
        trained, untrained = by_init.loc["pretrained"], by_init.loc["random"] if "random" in by_init.index else None
        gain = spread = float("nan")
        if untrained is not None:
            gain, spread = trained["mean"] - untrained["mean"], trained["std"] + untrained["std"]
        # A baseline whose score is undefined is none to be held against.
        baselines = table[(table["init"] == "baseline") & (table["task"] == task)].dropna(subset="mean").sort_values("mean")
        baseline = baselines.iloc[-1] if len(baselines) else {"mean": float("nan"), "model": "none"}
        rows.append({
            "model": model, "task": task, "metric": trained["metric"], "pretrained": trained, "random": untrained,
            "baseline": baseline["mean"], "baseline_method": baseline["model"], "gain": gain, "spread": spread,
            "verdict": "not compared" if untrained is None else _verdict(gain, spread),
        })  # fmt: skip
    return rows


def _verdict(gain: float, spread: float) -> str:
    if pd.isna(gain) or pd.isna(spread):  # one seed, or a constant prediction
        return "undefined"
    if gain > spread:
        return "gain"
    return "loss" if gain < -spread else "no difference beyond the spread"


def pretraining(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each model."""
    rows = [{"model": name} | measured for (group, name), measured in metrics.items() if group == "pretrain"]
    return pd.DataFrame(rows, columns=PRETRAINING)


def alignment(all_params: params.Params) -> pd.DataFrame:
    """A row for each pair of spaces, mapping and retrieval."""
    frames = [_csv(Path("data/align", pair, "scores.csv")).assign(pair=pair) for pair in all_params.alignments]
    return pd.concat(frames)[ALIGNMENT] if frames else pd.DataFrame(columns=ALIGNMENT)


def lookups(pair: str, words: int = 12) -> pd.DataFrame:
    """Some held-out words and what the last mapping and retrieval found for them."""
    table = _csv(Path("data/align", pair, "examples.csv"))
    last = table.iloc[-1]
    return table[(table["mapping"] == last["mapping"]) & (table["retrieval"] == last["retrieval"])].head(words)[["word", "gold", "found"]]


def moved(all_params: params.Params, pair: str, words: int = 20) -> tuple[pd.DataFrame, dict] | None:
    """The words that moved most, each beside how far it moves between two trainings on one period; None without a control.

    A word's change counts as its distance less the control's: rare words are far from themselves in any two trainings.
    """
    control = all_params.alignments[pair].control
    if control is None:
        return None
    table, floor = _csv(Path("data/align", pair, "moved.csv")), _csv(Path("data/align", control, "moved.csv"))
    table = table.merge(floor[["word", "distance"]].rename(columns={"distance": "control"}), on="word")
    table["change"] = table["distance"] - table["control"]
    limits = {
        "words": len(table), "control": control, "mean": table["distance"].mean(), "control_mean": table["control"].mean(),
        "control_p95": table["control"].quantile(0.95), "beyond": float((table["distance"] > table["control"].quantile(0.95)).mean()),
    }  # fmt: skip
    return table.sort_values("change", ascending=False).head(words), limits


def costs(metrics: dict[tuple[str, str], dict]) -> pd.DataFrame:
    """A row for each stage; energy is estimated, not measured."""
    return pd.DataFrame([{"stage": f"{group}@{name}"} | measured["cost"] for (group, name), measured in metrics.items()], columns=COSTS)


def bars(table: pd.DataFrame) -> pd.DataFrame:
    """A labelled bar for each score, for `dvc plots show`."""
    names = table[["task", "model", "method", "init"]].agg(" ".join, axis=1)
    return pd.DataFrame({"score": names, "mean": table["mean"]})


def curves(all_params: params.Params) -> pd.DataFrame:
    """The validation rows of every model: step, tokens, losses."""
    frames = [_csv(Path("data/curves", f"{name}.csv")).assign(model=name) for name in all_params.models]
    return pd.concat(frames) if frames else pd.DataFrame(columns=["model", "tokens", "loss", "bits_per_byte"])


def samples(all_params: params.Params) -> dict[str, list[dict[str, str]]]:
    """What each model made of its prompts."""
    return {name: stage.read_json(Path("data/samples", f"{name}.json")) for name in all_params.models}


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
    for name, checkpoint in all_params.checkpoints.items():
        listed.append(card("checkpoint", name, "", checkpoint.licence, checkpoint.source.shown))
    return listed


def unguarded(all_params: params.Params) -> list[str]:
    """Tasks with scores whose dev and test text was not taken out of what the models were trained on."""
    guarded = {task for mix in all_params.mixes.values() for task in (*mix.tasks, *mix.also_held_out)}
    return [task for task in dict.fromkeys((*all_params.finetune.tasks, *all_params.adapt.tasks)) if task not in guarded]


def _csv(path: Path) -> pd.DataFrame:
    with stage.reading(path):
        return pd.read_csv(path, keep_default_na=False, na_values=[""])  # "nan" and "null" are words too
