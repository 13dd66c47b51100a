"""The figures of a study: a row a variant, and for a study with milestones one for each of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from components import params
from components.comparison import verdicts
from components.core import storage
from components.core.frames import of_csv
from components.evaluations.contract import side
from components.finetune import baseline
from components.finetune.task_setup import TaskSetup
from components.params import LOSS
from components.studies.folders import LAST, pretrained_folder, transferred_folder, weights_folder
from components.tasks import card, metrics

PRETRAINING = ("loss", "perplexity", "bits_per_byte")
FIGURES = ("difference", "low", "high", "p", "deviations", "detectable")
"""Of a comparison, in the table."""
NEAR = 0.3
"""Nats from the loss of the best guess without context, within which a model has not learned to read."""
UNTRAINED = "not trained"
"""The verdict on tasks of a comparison with such a model."""


def variants(all_params: params.Params, study: str) -> list[str]:
    """The variants of a study, its base first."""
    block = all_params.studies[study]
    return [block.base, *(name for name in block.variants if name != block.base)]


def reads(all_params: params.Params, study: str) -> dict[str, str]:
    """How each variant reads: from both sides, left to right, each direction apart."""
    block = all_params.studies[study]
    models = {variant: params.varied(all_params.models, block, variant, block.seeds[0]) for variant in variants(all_params, study)}
    return {variant: model.loss_of for variant, model in models.items()}


def seeds(all_params: params.Params, study: str, variant: str) -> list[params.Member]:
    """The trainings of a variant."""
    return [params.Member(study, variant, seed) for seed in all_params.studies[study].seeds]


def pretrained(all_params: params.Params, study: str, variant: str, milestone: str) -> list[dict]:
    """The figures of each seed's pre-training: losses, parameters, tokens, flops, seconds."""
    folders = [weights_folder(all_params, own) for own in seeds(all_params, study, variant)]
    figures = [storage.read_json(folder / ("" if milestone == LAST else milestone) / "figures.json") for folder in folders]
    if all_params.studies[study].variants[variant].init == "random":  # the size alone is theirs
        spent, unknown = dict.fromkeys(("tokens", "steps", "flops", "seconds"), 0), dict.fromkeys(PRETRAINING, np.nan)
        return [{"parameters": own["parameters"], **spent, **unknown} for own in figures]
    return figures


def transferred(all_params: params.Params, study: str, variant: str) -> dict[str, dict[str, dict]]:
    """task -> milestone -> what fine-tuning gave:
    metric, split, protocol, `seconds` of all seeds, each split's scores over the seeds, and where answers are written, of the
    judged split the shares of those that were none."""
    results = [storage.read_json(transferred_folder(own) / "metrics.json")["tasks"] for own in seeds(all_params, study, variant)]
    init = all_params.studies[study].variants[variant].init
    return {
        task: {milestone: _over_seeds([result[task][milestone] for result in results], init) for milestone in milestones}
        for task, milestones in results[0].items()
    }  # fmt: skip


def _over_seeds(results: list[dict], init: str) -> dict:
    """One fine-tuning of each seed as one of all."""
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
    """A variant compared with another on a task or an evaluation."""

    task: str
    variant: str
    against: str
    milestone: str
    difference: verdicts.Difference
    verdict: str
    """One of `verdicts.verdicts`; empty for models kept on the way, which are no part of the question."""


def comparisons(all_params: params.Params, study: str) -> list[Comparison]:
    """Every variant against the base, at each milestone, and the declared contrasts; of the last models also by their held-out loss, where
    it is of the same targets. The noise of runs is that of all variants together. Holm's correction is over those of the last models.

    A model that has not learned to read says nothing of what it was trained by: on tasks it gets no verdict.
    """
    block, idle = all_params.studies[study], untrained(all_params, study)
    against_base = [(variant, block.base) for variant in variants(all_params, study)[1:]]
    pairs = [*against_base, *block.contrasts]
    compared = [(LOSS, variant, other, LAST, less) for (variant, other), less in by_loss(all_params, study, pairs).items()]
    for task in block.measures:
        sides = scored(all_params, study, task) if task in block.tasks else answered(all_params, study, task)
        for milestone in (*map(str, block.milestones), LAST):
            noise = verdicts.pool(side for (_, own), side in sides.items() if own == milestone)
            for variant, other in pairs if milestone == LAST else against_base:
                less = verdicts.difference(sides[variant, milestone], sides[other, milestone], noise)
                compared.append((task, variant, other, milestone, less))

    def reported_split(own: tuple) -> bool:
        task, variant, other, milestone, _ = own
        return milestone == LAST and (task == LOSS or not idle.keys() & {variant, other})

    said = iter(verdicts.verdicts([own[-1] for own in compared if reported_split(own)]))
    return [Comparison(*own, next(said) if reported_split(own) else UNTRAINED if own[3] == LAST else "") for own in compared]


def by_loss(all_params: params.Params, study: str, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], verdicts.Difference]:
    """Of the pairs of variants whose losses are of the same targets: the difference, by the noise of all such variants. A variant that is
    only tuned has another one's loss, and none to compare."""
    trained = [variant for variant, own in all_params.studies[study].variants.items() if not own.only_tuned]
    alike = {variant: params.loss_target(all_params.models, all_params.studies[study], variant) for variant in trained}
    sides = {variant: verdicts.of_losses([own[LOSS] for own in pretrained(all_params, study, variant, LAST)]) for variant in trained}
    found = {}
    for variant, other in pairs:
        if alike.get(variant) == alike.get(other) is not None:
            noise = verdicts.pool(sides[name] for name, target in alike.items() if target == alike[variant])
            found[variant, other] = verdicts.difference(sides[variant], sides[other], noise)
    return found


def untrained(all_params: params.Params, study: str) -> dict[str, tuple[float, float]]:
    """Variant -> its loss, and that of the best guess without context, of those that are not NEAR nats below that."""
    found = {}
    for variant, block in all_params.studies[study].variants.items():
        figures = pretrained(all_params, study, variant, LAST)
        if block.init == "pretrained" and all("context_free_loss" in own for own in figures):
            loss, zero = (float(np.mean([own[key] for own in figures])) for key in ("loss", "context_free_loss"))
            if loss > zero - NEAR:
                found[variant] = loss, zero
    return found


def blind(all_params: params.Params, study: str) -> dict[str, tuple[float, float]]:
    """Task -> the best mean of a variant, and the score of a bag of words over the second text alone, of those pair tasks on which no
    variant has more: its reading of pairs compares nothing, and says nothing of what was pre-trained (Gururangan et al. 2018)."""
    block, found = all_params.studies[study], {}
    for task in block.tasks:
        setup = TaskSetup.load(all_params, task)
        if not baseline.usable(["second_text"], setup):
            continue
        results = [transferred(all_params, study, variant)[task][LAST] for variant in block.variants]
        split, metric = results[0]["split"], results[0]["metric"]
        floor = baseline.fit(all_params, setup, "second_text").score(setup, split)[metric]["mean"]
        means = [mean for result in results if (mean := result["scores"][split][metric]["mean"]) is not None]
        if means and floor is not None and max(means) <= floor:
            found[task] = max(means), floor
    return found


def find(compared: list[Comparison], expected: params.Expectation, base: str) -> Comparison:
    """The comparison, of the last models, that an expectation is about."""
    wanted = (expected.task, expected.variant, expected.against or base, LAST)
    return next(own for own in compared if (own.task, own.variant, own.against, own.milestone) == wanted)


def scored(all_params: params.Params, study: str, task: str) -> dict[tuple[str, str], verdicts.Side]:
    """(variant, milestone) -> the scores of its runs, on the examples of the split that tables show."""
    block = all_params.studies[study]
    first = transferred(all_params, study, block.base)[task][LAST]
    places = {
        (variant, milestone): [
            (transferred_folder(own) / task / milestone, block.variants[variant].init) for own in seeds(all_params, study, variant)
        ]
        for variant in variants(all_params, study) for milestone in (*map(str, block.milestones), LAST)
    }  # fmt: skip
    _, sides = verdicts.sides(all_params, task, first["split"], first["metric"], places)
    return sides


def answered(all_params: params.Params, study: str, evaluation: str) -> dict[tuple[str, str], verdicts.Side]:
    """(variant, milestone) -> the scores of its runs, on the items that every run could be asked."""
    block, runs = all_params.studies[study], {}
    for variant in variants(all_params, study):
        for milestone in (*map(str, block.milestones), LAST):
            files = [transferred_folder(own) / evaluation / milestone / "items.csv" for own in seeds(all_params, study, variant)]
            runs[variant, milestone] = [of_csv(file) for file in files]
    values = {key: np.array([own["score"] for own in tables], float) for key, tables in runs.items()}  # (runs, items)
    known = np.isfinite(np.concatenate([*values.values()])).all(0)
    first = next(iter(runs.values()))[0][known]
    clusters = first["cluster"].to_numpy() if "cluster" in first else None
    return {key: side(own[:, known], first["weight"].to_numpy(float), clusters=clusters) for key, own in values.items()}


def asked(all_params: params.Params, study: str, variant: str) -> dict[str, dict[str, list[dict]]]:
    """evaluation -> milestone -> of each seed its protocol, measure and score."""
    results = [storage.read_json(transferred_folder(own) / "metrics.json") for own in seeds(all_params, study, variant)]
    return {
        evaluation: {milestone: [result["evaluations"][evaluation][milestone] for result in results] for milestone in milestones}
        for evaluation, milestones in results[0].get("evaluations", {}).items()
    }  # fmt: skip


def further(all_params: params.Params, study: str) -> pd.DataFrame:
    """Of the last models: scores on splits that not every task has, as the test set in another language, and where answers are written how
    many were none. Empty without either."""
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
    """Budget, pre-training and scores of every variant, and of each task the difference from the base at the same milestone."""
    block, rows = all_params.studies[study], []
    less = {(own.task, own.variant, own.milestone): own for own in compared if own.against == block.base}
    for variant in variants(all_params, study):
        scores, answers = transferred(all_params, study, variant), asked(all_params, study, variant)
        for milestone in (*map(str, block.milestones), LAST):
            figures = pretrained(all_params, study, variant, milestone)
            row: dict = {"variant": variant, "milestone": milestone, "n": len(figures)}
            row |= {key: int(np.mean([figure[key] for figure in figures])) for key in ("parameters", "tokens", "steps", "flops")}
            row["seconds"] = np.mean([figure["seconds"] for figure in figures])
            row["finetune_seconds"] = sum(scores[task][milestone]["seconds"] for task in block.tasks) / len(figures)
            for key in PRETRAINING:
                values = [figure[key] for figure in figures]
                row |= {key: np.mean(values), f"{key}_std": np.std(values, ddof=1) if len(values) > 1 else np.nan}
            own = less.get((LOSS, variant, milestone))
            row |= {f"{LOSS}_{key}": getattr(own.difference, key) if own else np.nan for key in FIGURES}
            row[f"{LOSS}_verdict"] = own.verdict if own else ""
            for task in block.measures:
                own = less.get((task, variant, milestone))
                if task in block.tasks:
                    part = scores[task][milestone]
                    summary = part["scores"][part["split"]][part["metric"]]
                else:
                    summary = metrics.summary([{"score": answer["score"]} for answer in answers[task][milestone]])["score"]
                row |= {task: summary["mean"], f"{task}_std": summary["std"]}
                row |= {f"{task}_{key}": getattr(own.difference, key) if own else np.nan for key in FIGURES}
                row[f"{task}_verdict"] = own.verdict if own else ""
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({column: float for column in frame.columns if column in block.measures or column.endswith("_std")})


def shown(own: Comparison, base: str) -> str:
    """A comparison in a sentence."""
    name = own.variant if own.against == base else f"{own.variant} than with {own.against}"
    return f"{name} ({own.difference.shown})"


def readings(
    all_params: params.Params, study: str, frame: pd.DataFrame, compared: list[Comparison],
    idle: Mapping[str, tuple[float, float]] = MappingProxyType({}), blinded: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> list[str]:  # fmt: skip
    """What the numbers support: a sentence on tasks that tell nothing (`blind`), one on the effects and on variants that are not trained
    (`untrained`), and one on unequal budgets where there are."""
    block, last = all_params.studies[study], frame[frame["milestone"] == LAST]
    base, others = last.iloc[0], last.iloc[1:]
    judged = [own for own in compared if own.milestone == LAST]
    said = []
    for task in (LOSS, *block.measures):
        for direction in ("higher", "lower"):
            names = [shown(own, block.base) for own in judged if (own.task, own.verdict) == (task, direction)]
            said += [f"{task} is {direction} with {', '.join(names)}"] if names else []
    count = {verdict: sum(own.verdict == verdict for own in judged) for verdict in ("not beyond noise", "one run", "undefined")}
    when = " at the end of pre-training" if block.milestones else ""  # before, nothing is judged
    sentence = f"Against {base['variant']}{when}: {'; '.join(said) if said else 'no difference is beyond the noise of seeds and examples'}."
    if said and count["not beyond noise"]:
        sentence += f" {count['not beyond noise']} of {len(judged)} comparisons are not beyond the noise of seeds and examples."
    could = [own.difference.detectable for own in judged if own.verdict == "not beyond noise" and own.task != LOSS]
    if could:
        sentence += f" By itself one on a task could have seen {min(could):.3f} to {max(could):.3f} in four cases of five."
    if count["one run"]:
        sentence = "One seed says nothing of the noise of training: there is no verdict, and the intervals are of the examples alone."
    if count["undefined"]:
        sentence += f" In {count['undefined']} the score was undefined (constant predictions)."
    uneven = []
    for key, unit in (("tokens", "tokens"), ("steps", "steps"), ("flops", "FLOPs")):
        rows = [f"{row['variant']} {row[key] / base[key]:.2g} ×" for _, row in others.iterrows() if abs(row[key] / base[key] - 1) > 0.1]
        uneven += [f"in {unit} of pre-training {', '.join(rows)} the base's"] if rows else []
    if idle:
        names = ", ".join(f"{variant} (loss {loss:.2f}, without context {zero:.2f})" for variant, (loss, zero) in idle.items())
        sentence += f" No verdict on tasks for {names}: within {NEAR} nats of the best guess without context a model has not learned."
    first = [
        f"{task} says nothing here: no variant is above a bag of words over the second text alone ({best:.3f}, {floor:.3f})."
        for task, (best, floor) in blinded.items()
    ]  # fmt: skip
    said = [*first, sentence] + ([f"The budgets are not equal: {'; '.join(uneven)}."] if uneven else [])
    return said + ([labelled(all_params, study)] if any(variant.by for variant in block.variants.values()) else [])


def labelled(all_params: params.Params, study: str) -> str:
    """How many labelled examples each variant has seen, counted as often as they were: of intermediate tasks and of each of the study's."""
    block, shown = all_params.studies[study], []
    for variant in variants(all_params, study):
        recipe, most = params.tuned(block, variant), block.variants[variant].train_examples or all_params.finetune.train_examples
        sizes = [card(Path("data/tasks", task))["train"]["rows"] for task in block.tasks]
        own = sorted({recipe.epochs * min(most or size, size) for size in sizes})
        seen = " to ".join(f"{count:,}" for count in dict.fromkeys((own[0], own[-1])))
        link: str | None = variant
        while link is not None:  # what is tuned first may have been tuned before
            if block.variants[link].by:
                made = storage.read_json(pretrained_folder(seeds(all_params, study, link)[0]) / "metrics.json")["examples"]
                seen = f"{', '.join(f'{count:,} of {task}' for task, count in made.items())}, then {seen}"
            link = block.variants[link].start
        shown.append(f"{variant} {seen}")
    return (
        f"Labelled examples seen, each as often as it was: {'; '.join(shown)} of the task itself. FLOPs and seconds are with those of the "
        "intermediate tasks; tokens, steps and losses are of the text before."
    )


def unguarded(all_params: params.Params, study: str) -> list[str]:
    """Tasks whose dev and test text was not taken out of what a variant read."""
    block, unguarded = all_params.studies[study], []
    for variant in variants(all_params, study):
        trained: str | None = params.trained_by(block, variant)
        while trained:  # by each training that made it
            mix = all_params.mixes.get(all_params.encodings[params.read_by(all_params.models, block, trained)].corpus)
            unguarded += [task for task in block.tasks if mix is None or task not in (*mix.tasks, *mix.also_held_out)]
            trained = params.begun_by(block, trained)
    return list(dict.fromkeys(unguarded))


def change(variant: params.Variant) -> str:
    """What is varied, in a line."""
    own = variant.settings()
    named = {key: own[key] for key in ("start", "on", "encoding", "budget", "init", "train_examples", "recipe") if own.get(key)}
    if variant.by:
        named["by"] = variant.by.model_dump(exclude_unset=True)
    if variant.budget:
        named["budget"] = variant.budget.model_dump(exclude_none=True)
    parts = [json.dumps(value)[1:-1] for value in (named, variant.change) if value]
    return ", ".join(parts).replace('"', "") or "–"
