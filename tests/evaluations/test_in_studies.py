"""A study whose variants are asked and not tuned: from params to table, page and reading."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from components import params
from components.core.errors import SesameError
from components.core.tracking import Run
from components.evaluations.contract import Answers, group_weights
from components.evaluations.minimal_pairs.evaluation import is_right
from components.evaluations.one_model import write_items
from components.stages import registry
from components.studies import __main__ as study_stage
from components.studies import milestones, readings, tables, transfer
from components.studies import variant as training
from pipelines import studies as printed
from tests.conftest import ran, tiny_params
from tests.evaluations.test_evaluate import asking  # noqa: F401  (a fixture)

STUDY = {
    "question": "Does it matter how fast it learns?", "model": "gpt", "base": "fast", "evaluations": ["pairs"], "seeds": [1, 2],
    "budget": {"steps": 6}, "plot": {"x": "bits_per_byte", "y": ["pairs"]},
    "variants": {"fast": {}, "slow": {"change": {"optimizer": {"learning_rate": 1e-5}}}, "none": {"start": "fast", "init": "random"}},
    "expects": [{"variant": "slow", "task": "pairs", "direction": "lower", "matters": 0.1}],
}  # fmt: skip


def test_a_study_without_tasks(asking):  # noqa: F811
    raw = asking | {"studies": {"speed": STUDY}}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    ran("evaluations", "pairs")
    entries = {entry.name: entry for entry in registry.entries(params.check(raw), "transfer")}
    assert set(entries["speed-none-1"].settings) == {"milestones", "own_seed", "init", "evaluations"}
    assert "components.evaluations.minimal_pairs.evaluation" in entries["speed-fast-1"].modules
    for variant, seed in (("fast", 1), ("fast", 2), ("slow", 1), ("slow", 2)):
        ran("studies.variant", f"speed-{variant}-{seed}")
    for variant in STUDY["variants"]:
        for seed in STUDY["seeds"]:
            said = ran("studies.transfer", f"speed-{variant}-{seed}")
            assert "pairs, last: accuracy 0." in said
    ran("studies", "speed")
    found = json.loads(Path("data/report/studies/speed.json").read_text())
    compared = {(own["task"], own["variant"]): own for own in found["comparisons"]}
    assert {("pairs", "slow"), ("pairs", "none"), ("bits_per_byte", "slow")} == set(compared)
    assert all(own["verdict"] for own in compared.values()) and found["expected"][0]["outcome"]
    table = pd.read_csv("data/report/studies/speed.csv").set_index("variant")
    items = [pd.read_csv(f"data/studies/speed/fast/{seed}/pairs/last/items.csv") for seed in (1, 2)]
    means = [(own["score"] * own["weight"]).mean() for own in items]
    assert table.loc["slow", "bits_per_byte_detectable"] > 0
    assert table.loc["fast", "pairs"] == pytest.approx(sum(means) / 2)
    assert "pairs by log_probability" in Path("data/report/studies/speed.html").read_text()
    assert compared["pairs", "slow"]["difference"] == pytest.approx(table.loc["slow", "pairs"] - table.loc["fast", "pairs"], abs=1e-5)
    with pytest.raises(SesameError, match="study speed has no tasks, and a champion is chosen by"):
        printed.champion("speed")


def test_groups_count_the_same_among_the_items_that_all_variants_read(tmp_path, monkeypatch):
    """A variant that reads shorter texts loses the long ones; by the first variant's weights the rest of them counted a tenth."""
    monkeypatch.chdir(tmp_path)
    raw = tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}})
    variants = {"long": {}, "short": {"change": {"architecture": {"max_length": 16}}}}
    checked = params.check(raw | {"studies": {"length": STUDY | {"base": "long", "variants": variants, "expects": []}}})
    groups = np.repeat(["short", "long"], 100)
    everything = np.repeat([1.0, 0.0], 100)
    a_part = np.where(np.arange(200) < 110, everything, np.nan)
    for variant, values in (("long", everything), ("short", a_part)):
        answers = Answers("rule", values, groups, group_weights(groups, values), pd.DataFrame(index=range(200)), {}, strata=groups)
        for seed in (1, 2):
            folder = Path(f"data/studies/length/{variant}/{seed}/pairs/last")
            folder.mkdir(parents=True)
            write_items(folder / "items.csv", answers)
    sides = tables.evaluation_sides(checked, "length", "pairs")
    assert [sides[variant, "last"].mean for variant in variants] == pytest.approx([0.5, 0.5])


def test_within_a_phenomenon_each_paradigm_counts_the_same(tmp_path, monkeypatch):
    """As in the evaluation's own groups: the score was a mean over pairs, .855 of these."""
    monkeypatch.chdir(tmp_path)
    raw = tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}})
    changes = {"base": "one", "variants": {"one": {}}, "budget": {"tokens": 3000}, "milestones": [1000], "expects": []}
    checked = params.check(raw | {"studies": {"groups": STUDY | changes}})
    paradigm, phenomenon = np.repeat(["many", "few"], [300, 30]), np.repeat("agreement", 330)
    right = np.repeat([1.0, 0.0, 1.0, 0.0], [270, 30, 12, 18])
    table = pd.DataFrame({"paradigm": paradigm, "phenomenon": phenomenon})
    answers = Answers("rule", right, phenomenon, group_weights(paradigm, right), table, {}, strata=paradigm)
    for member in tables.seeds(checked, "groups", "one"):
        for milestone in ("1000", "last"):
            folder = tables.transferred_folder(member) / "pairs" / milestone
            folder.mkdir(parents=True)
            write_items(folder / "items.csv", answers)
            figures = tables.weights_folder(checked, member) / ("" if milestone == "last" else milestone) / "figures.json"
            figures.parent.mkdir(parents=True, exist_ok=True)
            figures.write_text(json.dumps({"tokens": 1, "flops": 1}))
    rows = milestones.by_group(checked, "groups")
    assert rows["mean"].tolist() == pytest.approx([(0.9 + 0.4) / 2] * 2) and rows["items"].tolist() == [330, 330]


def test_what_is_learnt_when_is_a_picture(asking):  # noqa: F811
    """At each milestone the score of each group of items is that of the evaluation's own groups, over the seeds."""
    variants = {key: value for key, value in STUDY["variants"].items() if key != "none"}
    changes = {"budget": {"tokens": 3000}, "milestones": [1000], "variants": variants, "plot": {"x": "flops", "y": ["pairs"]}}
    raw = asking | {"studies": {"speed": STUDY | changes}}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    ran("evaluations", "pairs")
    checked = params.load()
    for member in params.members(checked.studies):
        for module, body in ((training, training.train), (transfer, transfer.transfer)):
            module.metrics_file(checked, member.name).write_text(json.dumps(body(checked, member.name, Run(None))))
    rows = study_stage.study(checked, "speed", Run(None))["groups"]
    groups = {row["group"] for row in rows}
    assert groups and len(rows) == len(groups) * 4
    for row in rows:
        items = [pd.read_csv(f"data/studies/speed/{row['variant']}/{seed}/pairs/{row['milestone']}/items.csv") for seed in (1, 2)]
        inside = [table[table["phenomenon"] == row["group"]] for table in items]
        scores = [np.average(table["score"], weights=table["weight"]) for table in inside]  # each paradigm counts the same
        assert row["items"] == len(inside[0]) >= milestones.MIN_ITEMS
        assert row["mean"] == pytest.approx(np.mean(scores)) and row["std"] == pytest.approx(np.std(scores, ddof=1))
        assert (row["tokens"] < 2000) == (row["milestone"] == "1000") and row["flops"] > row["tokens"]
    page = Path("data/report/studies/speed.html").read_text()
    assert "What is learnt when" in page and all(group.replace("_", " ") in page for group in groups)

    # beside the variants stands what needs no model, on the same items
    ngrams = pd.read_csv("data/evaluations/pairs/ngrams.csv")
    read = pd.read_csv("data/studies/speed/fast/1/pairs/last/items.csv")["score"].notna()
    counted = {order: is_right(ngrams[order][read].to_numpy()).mean() for order in ("unigram", "bigram", "trigram")}
    name, score = tables.references(checked, "speed")["pairs"]
    assert score == pytest.approx(max(counted.values())) == counted[name]
    assert f"On pairs, {name} alone has {score:.3f}; better than that: " in page and f"{name}</text>" in page

    # what is asked without tuning is asked of any model, also of one that has learned nothing about context
    for file in Path("data/variants/speed/slow").glob("*/figures.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"loss": 5.0, "context_free_loss": 5.2}))
    compared = tables.comparisons(checked, "speed")
    assert {one.verdict for one in compared if one.milestone == "last"} <= {"higher", "lower", "not beyond noise"}
    idle = tables.untrained(checked, "speed")
    assert "slow" in idle
    said = readings.readings(checked, "speed", tables.table(checked, "speed", compared), compared, idle)
    assert "Nothing about context was learned by" in said[0] and "slow (loss 5.00, without context 5.20)" in said[0]


    # items that a model could not read don't count for the score either
    files = [Path(f"data/studies/speed/fast/{seed}/pairs/last/items.csv") for seed in (1, 2)]
    items = [pd.read_csv(file) for file in files]
    for table, file in zip(items, files, strict=True):
        table.loc[: len(table) // 3, "score"] = np.nan
        table.to_csv(file, index=False)
    read = [table.dropna(subset="score") for table in items]
    row = tables.table(checked, "speed", tables.comparisons(checked, "speed")).query("variant == 'fast' and milestone == 'last'")
    assert row["pairs"].item() == pytest.approx(np.mean([np.average(one["score"], weights=one["weight"]) for one in read]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluations": []}, "studies.speed: neither tasks nor evaluations"),
        ({"evaluations": ["pears"]}, r"studies.speed.evaluations\[0\]: no 'pears' in evaluations \(there are: pairs\)"),
        ({"tasks": ["same"]}, "studies.speed: recipe: missing; it says how"),
        ({"recipe": tiny_params()["finetune"]["recipes"]["gpt"]}, "studies.speed: recipe has no effect: the study has no tasks"),
        ({"eval_examples": 9}, "studies.speed: eval_examples has no effect: the study has no tasks; leave it out"),
        (
            {"variants": STUDY["variants"] | {"slow": {"recipe": {"learning_rate": 1e-3}}}},
            "studies.speed: variants.slow.recipe has no effect: the study has no tasks; leave it out",
        ),
        (
            {"variants": STUDY["variants"] | {"slow": {"start": "fast"}}},
            "variants.slow: with `start` alone it is only tuned, and the study has no tasks: it would be fast again",
        ),
        ({"plot": {"x": "tokens", "y": ["same"]}}, "plot: 'same' is neither a task or evaluation of the study nor one of"),
    ],
)
def test_what_a_study_can_not_be(change, said):
    raw = tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}}, studies={"speed": STUDY | change})
    with pytest.raises(SesameError, match=said):
        params.check(raw)
