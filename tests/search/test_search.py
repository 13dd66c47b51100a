"""Search: trials that repeat and go on after a kill, pruning that stops trainings, failures that are results, the page."""

import csv
import itertools
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Fabric
from ruamel.yaml import YAML

from components import params
from components.core import storage, tracking
from components.core.errors import SesameError
from components.core.tracking import Run
from components.finetune import kinds, loop, methods
from components.labs.search import __main__ as search
from components.labs.search import budget
from components.labs.search import page as page_of
from components.labs.search.draws import Draws
from components.models import store
from components.tasks import read
from components.text import tokenizer
from tests.conftest import run_stage, save_random, tiny_params

COSTS = {"seconds", "hours", "kwh"}
SEARCHED = {"models": ["bert", "elmo"], "tasks": ["same"]}


def raw_params(**changes) -> dict:
    raw = tiny_params()
    raw["search"] |= SEARCHED | changes
    raw["finetune"]["recipes"]["bert"] |= {"pair": "apart", "head": "mix"}  # learns what random weights can show
    return raw


def checked(**changes) -> params.Params:
    return params.check(raw_params(**changes))


def save_models(tokens: tokenizer.Tokenizer) -> None:
    """Random weights in place of trained ones."""
    checked = params.check(tiny_params())
    for name in checked.models:
        save_random(checked, name, tokens)


def rows(name: str = "bert-same-pretrained") -> list[dict]:
    with Path("data/search/trials", *name.split("-")).with_suffix(".csv").open() as lines:
        return list(csv.DictReader(lines))


def searched(all_params: params.Params, name: str = "bert-same-pretrained") -> dict:
    found = search.search(all_params, name, Run(None))
    storage.write_json(search.metrics_file(name), found)
    return found


def curve_of(drawn: dict, epoch: int) -> float:
    """A made-up score, best for a rate near 0.003."""
    return float(np.round(1 - abs(np.log10(drawn["learning_rate"]) + 2.5) / 3 - 0.3 / epoch, 6))


def play(config: params.Search, done: list[dict], trials: int) -> list[dict]:
    """A search over made-up scores, begun anew from the rows of an earlier one."""
    draws, found = Draws(config, params.check(tiny_params()).finetune.recipes["bert"]), list(done)
    for row in done:
        draws.add(row)
    while len(found) < trials:
        trial, seed = draws.ask()
        scores, state = [], "complete"
        for epoch in range(1, 9):
            scores.append(curve_of(trial.params, epoch))
            if draws.stops(trial, epoch, scores[-1]) and epoch < 8:
                state = "pruned"
                break
        score = scores[-1] if state == "complete" else None
        answer = draws.tell(trial, state, score)
        found.append({"drawn": trial.params, "seed": seed, "state": state, "score": score, "scores": scores, "pruner": answer})
    return found


@pytest.mark.parametrize(("sampler", "pruner"), itertools.product(["random", "tpe"], ["none", "successive_halving", "hyperband"]))
def test_a_study_made_anew_from_its_trials_goes_on_as_the_first(sampler, pruner):
    space = {"learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}, "epochs": {"choices": [8]}, "dropout": {"low": 0.0, "high": 0.5}}
    config = checked(sampler=sampler, pruner={"name": pruner}, space=space).search
    whole = play(config, [], 24)
    for cut in (1, 11, 23):
        assert play(config, json.loads(json.dumps(whole[:cut])), 24) == whole
    assert len({row["seed"] for row in whole}) == len({row["drawn"]["learning_rate"] for row in whole}) == 24
    assert any(row["state"] == "pruned" for row in whole) == (pruner != "none")
    other = Draws(config, params.check(tiny_params()).finetune.recipes["elmo"]).ask()
    assert (other[0].params, other[1]) == (whole[0]["drawn"], whole[0]["seed"]), "the same for every model"
    if sampler == "random":
        unpruned = play(config.model_copy(update={"pruner": params.Pruner()}), [], 24)
        assert [row["drawn"] for row in whole] == [row["drawn"] for row in unpruned]


def test_whole_numbers_choices_and_logarithms_are_drawn_as_such():
    space = {
        "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}, "epochs": {"low": 1, "high": 3},
        "schedule": {"choices": ["linear", "constant"]},
    }  # fmt: skip
    drawn = [row["drawn"] for row in play(checked(space=space).search, [], 200)]
    assert {row["epochs"] for row in drawn} == {1, 2, 3} and {row["schedule"] for row in drawn} == {"linear", "constant"}
    assert all(isinstance(row["epochs"], int) for row in drawn)
    assert 0.4 < np.mean([row["learning_rate"] < 1e-3 for row in drawn]) < 0.6


def test_what_has_no_effect_under_a_drawn_method_is_no_part_of_the_trial():
    space = {"method": {"choices": ["full", "lora"]}, "rank": {"choices": [2, 4]}, "layer_decay": {"choices": [0.5]}}
    declared = checked(models=["bert"], space=space)
    recipe = declared.finetune.recipes["bert"]
    assert recipe.drawn({"method": "full", "rank": 2, "layer_decay": 0.5}) == recipe.drawn({"method": "full", "layer_decay": 0.5})
    assert recipe.drawn({"method": "lora", "rank": 2}).rank == 2
    row = dict.fromkeys(("trial", "state", "score", "seconds", "hours", "kwh", "seed", "tokens", "flops", "note")) | {"scores": []}
    for drawn in ({"method": "full", "rank": 2}, {"method": "lora", "rank": 2}):
        assert search.columns(row | {"drawn": drawn}, recipe.method)["rank"] == (2 if drawn["method"] == "lora" else None)


@pytest.mark.parametrize(
    ("recipe", "space"),
    [
        ({}, {"head": ["pooled", "concat"]}), ({"pair": "apart"}, {"head": ["mix", "decomposable_attention"]}),
        ({"pair": "apart"}, {"method": ["full", "decomposable_attention"]}), ({"head": "mix"}, {"normalise_layers": [True, False]}),
    ],
)  # fmt: skip
def test_a_value_is_judged_on_the_recipes_of_the_models(recipe, space):
    """And on no other one: without the right settings beside it, the value would be refused."""
    raw = raw_params(models=["bert"], space={key: {"choices": choices} for key, choices in space.items()})
    raw["finetune"]["recipes"]["bert"] = {**tiny_params()["finetune"]["recipes"]["bert"], "batch_size": 8, **recipe}
    assert params.check(raw).search.space.keys() == space.keys()


def test_scoring_every_epoch_changes_nothing_of_the_training(project, tokens):
    checked_params = params.check(tiny_params())
    recipe, task, examples = checked_params.finetune.recipes["bert"], checked_params.tasks["same"], read("data/tasks/same", "train")[:30]

    def predictions(**watching) -> list:
        torch.manual_seed(3)
        kind, fabric = kinds.build(task, recipe), Fabric(accelerator="cpu")
        module = methods.build(store.build(checked_params.models["bert"].architecture, tokens), tokens, recipe, kind, True)
        encoded = kind.encode(examples, tokens)
        fitted = loop.fit(fabric, module, kind, encoded, recipe, 3, lambda epoch, loss: None, lambda found: 0.5, encoded, **watching)
        return [parameter.detach().clone() for parameter in module.parameters()], fitted

    (plain, first), (watched, second) = predictions(), predictions(stop=lambda epoch, score: False)
    _, stopped = predictions(stop=lambda epoch, score: True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True)) and first.tokens == second.tokens == 2 * stopped.tokens
    assert (first.epochs, second.epochs, stopped.epochs) == (2, 2, 1)


def test_halving_stops_trainings_for_real(project, tokens):
    save_models(tokens)
    space = {"learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}, "epochs": {"choices": [4]}}
    changes = {"space": space, "budget": {"trials": 8}}
    whole = searched(checked(**changes))
    each = {int(row["tokens"]) // 4 for row in rows()}
    assert whole["pruned"] == 0 and whole["epochs_trained"] == 32 and len(each) == 1
    kept, full = rows(), whole["cost"]["tokens"]
    halved = searched(checked(**changes, pruner={"name": "successive_halving"}))
    assert halved["pruned"] > 0 and halved["complete"] + halved["pruned"] == 8 and halved["complete"] >= 1
    for row, same in zip(rows(), kept, strict=True):
        assert int(row["tokens"]) == int(row["epochs_trained"]) * each.copy().pop(), "tokens are counted where they are read"
        assert (row["state"] == "pruned") == (int(row["epochs_trained"]) < 4) and row["learning_rate"] == same["learning_rate"]
        assert same["scores"].startswith(row["scores"]), "the same training up to where it was stopped"
    assert halved["cost"]["tokens"] < full and halved["epochs_trained"] < 32


def test_a_diverged_trial_is_a_result(project, tokens, capsys):
    save_models(tokens)
    found = searched(checked(space={"weight_decay": {"choices": [1e-3, 1e30]}, "epochs": {"choices": [2]}}, budget={"trials": 6}))
    states = [(row["state"], float(row["weight_decay"]) > 1, row["score"] == "", "not a number" in row["note"]) for row in rows()]
    assert set(states) == {("complete", False, False, False), ("failed", True, True, True)}
    assert found["failed"] + found["complete"] == 6 and "failed (the " in capsys.readouterr().out
    assert found["best"]["drawn"]["weight_decay"] == 1e-3


def test_constant_predictions_have_no_correlation_and_fail(project, tokens):
    save_models(tokens)
    raw = raw_params(space={"learning_rate": {"choices": [1e-12]}, "epochs": {"choices": [1]}}, budget={"trials": 1})
    raw["tasks"]["same"]["metrics"] = ["matthews_correlation"]
    found = searched(params.check(raw))
    assert found["failed"] == 1 and "matthews_correlation is undefined: constant predictions" in rows()[0]["note"]


@pytest.mark.parametrize(("budget", "trials", "ended_by"), [
    ({"hours": 1e-9}, 1, "1e-09 hours"), ({"hours": 1e-9, "trials": 3}, 1, "1e-09 hours"),
    ({"hours": 9, "trials": 2}, 2, "2 trials"),
])  # fmt: skip
def test_what_is_spent_first_ends_a_search(project, tokens, budget, trials, ended_by):
    save_models(tokens)
    found = searched(checked(budget=budget))
    assert (found["trials"], found["ended_by"]) == (trials, ended_by)


def write_params(project: Path, **changes) -> None:
    with (project / "params.yaml").open("w") as file:
        YAML().dump(raw_params(**changes), file)


def test_a_killed_search_goes_on_with_the_trials_it_has(project, start, tokens):
    """kill -9 after the second trial: the same trials as without, one ledger's run, only the running trial twice."""
    save_models(tokens)
    write_params(project, budget={"trials": 5})
    ledger = {"SESAME_TRACKING": "on", "MLFLOW_TRACKING_URI": f"sqlite:///{project}/ledger.db"}
    child = start("-m", "components.labs.search", "bert-same-pretrained", **ledger)
    for line in child.stdout:
        if line.startswith("trial 2 "):
            child.send_signal(signal.SIGKILL)
            break
    child.wait()
    [journal] = Path(".sesame/search").glob("*/trials.jsonl")
    done = len(journal.read_text().splitlines())
    assert 2 <= done < 5 and not Path("data/search").exists()
    with journal.open("a") as file:
        file.write('{"trial": 3, "sta')  # as if the kill had come in the middle of a line
    tracking.client.cache_clear()
    again = run_stage("components.labs.search", "bert-same-pretrained", **ledger)
    tracking.client.cache_clear()
    assert again.returncode == 0 and f"resumes after {done} trials" in again.stdout and again.stdout.count("\ntrial ") == 5 - done
    found = [{key: value for key, value in row.items() if key not in COSTS} for row in rows()]
    assert not list(Path(".sesame/search").iterdir()), "nothing is left to go on with"
    searched(checked(budget={"trials": 5}))
    assert found == [{key: value for key, value in row.items() if key not in COSTS} for row in rows()]

    import mlflow

    client = mlflow.MlflowClient(ledger["MLFLOW_TRACKING_URI"])
    runs = client.search_runs([client.get_experiment_by_name("sesame").experiment_id])
    [parent] = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    trials = [run for run in runs if run.data.tags.get("state") == "complete" and run.data.tags["mlflow.parentRunId"] == parent.info.run_id]
    assert {run.data.tags["trial"] for run in trials} == {"1", "2", "3", "4", "5"} and 5 <= len(runs) - 1 <= 6
    assert {run.data.tags["search"] for run in trials} == {"bert-same-pretrained"}
    for run in trials:
        assert {"learning_rate", "epochs", "seed"} <= run.data.params.keys()
        assert {"curves/score", "final_score", "kwh"} <= run.data.metrics.keys()
        assert len(client.get_metric_history(run.info.run_id, "curves/score")) == int(run.data.params["epochs"])


def test_another_search_is_not_gone_on_with(project, tokens):
    save_models(tokens)
    changed = ({}, {"seed": 2}, {"sampler": "tpe"}, {"train_examples": 20})
    keys = {search.Journal(checked(**changes), "bert-same-pretrained").folder for changes in changed}
    assert len(keys) == 4
    assert search.Journal(checked(budget={"trials": 99}), "bert-same-pretrained").folder in keys, "more trials of the same search"
    Path("data/models/bert/model.safetensors").write_bytes(b"other")
    assert search.Journal(checked(), "bert-same-pretrained").folder not in keys


def page(all_params: params.Params) -> tuple[str, dict]:
    found = budget.budget(all_params, "all", Run(None))
    return Path("data/search/index.html").read_text(), found["tasks"]["same"]


def test_the_page_compares_and_warns(project, tokens):
    save_models(tokens)
    Path("params.yaml").touch()  # the page shows its hash
    config = checked()
    for name in config.search.runs:
        searched(config, name)
    html, found = page(config)
    assert found["comparisons"]["bert-elmo"]["trials"]["sentence"] in html and "4 trials are few (under 20)" in html
    with Path("data/search/curves.csv").open() as lines:
        table = list(csv.DictReader(lines))
    assert [int(float(row["trials"])) for row in table if row["model"] == "elmo"] == [1, 2, 3, 4], "no curve beyond the trials"
    assert all(float(row["low"]) <= float(row["median"]) <= float(row["high"]) for row in table) and html.count("<svg") == 1
    own = {"sampler": "random", "pruner": "hyperband", "trials": 20, "pruned": 7, "failed": 2}
    said = page_of.warnings("bert", own)
    assert len(said) == 2 and "7 of 20 trials were stopped early" in said[0] and "2 of 20 trials failed" in said[1]
    assert page_of.warnings("bert", own | {"pruner": "none", "failed": 0}) == []
    searched(checked(sampler="tpe"), "bert-same-pretrained")
    html, found = page(checked(sampler="tpe"))
    assert "bert: trials drawn by tpe depend on those before them" in html and not found["comparisons"]
    assert "best_so_far" in Path("data/search/curves.csv").read_text()


def test_from_either_start_the_same_recipes_are_tried(project, tokens):
    save_models(tokens)
    Path("params.yaml").touch()
    config = checked(models=["bert"], inits=["pretrained", "random"])
    for name in config.search.runs:
        searched(config, name)
    both = rows("bert-same-pretrained"), rows("bert-same-random")
    drawn = [[(row["learning_rate"], row["epochs"], row["seed"]) for row in own] for own in both]
    assert drawn[0] == drawn[1] and [row["scores"] for row in both[0]] != [row["scores"] for row in both[1]]
    html, found = page(config)
    assert "bert-bert from random weights" in found["comparisons"] and "From pretrained and random weights" in html
    with pytest.raises(SesameError, match="search.inits: random is listed twice"):
        checked(inits=["pretrained", "random", "random"])


def test_random_weights_have_their_own_rate_where_none_is_drawn(project, tokens, monkeypatch):
    save_models(tokens)
    raw, rates = raw_params(models=["bert"], inits=["random"], space={"epochs": {"choices": [1, 2]}}), []
    raw["finetune"]["recipes"]["bert"] |= {"learning_rate": 1e-6, "starts": {"random": {"learning_rate": 0.03}}}
    monkeypatch.setattr(search.Trials, "run", lambda self, recipe, *others: rates.append(recipe.learning_rate) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        searched(params.check(raw), "bert-same-random")
    assert rates == [0.03]


def test_a_search_that_was_not_run_is_one_line(project):
    with pytest.raises(SesameError, match=r"data/search/trials/bert/same/pretrained.json: no such file; run the stage"):
        budget.budget(checked(), "all", Run(None))
    with pytest.raises(
        SesameError, match=r"is not in search of studies/params.yaml \(there are: bert-same-pretrained, elmo-same-pretrained\)"
    ):
        search.search(checked(), "bert-same-other", Run(None))
