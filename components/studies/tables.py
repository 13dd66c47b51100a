"""The results of a study: one row per variant and milestone."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from components import params
from components.comparison import verdicts
from components.core.errors import SesameError
from components.core.frames import read_csv
from components.evaluations.config import LOWER_IS_BETTER
from components.evaluations.contract import side, weights_among
from components.finetune import baseline
from components.finetune.task_setup import TaskSetup
from components.params import LOSS
from components.stages.outputs import read_json
from components.studies.folders import LAST, transferred_folder, weights_folder
from components.tasks import metrics

PRETRAINING = ("loss", "perplexity", "bits_per_byte")
FIGURES = ("difference", "low", "high", "p", "deviations", "detectable")
"""Columns of a comparison."""
NEAR = 0.3
"""Nats: a model whose loss is closer to that of the best guess without context has not learned to use context."""
UNTRAINED = "not trained"
"""The verdict on tasks for such a model."""


def variants(all_params: params.Params, study: str) -> list[str]:
    """All variants, the base first."""
    block = all_params.studies[study]
    return [block.base, *(name for name in block.variants if name != block.base)]


def reads(all_params: params.Params, study: str) -> dict[str, str]:
    """Variant -> how it reads: from both sides, left to right, each direction separately."""
    block = all_params.studies[study]
    models = {variant: params.varied(all_params.models, block, variant, block.seeds[0]) for variant in variants(all_params, study)}
    return {variant: model.loss_of for variant, model in models.items()}


def seeds(all_params: params.Params, study: str, variant: str) -> list[params.Member]:
    """The trainings of a variant, one per seed."""
    return [params.Member(study, variant, seed) for seed in all_params.studies[study].seeds]


def pretrained(all_params: params.Params, study: str, variant: str, milestone: str) -> list[dict]:
    """The figures of each seed's pre-training: losses, parameters, tokens, flops, seconds."""
    folders = [weights_folder(all_params, member) for member in seeds(all_params, study, variant)]
    figures = [read_json(folder / ("" if milestone == LAST else milestone) / "figures.json") for folder in folders]
    if all_params.studies[study].variants[variant].init == "random":  # only the size applies
        cost, unknown = dict.fromkeys(("tokens", "steps", "flops", "seconds"), 0), dict.fromkeys(PRETRAINING, np.nan)
        return [{"parameters": figure["parameters"], **cost, **unknown} for figure in figures]
    return figures


def transferred(all_params: params.Params, study: str, variant: str) -> dict[str, dict[str, dict]]:
    """task -> milestone -> the results of fine-tuning: metric, split, protocol, `seconds` of all seeds, the scores of each split over the
    seeds, and for generated answers the shares of invalid ones in the reported split."""
    results = [read_json(transferred_folder(member) / "metrics.json")["tasks"] for member in seeds(all_params, study, variant)]
    init = all_params.studies[study].variants[variant].init
    return {
        task: {milestone: _over_seeds([result[task][milestone] for result in results], init) for milestone in milestones}
        for task, milestones in results[0].items()
    }  # fmt: skip


def _over_seeds(results: list[dict], init: str) -> dict:
    """Merge the results of one fine-tuning per seed."""
    first = results[0]
    values = {
        split: [{metric: result[init][split][metric]["values"][0] for metric in scores} for result in results]
        for split, scores in first[init].items()
    }  # fmt: skip
    return {
        **{key: first[key] for key in ("metric", "split", "protocol")},
        "seconds": sum(result["costs"][init]["seconds"] for result in results),
        "scores": {split: metrics.summary(rows) for split, rows in values.items()},
        "outside": [share for result in results for share in result.get("outside", {init: {}})[init].get(result["split"], [])],
    }


@dataclass(frozen=True)
class Comparison:
    """A variant compared with another one on a task or an evaluation."""

    task: str
    variant: str
    against: str
    milestone: str
    difference: verdicts.Difference
    verdict: str
    """One of `verdicts.verdicts`; empty for models at milestones, which are not tested."""


def comparisons(all_params: params.Params, study: str) -> list[Comparison]:
    """Every variant against the base at each milestone, and the declared contrasts; for the last models also on the held-out loss, where
    it has the same targets, and on bits per byte of sentences where they are counted by the same rule. The variance over runs
    is pooled over all such variants, where theirs are alike (`verdicts.pool`). Holm's correction is over the last models.

    A model that has not learned to use context gets no verdict on tasks, since its scores after fine-tuning do not depend
    on pre-training. What is asked without tuning is asked of any model.
    """
    block, idle = all_params.studies[study], untrained(all_params, study)
    against_base = [(variant, block.base) for variant in variants(all_params, study)[1:]]
    pairs = [*against_base, *block.contrasts]
    compared = [(LOSS, variant, other, LAST, difference) for (variant, other), difference in by_loss(all_params, study, pairs).items()]
    for task in block.measures:
        sides = task_sides(all_params, study, task) if task in block.tasks else evaluation_sides(all_params, study, task)
        rules = bits_rules(all_params, study, task)
        for milestone in (*map(str, block.milestones), LAST):
            for variant, other in pairs if milestone == LAST else against_base:
                if rules[variant] != rules[other]:
                    continue
                noise = verdicts.pool(side for (name, at), side in sides.items() if at == milestone and rules[name] == rules[variant])
                difference = verdicts.difference(sides[variant, milestone], sides[other, milestone], noise)
                compared.append((task, variant, other, milestone, difference))

    def tested(task: str, variant: str, other: str, milestone: str, _: verdicts.Difference) -> bool:
        return milestone == LAST and (task not in block.tasks or not idle.keys() & {variant, other})

    words = iter(verdicts.verdicts([row[-1] for row in compared if tested(*row)]))
    return [Comparison(*row, next(words) if tested(*row) else UNTRAINED if row[3] == LAST else "") for row in compared]


def bits_rules(all_params: params.Params, study: str, measure: str) -> dict[str, tuple[bool, bool] | None]:
    """Variant -> the rule by which bits per byte of sentences are counted; None for each variant where the measure is something else."""
    evaluation = all_params.evaluations.get(measure)
    in_bits = evaluation is not None and evaluation.within_one_rule
    block = all_params.studies[study]
    return {variant: params.bits_rule(all_params, block, variant) if in_bits else None for variant in variants(all_params, study)}


def by_loss(all_params: params.Params, study: str, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], verdicts.Difference]:
    """Differences of the pairs of variants whose losses have the same targets, with the noise pooled over all such variants. A variant
    that is only fine-tuned has the loss of another one, and is left out."""
    trained = [variant for variant, block in all_params.studies[study].variants.items() if not block.only_tuned]
    targets = {variant: params.loss_target(all_params.models, all_params.studies[study], variant) for variant in trained}
    sides = {
        variant: verdicts.of_losses([figures[LOSS] for figures in pretrained(all_params, study, variant, LAST)]) for variant in trained
    }
    differences = {}
    for variant, other in pairs:
        if targets.get(variant) == targets.get(other) is not None:
            noise = verdicts.pool(sides[name] for name, target in targets.items() if target == targets[variant])
            differences[variant, other] = verdicts.difference(sides[variant], sides[other], noise)
    return differences


def untrained(all_params: params.Params, study: str) -> dict[str, tuple[float, float]]:
    """For variants that are not NEAR nats better: variant -> its loss, and that of the best guess without context."""
    result = {}
    for variant, block in all_params.studies[study].variants.items():
        figures = pretrained(all_params, study, variant, LAST)
        if block.init == "pretrained" and all("context_free_loss" in figure for figure in figures):
            loss, guess = (float(np.mean([figure[key] for figure in figures])) for key in ("loss", "context_free_loss"))
            if loss > guess - NEAR:
                result[variant] = loss, guess
    return result


def blind(all_params: params.Params, study: str) -> dict[str, tuple[float, float]]:
    """Pair tasks on which no variant is better than a bag of words over the second text: task -> the best mean of a variant, and the
    score of the bag of words. There, reading pairs has no effect, and says nothing about pre-training (Gururangan et al. 2018)."""
    block, result = all_params.studies[study], {}
    for task in block.tasks:
        setup = TaskSetup.load(all_params, task)
        if not baseline.usable(["second_text"], setup):
            continue
        results = [transferred(all_params, study, variant)[task][LAST] for variant in block.variants]
        split, metric = results[0]["split"], results[0]["metric"]
        floor = baseline.fit(all_params, setup, "second_text").score(setup, split)[metric]["mean"]
        means = [mean for result in results if (mean := result["scores"][split][metric]["mean"]) is not None]
        if means and floor is not None and max(means) <= floor:
            result[task] = max(means), floor
    return result


def find(compared: list[Comparison], expected: params.Expectation, base: str) -> Comparison:
    """The comparison of the last models that an expectation is about."""
    key = (expected.task, expected.variant, expected.against or base, LAST)
    return next(one for one in compared if (one.task, one.variant, one.against, one.milestone) == key)


def task_sides(all_params: params.Params, study: str, task: str) -> dict[tuple[str, str], verdicts.Side]:
    """(variant, milestone) -> the scores of its runs on the reported split."""
    block = all_params.studies[study]
    first = transferred(all_params, study, block.base)[task][LAST]
    sources = {
        (variant, milestone): [
            (transferred_folder(member) / task / milestone, block.variants[variant].init) for member in seeds(all_params, study, variant)
        ]
        for variant in variants(all_params, study) for milestone in (*map(str, block.milestones), LAST)
    }  # fmt: skip
    _, sides = verdicts.sides(all_params, task, first["split"], first["metric"], sources)
    return sides


class Scored(NamedTuple):
    """What the runs of a study have on the items of an evaluation that all of them could read."""

    items: pd.DataFrame
    """The columns of these items."""
    weights: np.ndarray
    """(items,)."""
    scores: dict[tuple[str, str], np.ndarray]
    """(variant, milestone) -> (runs, items)."""


def scored_by_all(all_params: params.Params, study: str, evaluation: str) -> Scored:
    """Read the items of all variants, milestones and seeds."""
    block, runs = all_params.studies[study], {}
    for variant in variants(all_params, study):
        for milestone in (*map(str, block.milestones), LAST):
            members = seeds(all_params, study, variant)
            files = [transferred_folder(member) / evaluation / milestone / "items.csv" for member in members]
            runs[variant, milestone] = [read_csv(file) for file in files]
    values = {key: np.array([table["score"] for table in tables], float) for key, tables in runs.items()}  # (runs, items)
    known = np.isfinite(np.concatenate([*values.values()])).all(0)
    if not known.any():
        left_out = f"each of {len(known):,} was left out by some variant, as items that are longer than it reads"
        raise SesameError(
            f"study {study}: no item of {evaluation} was scored by all variants ({left_out}); raise the variants' max_length, or take "
            "another evaluation"
        )
    first = next(iter(runs.values()))[0]
    weights = weights_among(first["weight"].to_numpy(float), first.get("stratum"), known)
    return Scored(first[known], weights, {key: scores[:, known] for key, scores in values.items()})


def evaluation_sides(all_params: params.Params, study: str, evaluation: str) -> dict[tuple[str, str], verdicts.Side]:
    """(variant, milestone) -> the scores of its runs on the items that all runs could read."""
    items, weights, runs = scored_by_all(all_params, study, evaluation)
    clusters = items["cluster"].to_numpy() if "cluster" in items else None
    return {key: side(scores, weights, clusters=clusters) for key, scores in runs.items()}


def evaluated(all_params: params.Params, study: str, variant: str) -> dict[str, dict[str, list[dict]]]:
    """evaluation -> milestone -> protocol and measure of each seed."""
    results = [read_json(transferred_folder(member) / "metrics.json") for member in seeds(all_params, study, variant)]
    return {
        evaluation: {milestone: [result["evaluations"][evaluation][milestone] for result in results] for milestone in milestones}
        for evaluation, milestones in results[0].get("evaluations", {}).items()
    }  # fmt: skip


def references(all_params: params.Params, study: str) -> dict[str, tuple[str, float]]:
    """evaluation -> name and score of the best reference that needs no model, such as a bigram, on the items of the base."""
    best = {}
    for evaluation, milestones in evaluated(all_params, study, all_params.studies[study].base).items():
        scores = pd.DataFrame([answers.get("references", {}) for answers in milestones[LAST]]).mean().dropna()
        if len(scores):
            name = scores.idxmin() if milestones[LAST][0]["measure"] in LOWER_IS_BETTER else scores.idxmax()
            best[evaluation] = name, float(scores[name])
    return best


def units(all_params: params.Params, study: str) -> dict[str, str]:
    """The unit of each measure of a study: a task's metric, an evaluation's measure, bits per byte of the held-out loss."""
    block = all_params.studies[study]
    of_tasks = {task: all_params.tasks[task].metric for task in block.tasks}
    answers = evaluated(all_params, study, block.base)
    return {LOSS: LOSS} | of_tasks | {name: answers[name][LAST][0]["measure"] for name in block.evaluations}


def better(unit: str, verdict: str | None) -> bool | None:
    """Whether a difference is for the better; None where it is not beyond noise."""
    return (verdict == "lower") == (unit in LOWER_IS_BETTER) if verdict in ("higher", "lower") else None


def further(all_params: params.Params, study: str) -> pd.DataFrame:
    """For the last models: scores on splits that not every task has, as the test set in another language, and the shares of invalid
    generated answers. Empty without either."""
    tasks = {task: all_params.tasks[task] for task in all_params.studies[study].tasks}
    rows = []
    for variant in variants(all_params, study):
        scores, row = transferred(all_params, study, variant), {}
        for name, task in tasks.items():
            result = scores[name][LAST]
            for split in (split for split, block in task.extra.items() if block.labelled):
                if summary := result["scores"][split].get(result["metric"]):
                    row[f"{name} {split}: {result['metric']}"] = f"{metrics.shown(summary['mean'])} ± {metrics.shown(summary['std'])}"
            if result["outside"]:
                row[f"{name} {result['split']}: no answer"] = f"{np.mean(result['outside']):.1%}"
        rows += [{"variant": variant} | row] if row else []
    return pd.DataFrame(rows).fillna("–")


def table(all_params: params.Params, study: str, compared: list[Comparison]) -> pd.DataFrame:
    """Budget, pre-training and scores of every variant, and its differences from the base at the same milestone."""
    block, rows = all_params.studies[study], []
    differences = {(one.task, one.variant, one.milestone): one for one in compared if one.against == block.base}
    sides = {evaluation: evaluation_sides(all_params, study, evaluation) for evaluation in block.evaluations}
    for variant in variants(all_params, study):
        scores = transferred(all_params, study, variant)
        for milestone in (*map(str, block.milestones), LAST):
            figures = pretrained(all_params, study, variant, milestone)
            row: dict = {"variant": variant, "milestone": milestone, "n": len(figures)}
            row |= {key: int(np.mean([figure[key] for figure in figures])) for key in ("parameters", "tokens", "steps", "flops")}
            row["seconds"] = np.mean([figure["seconds"] for figure in figures])
            row["finetune_seconds"] = sum(scores[task][milestone]["seconds"] for task in block.tasks) / len(figures)
            for key in PRETRAINING:
                values = [figure[key] for figure in figures]
                row |= {key: np.mean(values), f"{key}_std": np.std(values, ddof=1) if len(values) > 1 else np.nan}
            row["perplexity"] = np.exp(row["loss"])  # of the mean loss, which the table shows beside it
            row |= _differences(LOSS, differences.get((LOSS, variant, milestone)))
            for task in block.measures:
                if task in block.tasks:
                    result = scores[task][milestone]
                    summary = result["scores"][result["split"]][result["metric"]]
                else:
                    runs = sides[task][variant, milestone].scores  # of the items that the differences are about
                    summary = metrics.summary([{"score": float(score)} for score in runs])["score"]
                row |= {task: summary["mean"], f"{task}_std": summary["std"]}
                row |= _differences(task, differences.get((task, variant, milestone)))
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({column: float for column in frame.columns if column in block.measures or column.endswith("_std")})


def _differences(task: str, comparison: Comparison | None) -> dict:
    values = {f"{task}_{key}": getattr(comparison.difference, key) if comparison else np.nan for key in FIGURES}
    return values | {f"{task}_verdict": comparison.verdict if comparison else ""}
