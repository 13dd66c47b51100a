"""Studies: overlays, effects, budgets, checkpoints on the way, a killed variant, the table and the page."""

import csv
import json
import re
import signal
import subprocess
import time
from contextlib import nullcontext
from html import unescape
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

from components import params
from components.comparison import verdicts
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.derive import tuned as derive_tuned
from components.objectives.clm.config import CausalLM
from components.params.variants import laid_over, varied
from components.pretrain.training import checkpoint_folder
from components.stages import registry, resolve
from components.studies import __main__ as study_stage
from components.studies import champion, expectations, folders, intermediate, ladder, rate_trial, readings, tables, transfer, variant
from components.tasks import Example
from tests.conftest import run_stage, tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]


NOT_FIXED = "The study's file is not committed as it is: nothing proves that its seeds and expectations were fixed"


def changed(**changes) -> dict:
    """The tiny params with values at paths put in: `studies__rate__seeds=[1]`."""
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
    study = CHECKED.studies["rate"].model_copy(update={"variants": {"40": params.Variant(change=change)}})
    model = varied(CHECKED.models, study, "40", seed=7)
    assert model.architecture.name == "decoder" and model.architecture.hidden_size == 16 and not model.architecture.norm_first
    assert model.objective == CausalLM(name="clm") and model.seed == 7 and model.budget.steps == 6


FIRST = {"name": "tuned", "recipe": {"method": "full", "learning_rate": 0.003, "epochs": 2, "batch_size": 8, "max_length": 32}}
MANY = {name: {} for name in ("15", "40", "a", "b", "c", "d", "e")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"studies__rate__variants__40__change": {"objective": {"mlm_probabilty": 0.4}}},
            "studies.rate.variants.40.change.objective.mlm_probabilty: unknown key (did you mean mlm_probability?)",
        ),
        ({"studies__rate__variants__40__change": {"architecture": {"num_heads": 3}}}, "hidden_size 16 is not divisible by num_heads 3"),
        ({"studies__rate__variants__40__recipe": {"epochs": 0}}, "studies.rate.variants.40.recipe.epochs: "),
        ({"studies__rate__model": "brt"}, "studies.rate.model: no 'brt' in models"),
        ({"studies__rate__variants__40__encoding": "other"}, "studies.rate.variants.40.encoding: no 'other' in encodings"),
        ({"studies__rate__base": "1"}, "studies.rate: base: '1' is not a variant of this study (there are: 15, 40)"),
        (
            {"studies__rate__plot": {"x": "tokens", "y": ["other"]}},
            "studies.rate: plot: 'other' is neither a task or evaluation of the study nor one of parameters, ",
        ),
        ({"studies__rate__tasks": ["same", "different"]}, "studies.rate.tasks[1]: no 'different' in tasks"),
        ({"studies__rate__milestones": [50]}, "milestones are numbers of tokens, so the budget must be in tokens too"),
        (
            {"studies__rate__budget": {"tokens": 90}, "studies__rate__milestones": [50, 100]},
            "must be ascending and below budget.tokens",
        ),
        ({"studies__rate__learning_rates": {"factors": [1, 2], "seed": 2}}, "learning_rates.seed: 2 is one of the study's seeds"),
        (
            {"studies__rate__learning_rates": {"factors": [1, 400], "seed": 3}},
            "studies.rate.learning_rates: 400 times the rate of 15.learning_rate: ",
        ),
        (
            {
                "studies__rate__learning_rates": {"factors": [1, 2], "seed": 3},
                "studies__rate__variants__40": {"start": "15", "budget": {"steps": 2}},
            },
            "variants.40: its training continues from 15, which learning_rates does not choose for",
        ),
        ({"studies__rate__seeds": [1, 1]}, "studies.rate: seeds lists one twice"),
        ({"studies__rate__contrasts": [["40", "15"]]}, "contrasts[0]: give two variants, each pair once, without "
                "the base"),
        ({"studies__rate__contrasts": [["40", "50"]]}, "contrasts[0]: '50' is not a variant of this study"),
        (
            {"studies__rate__expects": [{"variant": "15", "task": "same", "direction": "lower", "matters": 0.1}]},
            "expects[0]: 15 is not compared with 15 here (compared are: 40 against 15)",
        ),
        (
            {"studies__rate__published": "rates"},
            "studies.rate.published: Input should be 'objective', 'size', 'inputs', ",
        ),
        (
            {"studies__rate__recipe__max_length": 64},
            "studies.rate.recipe.max_length 64 is more than the model reads, studies.rate.variants.15.architecture.max_length 32",
        ),
        (
            {"studies__rate__variants__40__change": {"budget": {"steps": 9}}},
            "studies.rate.variants.40: change.budget: can't differ between variants, or is set elsewhere",
        ),
        ({"studies__rate__budget": {"tokens": 90, "flops": 1e6}}, "give exactly one of tokens, flops, steps, minutes"),
        ({"studies__rate__variants__40": {"start": "20"}}, "variants.40.start: no '20' in this study (there are: 15, 40)"),
        ({"studies__rate__variants__40": {"start": "40"}}, "variants.40.start: starts from itself (40 from 40)"),
        ({"studies__rate__variants__40": {"budget": {"steps": 2}}}, "budget is for a training that continues from "
                "`start`"),
        (
            {"studies__rate__variants__40": {"start": "15", "encoding": "tiny"}},
            "a variant with `start` and no budget is only tuned: give it one",
        ),
        (
            {"studies__rate__variants__40": {"start": "15", "init": "random", "budget": {"steps": 2}}},
            "init: random needs `start`, for its architecture, and can't have a budget",
        ),
        (
            {"studies__rate__variants__40": {"start": "15", "budget": {"steps": 2}, "change": {"architecture": {"dropout": 0}}}},
            "change.architecture: a variant that continues from `start` keeps its architecture",
        ),
        (
            {"studies__rate__variants": {"15": {"start": "40", "init": "random"}, "40": {}}},
            "base: 15 is tuned from random weights; take another variant as the baseline",
        ),
        (
            {"studies__rate__variants": {"15": {}, "20": {"start": "15", "init": "random"}, "40": {"start": "20"}}},
            "variants.40.start: 20 has no trained weights, as its init is random",
        ),
        (
            {
                "studies__rate__budget": {"tokens": 90},
                "studies__rate__milestones": [50],
                "studies__rate__variants__40": {"start": "15"},
            },
            "variants.40.start: a study with milestones trains every variant from scratch",
        ),
        *(
            ({"studies__rate__variants__40": {"start": "15"} | own}, said)
            for own, said in (
                ({"on": "tasks/same"}, "give both `on` and `by`, or neither"),
                ({"on": "tasks/same", "by": FIRST | {"seed": 2}}, "by.seed has no effect: the seeds are those of the "
                        "study"),
                ({"on": "tasks", "by": FIRST}, "by tuned needs on: tasks/<task>, not tasks"),
                ({"on": "tasks/other", "by": FIRST}, "studies.rate.variants.40.on: no 'other' in tasks"),
                ({"on": "tasks/same", "by": FIRST, "budget": {"steps": 2}}, "by tuned needs `start`, and its models "
                        "unchanged"),
                ({"on": "tasks/same", "by": FIRST | {"train_examples": {"b": 3}}}, "by.train_examples: b is not "
                        "among its "
                        "tasks "
                        "(same)"),
                (
                    {"on": "tasks/same", "by": FIRST | {"recipe": FIRST["recipe"] | {"max_length": 64}}},
                    "variants.40.by.recipe.max_length 64 is more than the model reads",
                ),
                (
                    {"on": "tasks", "by": FIRST | {"name": "multitask", "tasks": ["same", "other"]}},
                    "studies.rate.variants.40.by.tasks[1]: no 'other' in tasks",
                ),
            )
        ),
        ({"studies__rate__ladder": ["50"]}, "ladder: '50' is not a variant of this study (there are: 15, 40)"),
        ({"studies__rate__ladder": ["40", "40"]}, "studies.rate.ladder: 40 is listed twice"),
        ({"studies__rate__ladder": ["40"], "studies__rate__seeds": [1]}, "ladder: prediction intervals need the spread "
                "over "
                "seeds"),
        ({"studies__rate__ladder": ["40"]}, "ladder: the fit has five parameters and needs 6 variants or more"),
        (
            {"studies__rate__ladder": ["40"], "studies__rate__variants": MANY | {"40": {"start": "15", "budget": {"steps": 2}}}},
            "variants.40.start: every variant of a ladder is trained from scratch",
        ),
        (
            {
                "studies__rate__ladder": ["40"],
                "studies__rate__variants": MANY,
                "studies__rate__budget": {"tokens": 90},
                "studies__rate__milestones": [50],
            },
            "ladder: at a milestone the learning rate has not decayed yet",
        ),
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


def scores(*rights: float):
    """A side of as many runs, right with these probabilities."""
    rows, _ = answers(0.5, 0)
    return verdicts.side(TASK, "accuracy", rows, [answers(right, seed)[1] for seed, right in enumerate(rights)])


def compared(task: str, variant: str, against: str, side, other) -> tables.Comparison:
    difference = verdicts.difference(side, other, verdicts.pool([side, other]))
    return tables.Comparison(task, variant, against, "last", difference, verdicts.verdicts([difference])[0])


BASE = (0.70, 0.71, 0.69)


def test_what_was_expected_is_held_against_what_was_found():
    def said(*rights, direction="higher", matters=0.05):
        expected = params.Expectation(variant="40", task="same", direction=direction, matters=matters)
        return expectations.outcome(expected, compared("same", "40", "15", scores(*rights), scores(*BASE))).said

    better = (0.85, 0.86, 0.84)
    assert said(*better) == "as expected" and said(*better, direction="lower") == "the opposite"
    assert said(*BASE, matters=0.2) == "no difference of that size"
    assert re.fullmatch(r"not resolved: \d+ seeds would be needed", wide := said(0.85, 0.55, 0.70, matters=0.1)), wide
    assert said(0.70, 0.70, 0.70, matters=0.001) == "not resolved: more test examples would be needed"
    single = expectations.outcome(
        params.Expectation(variant="40", task="same", direction="higher", matters=0.1),
        compared("same", "40", "15", scores(0.9), scores(0.7)),
    )
    assert single.said == "not resolved: one seed"


def test_the_seeds_that_would_be_needed_are_about_enough():
    rough = verdicts.difference(scores(0.85, 0.55, 0.70), scores(0.70, 0.60, 0.75))
    seeds = int(expectations.needed(rough, 0.1).removesuffix(" seeds"))
    of_one = rough.of_runs / (1 / 3 + 1 / 3)
    assert seeds == pytest.approx(2 * of_one / ((0.1 / (1.97 + 0.84)) ** 2 - rough.of_examples), rel=0.2)
    assert expectations.needed(rough, 0.001) == "more test examples"
    noisy = verdicts.difference(scores(0.2, 0.5, 0.9), scores(0.3, 0.6, 0.8))
    size = 3.2 * noisy.of_examples**0.5  # which the examples could show, but not through such a spread of seeds
    assert expectations.needed(noisy, size) == "more than 200 seeds"


def test_a_page_says_which_commit_fixed_what_was_expected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()

    def commit(expects: list, note: str = "") -> str:
        raw = changed(studies__rate__expects=expects)
        with open("studies/params/rate.yaml", "w") as file:
            YAML().dump(raw["studies"]["rate"], file)
            file.write(f"# {note}\n")
        git("add", "-A")
        git("commit", "-qm", "a")
        return git("rev-parse", "--short", "HEAD")

    def said(expects: list) -> str:
        return expectations.fixed("rate", params.check(changed(studies__rate__expects=expects)).studies["rate"])

    Path("studies/params").mkdir(parents=True)
    for args in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        git(*args)
    higher = [{"variant": "40", "task": "same", "direction": "higher", "matters": 0.02}]
    commit([])
    assert said(higher).startswith(NOT_FIXED)
    fixed = commit(higher)
    commit(higher, "a comment")
    assert said(higher).startswith(f"Its seeds and expectations were fixed in commit {fixed} (") and "no results had been" in said(higher)
    Path("data/report/studies").mkdir(parents=True)
    Path("data/report/studies/rate.json").write_text("{}")
    results = commit(higher, "results")
    assert said(higher).endswith(f"before its first results ({results}).")
    lower = [higher[0] | {"direction": "lower"}]
    late = commit(lower)
    assert said(lower).startswith(f"Its seeds and expectations were changed in commit {late} (") and f"committed ({results})" in said(lower)
    more = {"studies__rate__seeds": [1, 2, 3]}
    rates = {"studies__rate__learning_rates": {"factors": [1, 2], "seed": 9}}
    for other in ({"studies__rate__budget": {"steps": 9}}, more, rates):
        study = params.check(changed(studies__rate__expects=lower, **other)).studies["rate"]
        fixed = expectations.fixed("rate", study)
        assert fixed.startswith(NOT_FIXED), other
    fixed = expectations.fixed("rate", params.check(changed(**more)).studies["rate"])
    assert fixed.endswith("nothing proves that its seeds were fixed before the run.")


@pytest.mark.long
def test_a_killed_seed_goes_on_and_ends_the_same(project, start):
    write(changed(studies__rate__budget={"steps": 40}))
    whole = run_stage("components.studies.variant", "rate-40-1")
    assert whole.returncode == 0, whole.stderr
    Path("data/variants/rate/40/1").rename("whole")

    child = start("-m", "components.studies.variant", "rate-40-1")
    while not list(Path(".sesame/checkpoints").glob("rate-40-1-*/last.ckpt")) and psutil.pid_exists(child.pid):
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not Path("data/variants/rate/40/1").exists()
    again = run_stage("components.studies.variant", "rate-40-1")
    assert again.returncode == 0 and "resumed at step" in again.stdout, again.stdout + again.stderr
    assert equal("whole", "data/variants/rate/40/1") and not list(Path(".sesame/checkpoints").iterdir())
    other = run_stage("components.studies.variant", "rate-40-2")
    assert other.returncode == 0 and not equal("whole", "data/variants/rate/40/2"), "another seed trains another model"
    wrong = run_stage("components.studies.variant", "rate-40-3")
    assert wrong.returncode == 2 and "no training 'rate-40-3' in the studies" in wrong.stderr and "rate-40-2" in wrong.stderr


def test_milestones_on_the_way_change_nothing_and_flops_are_a_budget(project):
    raw = changed(studies__rate__budget={"tokens": 3000}, studies__rate__seeds=[1])
    variant.train(write(raw), "rate-15-1", Run(None))
    folder = Path("data/variants/rate/15/1")
    folder.rename("plain")
    raw["studies"]["rate"]["milestones"] = [500, 1500]
    variant.train(write(raw), "rate-15-1", Run(None))
    assert equal("plain", str(folder)) and not equal(f"{folder}/500", f"{folder}/1500")
    figures = [json.loads((folder / part / "figures.json").read_text()) for part in ("500", "1500", "")]
    assert 500 <= figures[0]["tokens"] < 1500 <= figures[1]["tokens"] < 3000 <= figures[2]["tokens"]
    assert figures[0]["loss"] > figures[2]["loss"] and figures[0]["flops"] < figures[1]["flops"] < figures[2]["flops"]

    folders = [checkpoint_folder(CHECKED.models["bert"], "x", milestones) for milestones in ([500], [1500])]
    assert folders[0] != folders[1], "never continued by another list"

    raw["studies"]["rate"] |= {"budget": {"flops": figures[2]["flops"]}, "milestones": []}
    variant.train(write(raw), "rate-15-1", Run(None))
    assert equal("plain", str(folder)), "the FLOPs of that many tokens buy the same steps"


def test_a_study_becomes_a_table_a_page_and_a_champion(project):
    plot = {"x": "tokens", "y": ["loss", "same"]}
    expects = [{"variant": "40", "task": "same", "direction": "higher", "matters": 0.1, "because": "less is copied"}]
    everything = write(
        changed(
            studies__rate__budget={"tokens": 3000},
            studies__rate__milestones=[1000],
            studies__rate__plot=plot,
            studies__rate__expects=expects,
            tasks__same__extra={"elsewhere": {"source": {"kind": "files", "paths": ["raw/pairs.tsv"]}}},
        )
    )
    assert run_stage("components.tasks", "same").returncode == 0
    for member in params.members(everything.studies):
        for module, body in ((variant, variant.train), (transfer, transfer.transfer)):
            metrics = body(everything, member.name, Run(None))
            module.metrics_file(everything, member.name).write_text(json.dumps(metrics))
    found = study_stage.study(everything, "rate", Run(None))
    with open("data/report/studies/rate.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    points = [(name, point, "2") for name in ("15", "40") for point in ("1000", "last")]
    assert [(row["variant"], row["milestone"], row["n"]) for row in rows] == points
    positive = ("parameters", "tokens", "steps", "flops", "seconds", "finetune_seconds", "perplexity", "perplexity_std")
    assert all(float(row[key]) > 0 for row in rows for key in positive)
    assert not rows[0]["same_low"] and float(rows[3]["same_low"]) <= float(rows[3]["same_difference"]) <= float(rows[3]["same_high"])
    assert float(rows[3]["same"]) - float(rows[1]["same"]) == pytest.approx(float(rows[3]["same_difference"]), abs=1e-5)
    page, all_of_them = (Path("data/report/studies", name).read_text() for name in ("rate.html", "index.html"))
    [expected] = found["expected"]
    assert expected["outcome"] in page and expected["outcome"] in all_of_them and found["reading"] in unescape(all_of_them)
    assert page.count("<svg") == 2 and found["reading"].split(":")[0] in page and "3,000 tokens" in page
    assert not re.search(r"""<script|<link|(src|href|url)\W{1,2}https?:""", page), "self-contained"
    assert set(found["variants"]) == {"15", "40"}
    further = tables.further(everything, "rate")
    assert list(further.columns) == ["variant", "same elsewhere: accuracy"] and list(further["variant"]) == ["15", "40"]
    assert "Further splits" in page and further.iloc[1, 1] in page and tables.further(CHECKED, "rate").empty

    file = transfer.metrics_file(everything, "rate-40-1")
    own = json.loads(file.read_text())
    own["tasks"]["same"]["last"]["outside"] = {"pretrained": {"test": [0.25]}}
    file.write_text(json.dumps(own))
    assert tables.further(everything, "rate")["same test: no answer"].tolist() == ["–", "25.0%"]

    champion_is_the_best_on_dev(everything)
    losses = [own for own in tables.comparisons(everything, "rate") if own.task == params.LOSS]
    assert not losses, "of other shares of hidden tokens, which don't compare"
    figures = [file.with_name("figures.json") for file in Path("data/variants/rate/40").glob("*/figures.json")]
    for file in figures:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"loss": 5.0, "context_free_loss": 5.2}))
    compared = tables.comparisons(everything, "rate")
    assert {own.verdict for own in compared if own.milestone == "last"} == {"not trained"}
    said = readings.readings(everything, "rate", tables.table(everything, "rate", compared), compared, tables.untrained(everything, "rate"))
    assert re.search(r"No verdict on tasks for .*40 \(loss 5.00, without context 5.20\): a model that is not 0.3 nats better", said[0])

    results = [Path(transfer.metrics_file(everything, own.name)) for own in params.members(everything.studies)]
    for file, scale in [(file, scale) for scale in (0.0, 1.0) for file in results]:
        own = json.loads(file.read_text())
        for summary in own["tasks"]["same"]["last"]["pretrained"]["test"].values():
            summary["values"] = [scale]
        file.write_text(json.dumps(own))
        if file == results[-1]:
            told = tables.blind(everything, "rate")
            assert list(told) == ([] if scale else ["same"])
    [first, *_] = readings.readings(everything, "rate", tables.table(everything, "rate", compared), compared, {}, {"same": (0.0, 0.55)})
    assert first == "same says nothing here: no variant is above a bag of words over the second text alone (0.000, 0.550)."


def test_a_rate_that_diverges_has_no_loss_and_a_cost(project):
    everything = write(changed(
        studies__rate__learning_rates={"factors": [1, 2], "seed": 9},
        models__bert__optimizer={"learning_rate": 0.5, "weight_decay": 1e20, "warmup": 0.0},
    ))  # fmt: skip
    metrics = rate_trial.try_rate(everything, "rate-15-2", Run(None))
    assert metrics["loss"] is None and metrics["cost"]["tokens"] > 0 and metrics["cost"]["flops"] > 0


def test_each_variant_has_the_best_of_its_learning_rates(project):
    """The rate that diverges is left out, a rate that wins at the end of those tried is said, and what is compared is trained at it."""
    everything = write(changed(
        studies__rate__learning_rates={"factors": [0.001, 1, 300], "seed": 9}, studies__rate__tasks=[], studies__rate__recipe=None,
        studies__rate__evaluations=["pairs"], studies__rate__plot={"x": "tokens", "y": ["loss"]},
        evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}},
    ))  # fmt: skip
    made = resolve.contents(everything)
    trainings = json.loads(made[resolve.TRAININGS])
    assert set(trainings["at_rate"]) == {own.name for own in params.members(everything.studies)} and not trainings["trainings"]
    assert set(trainings["rate_trials"]) == {f"rate-{name}-{factor}" for name in ("15", "40") for factor in ("0_001", "1", "300")}
    tried = [json.loads(made[resolve.file_of("rate_trial", name)])["settings"] for name in ("rate-15-1", "rate-15-300")]
    assert [own["optimizer"]["learning_rate"] for own in tried] == [0.003, pytest.approx(0.9)] and {own["seed"] for own in tried} == {9}
    for trial in params.rate_trials(everything.studies):
        metrics = rate_trial.try_rate(everything, trial.name, Run(None)) | {"cost": {"seconds": 2.0, "flops": 10.0}}
        if (trial.variant, trial.factor) == ("40", 1):
            metrics["loss"] = None
        storage.write_json(rate_trial.metrics_file(everything, trial.name), metrics)
    assert not list(Path(".sesame/rate_trials").glob("*")) and not list(Path(".sesame/checkpoints").glob("*"))
    losses = {
        name: [json.loads(Path(f"data/variants/rate/{name}/rates/{factor}.json").read_text())["loss"] for factor in ("0_001", "1", "300")]
        for name in ("15", "40")
    }
    assert losses["15"][1] < min(losses["15"][0], losses["15"][2]), "the middle one is the best, and learns"
    factors = {}
    for name in ("15", "40"):
        assert run_stage("components.studies.rate", f"rate-{name}").returncode == 0
        factors[name] = json.loads(Path(f"data/variants/rate/{name}/rate.json").read_text())["factor"]
    assert factors["15"] == 1 and factors["40"] == (0.001 if losses["40"][0] < losses["40"][2] else 300)
    block = folders.training_block(everything, params.Member("rate", "40", 2))
    assert block.optimizer.learning_rate == pytest.approx(0.003 * factors["40"]) and block.seed == 2
    assert folders.training_block(everything, params.Member("rate", "15", 2)).optimizer.learning_rate == 0.003

    told = readings.rates_tried(everything, "rate")
    assert told["15"] == {"factor": 1, "losses": dict(zip(("0.001", "1", "300"), losses["15"], strict=True)), "seconds": 6.0, "flops": 30.0}
    said = readings.learning_rates(told)
    assert f"15 1 ×, 40 {factors['40']:g} × its own" in said
    assert said.endswith("The rate of 40 is at the end of those tried: one beyond it may be better.")
    for file in Path("data/variants/rate/40/rates").glob("*"):
        storage.write_json(file, {"loss": None})
    done = run_stage("components.studies.rate", "rate-40")
    assert done.returncode == 2 and "every learning rate of 40 diverged; give lower learning_rates.factors" in done.stderr
    done = run_stage("components.studies.rate", "rate-41")
    assert done.returncode == 2 and "no learning rates are tried for a variant '41' of a study 'rate'" in done.stderr
    with pytest.raises(SesameError, match="no learning rate 'rate-15-2' is tried in studies/params .there are: rate-15-0_001, "):
        folders.rate_trial(everything, "rate-15-2")


def champion_is_the_best_on_dev(everything) -> None:
    best = champion.best(everything, "rate")
    results = {name: tables.transferred(everything, "rate", name)["same"]["last"] for name in ("15", "40")}
    dev = {name: result["scores"]["dev"]["accuracy"]["values"] for name, result in results.items()}
    assert best.equals == sum(value == best.score for values in dev.values() for value in values) - 1
    assert best.score == max(value for values in dev.values() for value in values) == dev[best.variant][best.seed - 1]


def test_variants_go_on_from_others(project):
    """One is trained on, one tuned otherwise, one at fewer examples, one from random weights: whose weights are tuned, what all has cost,
    and what DVC makes stages of."""
    change = {"objective": {"mlm_probability": 0.4}}
    variants = {
        "15": {}, "on": {"start": "15", "budget": {"steps": 2}, "change": change}, "again": {"start": "on", "recipe": {"epochs": 3}},
        "few": {"start": "15", "train_examples": 8}, "untrained": {"start": "15", "init": "random"},
    }  # fmt: skip
    everything = write(changed(studies__rate__variants=variants, studies__rate__contrasts=[["on", "untrained"]]))
    block = everything.studies["rate"]
    made = json.loads(resolve.contents(everything)[resolve.TRAININGS])
    assert set(made["trainings"]) == {"rate-15-1", "rate-15-2"} and set(made["further"]) == {"rate-on-1", "rate-on-2"}
    assert made["further"]["rate-on-2"] == {"study": "rate", "variant": "on", "seed": 2, "encoding": "tiny", "start": "15"}
    weights_of = {"15": "15", "on": "on", "again": "on", "few": "15", "untrained": "15"}
    assert {own["variant"]: own["weights"] for own in made["tunings"].values()} == weights_of
    stages = {(own.stage, own.name) for own in registry.entries(everything)}
    assert ("further", "rate-on-1") in stages and ("variant", "rate-on-1") not in stages and ("transfer", "rate-few-1") in stages
    assert varied(everything.models, block, "again", 1).objective.mlm_probability == 0.4

    for member in params.members(everything.studies):
        if not block.variants[member.variant].only_tuned:
            metrics = variant.train(everything, member.name, Run(None))
            variant.metrics_file(everything, member.name).write_text(json.dumps(metrics))
        metrics = transfer.transfer(everything, member.name, Run(None))
        transfer.metrics_file(everything, member.name).write_text(json.dumps(metrics))
    assert not equal("data/variants/rate/15/1", "data/variants/rate/on/1")
    lineage = json.loads(Path("data/variants/rate/on/1/config.json").read_text())["lineage"]
    assert [step["by"] for step in lineage] == ["pretrained", "pretrained"] and not Path("data/variants/rate/again").exists()
    study_stage.study(everything, "rate", Run(None))
    with open("data/report/studies/rate.csv", newline="") as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    first, on, again, few, untrained = (rows[name] for name in variants)
    assert [int(row["steps"]) for row in (first, on, again, few, untrained)] == [6, 8, 8, 6, 0]
    assert float(on["flops"]) > float(first["flops"]) and float(untrained["flops"]) == 0 and not untrained["perplexity"]
    assert "; 8 labelled examples" in Path("data/report/studies/rate.html").read_text()
    predictions = Path("data/studies/rate/untrained/1/same/last/predictions.jsonl").read_text()
    assert '"init": "random"' in predictions and '"init": "pretrained"' not in predictions
    assert champion.best(everything, "rate").folder.parts[3] in ("15", "on")


def test_other_tasks_come_before_those_of_the_study(project):
    """One after the other or at once, from the same pre-trained model; its page says of each variant how many examples it has seen."""
    raw = changed()
    raw["tasks"]["twin"] = raw["tasks"]["same"]
    at_once = FIRST | {"name": "multitask", "tasks": ["same", "twin"], "train_examples": {"same": 24, "twin": 12}}
    raw["studies"]["rate"] |= {"seeds": [2], "contrasts": []}
    raw["studies"]["rate"]["variants"] = {
        "15": {}, "first": {"start": "15", "on": "tasks/twin", "by": FIRST | {"train_examples": 30}},
        "both": {"start": "first", "on": "tasks", "by": at_once}, "again": {"start": "both", "recipe": {"epochs": 3}},
    }  # fmt: skip
    everything = write(raw)
    made = json.loads(resolve.contents(everything)[resolve.TRAININGS])
    assert made["intermediate"]["rate-both-2"] == {"study": "rate", "variant": "both", "seed": 2, "start": "first"}
    assert set(made["intermediate"]) == {"rate-first-2", "rate-both-2"} and not made["further"]
    weights_of = {"15": "15", "first": "first", "both": "both", "again": "both"}
    assert {own["variant"]: own["weights"] for own in made["tunings"].values()} == weights_of
    stages = {(own.stage, own.name) for own in registry.entries(everything)}
    assert ("intermediate", "rate-both-2") in stages and not stages & {("variant", "rate-both-2"), ("further", "rate-both-2")}

    for task in ("same", "twin"):
        done = run_stage("components.tasks", task)
        assert done.returncode == 0, done.stderr
    for member in params.members(everything.studies):
        if not everything.studies["rate"].variants[member.variant].only_tuned:
            way = intermediate if everything.studies["rate"].variants[member.variant].by else variant
            metrics = way.train(everything, member.name, Run(None))
            way.metrics_file(everything, member.name).write_text(json.dumps(metrics))
        metrics = transfer.transfer(everything, member.name, Run(None))
        transfer.metrics_file(everything, member.name).write_text(json.dumps(metrics))
    of_study = everything.studies["rate"].variants["first"].by.model_copy(update={"seed": 2})
    derive_tuned.tune(everything, ["twin"], of_study, Path("data/variants/rate/15/2"), Path("again"))
    assert equal("again", "data/variants/rate/first/2"), "by the seed of the study"
    lineage = json.loads(Path("data/variants/rate/both/2/config.json").read_text())["lineage"]
    assert [step.get("on") for step in lineage] == [None, "twin", "same + twin"]
    before, first, both = (json.loads(Path(f"data/variants/rate/{name}/2/figures.json").read_text()) for name in ("15", "first", "both"))
    assert before["flops"] < first["flops"] < both["flops"] and before["seconds"] < first["seconds"] < both["seconds"]
    assert all(both[key] == before[key] for key in ("tokens", "steps", "perplexity")), "those of the text"
    reading = study_stage.study(everything, "rate", Run(None))["reading"]
    seen = "15 120; first 60 of twin, then 120; both 60 of twin, then 48 of same, 24 of twin, then 120; again 60 of twin, then 48 of same"
    assert f"Labelled examples seen, counting repetitions: {seen}" in reading and "24 of twin, then 180 of the task itself" in reading
    alone = everything.model_copy(update={"studies": {"rate": everything.studies["rate"].model_copy(update={"tasks": []})}})
    seen_before = readings.labelled(alone, "rate")  # a study of evaluations alone ended in an IndexError
    assert "15 none; first 60 of twin; both 60 of twin, then 48 of same, 24 of twin; again" in seen_before and "itself" not in seen_before
    page = unescape(Path("data/report/studies/rate.html").read_text())
    assert "on: tasks/twin, by: {name: tuned, " in page and "train_examples: 30" in page and seen in page


def test_the_reading_says_no_more_than_the_numbers():
    import pandas as pd

    def read(side, flops=1.0) -> list[str]:
        common = {"milestone": "last", "flops": 100.0, "tokens": 10, "steps": 2}
        frame = pd.DataFrame([{"variant": "15", **common}, {"variant": "40", **common, "flops": 100.0 * flops}])
        return readings.readings(CHECKED, "rate", frame, [compared("same", "40", "15", side, scores(*BASE[: side.runs]))])

    [said] = read(scores(0.72, 0.69, 0.70))
    said, _, could = said.partition(" Not beyond noise: ")
    assert said == "Against 15: no difference is beyond the noise of seeds and examples."
    assert re.fullmatch(r"same with 40 \(0\.\d{3}\)\. In brackets: .* \(80 % power\); the correction .* asks for a larger one\.", could)
    noisy = (
        "The variants' spread over seeds differs on same (Bartlett's test), "
        "so each interval there has the noise of its own two sides."
    )
    assert read(scores(0.4, 0.9, 0.7))[0].endswith(noisy) and noisy not in said
    first, second = read(scores(0.85, 0.86, 0.84), flops=2)
    assert re.fullmatch(r"Against 15: same is higher with 40 \(\+0\.1\d\d \[\+0\.\d+, \+0\.\d+\]\)\.", first), first
    assert second == "The budgets are not equal: in FLOPs of pre-training 40 2 × the base's."
    lines = [len(read(scores(0.72, 0.69, 0.70), flops=flops)) for flops in (0.89, 0.95, 1.09, 1.12)]
    assert lines == [2, 1, 1, 2], "beyond a tenth"
    assert read(scores(0.9))[0].startswith("One seed says nothing of the noise of training")
    equal = compared("same", "40", "15", verdicts.of_losses([0.5, 0.5]), verdicts.of_losses([0.5, 0.5]))
    assert readings.not_beyond_noise(CHECKED.studies["rate"], [equal]) == " Not beyond noise: same with 40.", "and no size"


def test_bits_of_sentences_are_compared_within_one_rule(monkeypatch):
    """A masked model's pseudo-log-likelihood is no probability of a text, and a lower-cased text has fewer bits."""
    sides = {
        (variant, "last"): verdicts.of_losses(bits)
        for variant, bits in {"masked": [1.7, 1.72], "more": [1.8, 1.81], "ltr": [1.5, 1.51], "cased": [1.55, 1.56]}.items()
    }
    raw = tiny_params(studies={"rules": {
        "model": "bert", "base": "masked", "evaluations": ["bits", "pairs"], "seeds": [1, 2], "budget": {"tokens": 3000},
        "question": "Which is best?", "plot": {"x": "tokens", "y": ["bits"]}, "contrasts": [["ltr", "cased"]],
        "variants": {
            "masked": {}, "more": {"change": {"objective": {"mlm_probability": 0.3}}}, "ltr": {"change": LEFT_TO_RIGHT},
            "cased": {"change": LEFT_TO_RIGHT, "encoding": "cased"},
        },
    }})  # fmt: skip
    raw["tokenizers"]["tiny"]["lowercase"] = True
    raw["tokenizers"]["cased"] = raw["tokenizers"]["tiny"] | {"lowercase": False}
    raw["encodings"]["cased"] = raw["encodings"]["tiny"] | {"tokenizer": "cased"}
    raw["evaluations"] = {
        "bits": {"kind": "bits_per_byte", "corpus": "tiny"}, "pairs": {"kind": "minimal_pairs", "corpus": "tiny"},
    }  # fmt: skip
    checked = params.check(raw)
    monkeypatch.setattr(tables, "by_loss", lambda *_: {})
    monkeypatch.setattr(tables, "untrained", lambda *_: {})
    monkeypatch.setattr(tables, "evaluation_sides", lambda *_: sides)
    found = [(one.task, one.variant, one.against) for one in tables.comparisons(checked, "rules")]
    against_base = [("pairs", variant, "masked") for variant in ("more", "ltr", "cased")]
    assert found == [("bits", "more", "masked"), *against_base, ("pairs", "ltr", "cased")]
    [said] = readings.beside_other_rules(checked, "rules")
    assert said.startswith("On bits, masked is not compared with ltr, cased: a masked model's pseudo-log-likelihood is no probability")
    for task, name, refused in (("bits", "ltr", True), ("pairs", "ltr", False), ("bits", "more", False)):
        raw["studies"]["rules"]["expects"] = [{"variant": name, "task": task, "direction": "lower", "matters": 0.1}]
        with pytest.raises(SesameError, match="the bits of ltr and masked do not compare") if refused else nullcontext():
            params.check(raw)


LEFT_TO_RIGHT = {"architecture": {"name": "decoder"}, "objective": {"name": "clm"}}


def test_a_ladder_tells_what_it_predicted():
    import pandas as pd

    block = CHECKED.studies["rate"].model_copy(update={"ladder": ["up", "off"]})
    rungs = [(f"{n}-{d}", n * 1e5, d * 1e5) for n in (2, 7, 20) for d in (3, 10, 30)] + [("up", 4e6, 9e6), ("off", 4e6, 9e6)]
    common = {"milestone": "last", "n": 2, "loss_std": 0.01}
    frame = pd.DataFrame([
        {"variant": name, "parameters": n, "tokens": d, "loss": 2 + (n / 7e5) ** -0.35 + (d / 1e6) ** -0.3 - (name == "off"), **common}
        for name, n, d in rungs
    ])  # fmt: skip
    reads = dict.fromkeys(frame["variant"], "left_to_right")
    found = ladder.climb(block, frame, reads)
    assert [(rung.variant, rung.verdict) for rung in found.rungs] == [("up", "as predicted"), ("off", "lower than predicted")]
    assert (
        found.fitted == 9
        and "up as predicted (3.06; 3.06 [3.0" in found.sentence
        and "off lower than predicted (2.06; 3.06" in found.sentence
    )
    of_ten_times = r"Of ten times the compute the fit would put a factor \S+ \[(\S+), (\S+)\] into parameters"
    [share] = re.findall(of_ten_times, found.sentence)
    assert float(share[0]) < 10 ** (0.3 / (0.35 + 0.3)) < float(share[1]), "equation 4 of Hoffmann et al. (2022)"
    [axis] = ladder.plot(block, frame, found).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [f"{n:,.0f} parameters" for n in (2e5, 7e5, 2e6, 4e6)]
    assert ladder.climb(CHECKED.studies["rate"], frame, reads) is None
    with pytest.raises(SesameError, match="its variants read in different ways: both_sides, left_to_right"):
        ladder.climb(block, frame, reads | {"up": "both_sides"})


def test_every_published_table_can_stand_beside_ours():
    """Also where a paper leaves a figure out."""
    for study in params.load(Path(__file__).parents[2] / "params.yaml").studies.values():
        if study.published:
            shown = study_stage.published(study)["frame"]
            assert len(shown) and shown.notna().all(axis=None) and not shown.isin(["None"]).any(axis=None)
