"""Sentences on the results of a study, for its page."""

import json
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from components import params
from components.evaluations.config import LOWER_IS_BETTER
from components.params import LOSS
from components.stages.outputs import read_json
from components.studies import folders
from components.studies.folders import LAST, pretrained_folder
from components.studies.tables import NEAR, Comparison, bits_rules, seeds, variants
from components.tasks import card


def named(comparison: Comparison, base: str) -> str:
    return comparison.variant if comparison.against == base else f"{comparison.variant} than with {comparison.against}"


def not_beyond_noise(block: params.Study, tested: list[Comparison]) -> str:
    """For each task the variants whose difference is within noise, with the smallest true difference that would have been found."""
    phrases, sizes = [], False
    for task in (LOSS, *block.measures):
        level = [one for one in tested if (one.task, one.verdict) == (task, "not beyond noise")]
        if not level:
            continue
        # NaN where all runs agree on all examples
        detectable = sorted(one.difference.detectable for one in level if not isnan(one.difference.detectable))
        ends = " to ".join(dict.fromkeys(f"{detectable[i]:.3f}" for i in (0, -1) if detectable))
        phrases.append(f"{task} with {', '.join(named(one, block.base) for one in level)}" + (f" ({ends})" if ends else ""))
        sizes = sizes or bool(ends)
    sentence = f" Not beyond noise: {'; '.join(phrases)}." if phrases else ""
    if sizes:
        sentence += " In brackets: the difference that a comparison by itself would find in four cases of five (80 % power); "
        sentence += "the correction for all comparisons of the page asks for a larger one."
    return sentence


def readings(
    all_params: params.Params, study: str, frame: pd.DataFrame, compared: list[Comparison],
    idle: Mapping[str, tuple[float, float]] = MappingProxyType({}), blinded: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    units: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:  # fmt: skip
    """Sentences on tasks without information (`blinded`), on the effects and on untrained variants (`idle`), and on unequal budgets and
    labelled examples where there are any. `units` are those of the measures, which say whether higher is worse."""
    block, last = all_params.studies[study], frame[frame["milestone"] == LAST]
    tested = [one for one in compared if one.milestone == LAST]
    if any(one.verdict == "one run" for one in tested):
        main = "One seed says nothing of the noise of training: there is no verdict, and the intervals are of the examples alone."
    else:
        main = effects(block, tested, units)
    if undefined := sum(one.verdict == "undefined" for one in tested):
        main += f" In {undefined} the score was undefined (constant predictions or labels)."
    if idle:
        names = ", ".join(f"{variant} (loss {loss:.2f}, without context {guess:.2f})" for variant, (loss, guess) in idle.items())
        what = "No verdict on tasks for" if block.tasks else "Nothing about context was learned by"
        main += f" {what} {names}: a model that is not {NEAR} nats better than the best guess without context has not learned."
    sentences = [
        f"{task} says nothing here: no variant is above a bag of words over the second text alone ({best:.3f}, {floor:.3f})."
        for task, (best, floor) in blinded.items()
    ]
    sentences += [main, *beside_other_rules(all_params, study), *unequal_budgets(last)]
    if block.learning_rates:
        sentences.append(learning_rates(rates_tried(all_params, study)))
    return sentences + ([labelled(all_params, study)] if any(variant.by for variant in block.variants.values()) else [])


def effects(block: params.Study, tested: list[Comparison], units: Mapping[str, str]) -> str:
    """Which measures are higher and lower with which variants, and which differences are within noise."""
    beyond, measures = [], (LOSS, *block.measures)
    for task in measures:
        for direction in ("higher", "lower"):
            names = [
                f"{named(one, block.base)} ({one.difference.shown})" for one in tested if (one.task, one.verdict) == (task, direction)
            ]
            lower_is_better = task == LOSS or units.get(task) in LOWER_IS_BETTER
            worse = " (worse)" if lower_is_better and direction == "higher" else ""
            beyond += [f"{task} is {direction}{worse} with {', '.join(names)}"] if names else []
    when = " at the end of pre-training" if block.milestones else ""  # earlier models are not tested
    sentence = f"Against {block.base}{when}: {'; '.join(beyond) or 'no difference is beyond the noise of seeds and examples'}."
    sentence += not_beyond_noise(block, tested)
    if unlike := [task for task in measures if any(one.task == task and not one.difference.pooled for one in tested)]:
        sentence += (
            f" The variants' spread over seeds differs on {', '.join(unlike)} (Bartlett's test), "
            "so each interval there has the noise of its own two sides."
        )
    return sentence


def unequal_budgets(last: pd.DataFrame) -> list[str]:
    """A sentence on the variants whose pre-training took over a tenth more or less than that of the base, the first row."""
    base, others, unequal = last.iloc[0], last.iloc[1:], []
    for key, unit in (("tokens", "tokens"), ("steps", "steps"), ("flops", "FLOPs")):
        ratios = {row["variant"]: row[key] / base[key] for _, row in others.iterrows()}
        rows = [f"{variant} {ratio:.2g} ×" for variant, ratio in ratios.items() if abs(ratio - 1) > 0.1]
        unequal += [f"in {unit} of pre-training {', '.join(rows)} the base's"] if rows else []
    return [f"The budgets are not equal: {'; '.join(unequal)}."] if unequal else []


def beside_other_rules(all_params: params.Params, study: str) -> list[str]:
    """A sentence for each evaluation in bits per byte on the variants that are not compared with the base."""
    block, sentences = all_params.studies[study], []
    for evaluation in block.evaluations:
        rules = bits_rules(all_params, study, evaluation)
        others = [variant for variant, rule in rules.items() if rule != rules[block.base]]
        if others:
            sentences.append(
                f"On {evaluation}, {block.base} is not compared with {', '.join(others)}: a masked model's pseudo-log-likelihood is no "
                "probability of a text, and lower-cased text has fewer bits."
            )
    return sentences


def beside_references(best: Mapping[str, tuple[str, float]], frame: pd.DataFrame, units: Mapping[str, str]) -> list[str]:
    """A sentence for each evaluation with a reference that needs no model: its score, and the variants whose mean is better."""
    sentences, last = [], frame[frame["milestone"] == LAST]
    for evaluation, (name, score) in best.items():
        is_better = last[evaluation] < score if units[evaluation] in LOWER_IS_BETTER else last[evaluation] > score
        above = ", ".join(last["variant"][is_better]) or "no variant"
        sentences.append(f"On {evaluation}, {name.replace('_', ' ')} alone has {score:.3f}; better than that: {above}.")
    return sentences


def rates_tried(all_params: params.Params, study: str) -> dict[str, dict]:
    """For each variant whose learning rate was chosen among several: the factor, the loss at each, and what these trainings cost."""
    tried: dict[str, dict] = {}
    for trial in params.rate_trials({study: all_params.studies[study]}):
        made = read_json(folders.rate_trials(study, trial.variant) / f"{trial.label}.json")
        chosen = read_json(folders.chosen_rate(study, trial.variant))["factor"]
        of_variant = tried.setdefault(trial.variant, {"factor": chosen, "losses": {}, "seconds": 0.0, "flops": 0.0})
        of_variant["losses"][f"{trial.factor:g}"] = made["loss"]
        of_variant["seconds"] += made["cost"]["seconds"]
        of_variant["flops"] += made["cost"].get("flops", 0.0)
    return tried


def learning_rates(tried: Mapping[str, dict]) -> str:
    """A sentence on the learning rates that were chosen, and one on those that lie at the end of what was tried."""
    factors = sorted(float(factor) for factor in next(iter(tried.values()))["losses"])
    chosen = ", ".join(f"{variant} {each['factor']:g} ×" for variant, each in tried.items())
    said = (
        f"Each variant has the learning rate of {len(factors)} with the lowest validation loss, tried with a seed that is not compared: "
        f"{chosen} its own."
    )
    at_end = [variant for variant, each in tried.items() if each["factor"] in (factors[0], factors[-1])]
    return said + (f" The rate of {', '.join(at_end)} is at the end of those tried: one beyond it may be better." if at_end else "")


def labelled(all_params: params.Params, study: str) -> str:
    """The number of labelled examples that each variant has seen, with repetitions, of intermediate tasks and of the study's tasks."""
    block, shown = all_params.studies[study], []
    for variant in variants(all_params, study):
        steps = [examples_of_a_task(all_params, study, variant)] if block.tasks else []
        ancestor: str | None = variant
        while ancestor is not None:  # intermediate tasks can follow each other
            if block.variants[ancestor].by:
                examples = read_json(pretrained_folder(seeds(all_params, study, ancestor)[0]) / "metrics.json")["examples"]
                steps.insert(0, ", ".join(f"{count:,} of {task}" for task, count in examples.items()))
            ancestor = block.variants[ancestor].start
        shown.append(f"{variant} {', then '.join(steps) or 'none'}")
    of_task = " of the task itself" if block.tasks else ""
    return (
        f"Labelled examples seen, counting repetitions: {'; '.join(shown)}{of_task}. FLOPs and seconds include those of the intermediate "
        "tasks; tokens, steps and losses are those of the text before."
    )


def examples_of_a_task(all_params: params.Params, study: str, variant: str) -> str:
    """The number of labelled examples of a task of the study that a variant is tuned on, with repetitions; from the fewest to the most."""
    block = all_params.studies[study]
    recipe, most = params.tuned(block, variant), block.variants[variant].train_examples or all_params.finetune.train_examples
    sizes = [card(Path("data/tasks", task))["train"]["rows"] for task in block.tasks]
    counts = sorted({recipe.epochs * min(most or size, size) for size in sizes})
    seen = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return f"at most {seen}" if recipe.patience else seen  # training may end before its last epoch


def unguarded(all_params: params.Params, study: str) -> list[str]:
    """Tasks whose dev and test text was not held out of a variant's pre-training text."""
    block, unguarded = all_params.studies[study], []
    for variant in variants(all_params, study):
        trained: str | None = params.trained_by(block, variant)
        while trained:  # through all its trainings
            corpus = all_params.encodings[params.read_by(all_params.models, block, trained)].corpus
            unguarded += [task for task in block.tasks if not all_params.held_out(corpus, task)]
            trained = params.begun_by(block, trained)
    return list(dict.fromkeys(unguarded))


def change(variant: params.Variant) -> str:
    """What a variant changes, on one line."""
    settings = variant.settings()
    keys = ("start", "on", "encoding", "budget", "init", "train_examples", "recipe")
    named = {key: settings[key] for key in keys if settings.get(key)}
    if variant.by:
        named["by"] = variant.by.model_dump(exclude_unset=True)
    if variant.budget:
        named["budget"] = variant.budget.model_dump(exclude_none=True)
    parts = [json.dumps(value)[1:-1] for value in (named, variant.change) if value]
    return ", ".join(parts).replace('"', "") or "–"
