"""Studies: overlays, effects, budgets, checkpoints on the way, a killed variant, the table and the page."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

from components import params
from components.ablations import __main__ as study_stage
from components.ablations import champion, tables, transfer, variant
from components.ablations.effects import effect, resampled
from components.errors import SesameError
from components.objectives.clm.block import CausalLM
from components.params.studies import laid_over, varied
from components.pretrain.training import checkpoint_folder
from components.tasks import Example
from components.tracking import Run
from tests.conftest import run_stage, tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]


def changed(**changes) -> dict:
    """The tiny params with values at paths put in: `ablations__rate__seeds=[1]`."""
    raw = tiny_params()
    for path, value in changes.items():
        *parts, last = path.split("__")
        place = raw
        for part in parts:
            place = place[part]
        place[last] = value
    return raw


def write(raw: dict) -> params.Params:
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    return params.load()


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def equal(one: str, other: str) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in ours.items())


def test_a_change_is_laid_over_and_another_kind_keeps_what_it_knows():
    block = {"a": {"b": 1, "c": 2}, "objective": {"name": "mlm", "mlm_probability": 0.2, "next_sentence": True}}
    found = laid_over(block, {"a": {"c": 3}, "objective": {"name": "clm"}})
    assert found == {"a": {"b": 1, "c": 3}, "objective": {"name": "clm"}} and block["a"]["c"] == 2
    change = {"architecture": {"name": "decoder", "norm_first": False}, "objective": {"name": "clm"}}
    study = CHECKED.ablations["rate"].model_copy(update={"variants": {"40": params.Variant(change=change)}})
    model = varied(CHECKED.models, study, "40", seed=7)
    assert model.architecture.name == "decoder" and model.architecture.hidden_size == 16 and not model.architecture.norm_first
    assert model.objective == CausalLM(name="clm") and model.seed == 7 and model.budget.steps == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ablations__rate__variants__40__change": {"objective": {"mlm_probabilty": 0.4}}},
            "ablations.rate.variants.40.change.objective.mlm_probabilty: unknown key",
        ),
        ({"ablations__rate__variants__40__change": {"architecture": {"num_heads": 3}}}, "hidden_size 16 is not divisible by num_heads 3"),
        ({"ablations__rate__variants__40__recipe": {"epochs": 0}}, "ablations.rate.variants.40.recipe.epochs: "),
        ({"ablations__rate__model": "brt"}, "ablations.rate.model: no 'brt' in models"),
        ({"ablations__rate__variants__40__encoding": "other"}, "ablations.rate.variants.40.encoding: no 'other' in encodings"),
        ({"ablations__rate__base": "1"}, "ablations.rate: base: '1' is no variant of this study (there are: 15, 40)"),
        (
            {"ablations__rate__plot": {"x": "tokens", "y": ["other"]}},
            "ablations.rate: plot: 'other' is neither a task of the study nor one of parameters, ",
        ),
        ({"ablations__rate__tasks": ["same", "different"]}, "ablations.rate.tasks[1]: no 'different' in tasks"),
        ({"ablations__rate__milestones": [50]}, "milestones are counted in tokens, and so must the budget be"),
        (
            {"ablations__rate__budget": {"tokens": 90}, "ablations__rate__milestones": [50, 100]},
            "milestones: ascending, and less than budget.tokens",
        ),
        ({"ablations__rate__seeds": [1, 1]}, "ablations.rate: seeds has one twice"),
        ({"ablations__rate__published": "rates"}, "ablations.rate.published: Input should be 'objective' or 'size'"),
        (
            {"ablations__rate__recipe__max_length": 64},
            "ablations.rate.recipe.max_length 64 is more than the model reads, ablations.rate.variants.15.architecture.max_length 32",
        ),
        (
            {"ablations__rate__variants__40__change": {"budget": {"steps": 9}}},
            "ablations.rate.variants.40: change.budget: the same for all variants of a study or set elsewhere",
        ),
        ({"ablations__rate__budget": {"tokens": 90, "flops": 1e6}}, "give exactly one of tokens, flops, steps, minutes"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(changes, message):
    with pytest.raises(SesameError, match=re.escape(message)) as error:
        params.check(changed(**changes))
    assert "\n" not in str(error.value)


def answers(right: float, seed: int, size: int = 400) -> tuple[list[Example], list[str]]:
    rng = np.random.default_rng(0)
    gold = rng.choice(["no", "yes"], size)
    draws = np.random.default_rng(seed).random(size)
    found = [label if draw < right else "no" if label == "yes" else "yes" for label, draw in zip(gold, draws, strict=True)]
    return [Example(str(i), "a", "b", str(label)) for i, label in enumerate(gold)], found


def test_effects_tell_a_difference_from_noise():
    rows, _ = answers(0.5, 0)

    def scores(*rights):
        return resampled(TASK, "accuracy", rows, [answers(right, seed)[1] for seed, right in enumerate(rights)])

    base = scores(0.70, 0.71, 0.69)
    same, better = effect(base, base), effect(scores(0.85, 0.86, 0.84), base)
    assert same.difference == 0 and same.low < 0 < same.high and same.verdict == "no difference"
    assert better.verdict == "higher" and better.low > 0.05 and better.deviations > 3
    assert effect(base, scores(0.85, 0.86, 0.84)).verdict == "lower"
    assert effect(scores(0.95, 0.5, 0.7), base).verdict == "no difference", "seeds that disagree widen the interval"
    narrow, wide = (effect(scores(*rights), base) for rights in ((0.75, 0.75, 0.75), (0.85, 0.65, 0.75)))
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)
    predictions = [answers(right, seed)[1] for seed, right in enumerate((0.70, 0.71, 0.69))]
    accuracies = [np.mean([label == row.label for label, row in zip(labels, rows, strict=True)]) for labels in predictions]
    assert (base[0] == accuracies).all()


def test_an_undefined_score_is_no_effect():
    task = params.check(changed(tasks__same__metrics=["matthews_correlation"])).tasks["same"]
    rows, found = answers(0.7, 1)
    constant = resampled(task, "matthews_correlation", rows, [["yes"] * len(rows)] * 2)
    twice = resampled(task, "matthews_correlation", rows, [found, found])
    assert effect(constant, twice).verdict == "undefined"
    assert effect(np.concatenate([twice[:, :1], constant[:, :1]], 1), twice).verdict == "undefined", "one seed without a score is enough"


def test_a_killed_seed_goes_on_and_ends_the_same(project):
    write(changed(ablations__rate__budget={"steps": 40}))
    whole = run_stage("components.ablations.variant", "rate-40-1")
    assert whole.returncode == 0, whole.stderr
    Path("data/variants/rate/40/1").rename("whole")

    child = subprocess.Popen([sys.executable, "-m", "components.ablations.variant", "rate-40-1"], stdout=subprocess.DEVNULL)
    while not list(Path(".sesame/checkpoints").glob("rate-40-1-*/last.ckpt")) and child.poll() is None:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not Path("data/variants/rate/40/1").exists()
    again = run_stage("components.ablations.variant", "rate-40-1")
    assert again.returncode == 0 and "goes on after step" in again.stdout, again.stdout + again.stderr
    assert equal("whole", "data/variants/rate/40/1") and not list(Path(".sesame/checkpoints").iterdir())
    other = run_stage("components.ablations.variant", "rate-40-2")
    assert other.returncode == 0 and not equal("whole", "data/variants/rate/40/2"), "another seed trains another model"
    wrong = run_stage("components.ablations.variant", "rate-40-3")
    assert wrong.returncode == 2 and "no training 'rate-40-3' in the ablations" in wrong.stderr and "rate-40-2" in wrong.stderr


def test_milestones_on_the_way_change_nothing_and_flops_are_a_budget(project):
    raw = changed(ablations__rate__budget={"tokens": 3000}, ablations__rate__seeds=[1])
    variant.train(write(raw), "rate-15-1", Run(None))
    folder = Path("data/variants/rate/15/1")
    folder.rename("plain")
    raw["ablations"]["rate"]["milestones"] = [500, 1500]
    variant.train(write(raw), "rate-15-1", Run(None))
    assert equal("plain", str(folder)) and not equal(f"{folder}/500", f"{folder}/1500")
    figures = [json.loads((folder / part / "figures.json").read_text()) for part in ("500", "1500", "")]
    assert 500 <= figures[0]["tokens"] < 1500 <= figures[1]["tokens"] < 3000 <= figures[2]["tokens"]
    assert figures[0]["loss"] > figures[2]["loss"] and figures[0]["flops"] < figures[1]["flops"] < figures[2]["flops"]

    folders = [checkpoint_folder(CHECKED.models["bert"], "x", milestones) for milestones in ([500], [1500])]
    assert folders[0] != folders[1], "never continued by another list"

    raw["ablations"]["rate"] |= {"budget": {"flops": figures[2]["flops"]}, "milestones": []}
    variant.train(write(raw), "rate-15-1", Run(None))
    assert equal("plain", str(folder)), "the FLOPs of that many tokens buy the same steps"


def test_a_study_becomes_a_table_a_page_and_a_champion(project):
    plot = {"x": "tokens", "y": ["loss", "same"]}
    everything = write(changed(ablations__rate__budget={"tokens": 3000}, ablations__rate__milestones=[1000], ablations__rate__plot=plot))
    for member in params.members(everything.ablations):
        for module, body in ((variant, variant.train), (transfer, transfer.transfer)):
            metrics = body(everything, member.name, Run(None))
            module.metrics_file(everything, member.name).write_text(json.dumps(metrics))
    found = study_stage.study(everything, "rate", Run(None))
    with open("data/report/studies/rate.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    points = [(name, point, "2") for name in ("15", "40") for point in ("1000", "last")]
    assert [(row["variant"], row["milestone"], row["n"]) for row in rows] == points
    positive = ("parameters", "tokens", "flops", "seconds", "finetune_seconds", "perplexity", "perplexity_std")
    assert all(float(row[key]) > 0 for row in rows for key in positive)
    assert not rows[0]["same_low"] and float(rows[3]["same_low"]) <= float(rows[3]["same_difference"]) <= float(rows[3]["same_high"])
    assert float(rows[3]["same"]) - float(rows[1]["same"]) == pytest.approx(float(rows[3]["same_difference"]), abs=1e-5)
    page = Path("data/report/studies/rate.html").read_text()
    assert page.count("<svg") == 2 and found["reading"].split(":")[0] in page and "3,000 tokens" in page
    assert not re.search(r"""<script|<link|(src|href|url)\W{1,2}https?:""", page), "self-contained"
    assert set(found["variants"]) == {"15", "40"}

    best = champion.best(everything, "rate")
    results = {name: tables.transferred(everything, "rate", name)["same"]["last"] for name in ("15", "40")}
    dev = {name: result["scores"]["dev"]["accuracy"]["values"] for name, result in results.items()}
    assert best.score == max(value for values in dev.values() for value in values) == dev[best.variant][best.seed - 1]


def test_the_reading_says_no_more_than_the_numbers():
    import pandas as pd

    def frame(low, high, flops=1.0):
        common = {"milestone": "last", "flops": 100.0, "tokens": 10, "steps": 2}
        base = {"variant": "15", **common, "same_verdict": ""}
        verdict = "higher" if low > 0 else "lower" if high < 0 else "no difference"
        columns = {"same_difference": (low + high) / 2, "same_low": low, "same_high": high, "same_verdict": verdict}
        return pd.DataFrame([base, {"variant": "40", **common, "flops": 100.0 * flops, **columns}])

    assert tables.readings(CHECKED, "rate", frame(-0.1, 0.2)) == [
        "Against 15 no variant makes a difference beyond the noise of seeds and examples: none of 1 comparisons does."
    ]
    assert tables.readings(CHECKED, "rate", frame(0.1, 0.3, flops=2)) == [
        "Against 15: same is higher with 40 (+0.200 [+0.100, +0.300]); "
        "0 of 1 comparisons show no difference beyond the noise of seeds and examples.",
        "The budgets are not equal: in FLOPs of pre-training 40 2 × the base's.",
    ]
    one_seed = params.check(changed(ablations__rate__seeds=[1]))
    assert "one seed says nothing of the noise of training" in tables.readings(one_seed, "rate", frame(-0.1, 0.2))[0]
