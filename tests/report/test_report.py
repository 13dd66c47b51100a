"""What the report concludes from scores."""

import json
import re
import shutil
from collections.abc import Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

from components import params, tasks
from components.comparison import pages, plots
from components.embeddings import history
from components.embeddings.space import Space, save
from components.models.common.config import Reads
from components.params.variants import KINDS
from components.report import benchmarks, spaces, tables
from components.report.__main__ import difference, reading, size, spread
from tests.conftest import tiny_params

STARTS = ("pretrained", "random", "token_vectors")
FIGURES = {"mean": 0.5, "median": 0.5, "std": None, "n": 1}


def measured(model: str, task: str, split="dev", method="full", **metrics) -> dict:
    scores = {split: {metric: FIGURES | {"mean": value} for metric, value in metrics.items()}}
    return {
        "model": model, "task": task, "method": method, "derived": [], "metric": next(iter(metrics)), "split": split,
        "cut": {split: 3}, "lost": {split: 1}, **dict.fromkeys(STARTS, scores), "trainable_parameters": 10, "trainable_share": 0.1,
        "costs": dict.fromkeys(STARTS, {"seconds": 2.0}), "memory_mib": 300.0,
    }  # fmt: skip


CHECKED = params.check(tiny_params())
SEEDS = (1, 2, 3)


def predictions(folder: str, init: str, seeds: Sequence[int | None], right: float) -> None:
    """Of as many runs, each right on such a share of the test examples, and not on the same ones."""
    examples, lines = tasks.read("data/tasks/same", "test"), []
    for seed in seeds:
        hits = np.random.default_rng([len(init), seed or 0, round(100 * right)]).permutation(len(examples)) < right * len(examples)
        for example, hit in zip(examples, hits, strict=True):
            wrong = "no" if example.label == "yes" else "yes"
            said = {"init": init, "seed": seed, "split": "test", "id": example.id, "prediction": example.label if hit else wrong}
            lines.append(json.dumps(said) + "\n")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder, "predictions.jsonl"), "a") as file:
        file.writelines(lines)


def gains(
    trained: float, untrained: float | None, seeds: Sequence[int] = SEEDS, baseline: float = 0.5, derived: Sequence[str] = (),
    vectors: float | None = None,
) -> dict:  # fmt: skip
    """The row of a model of which so much is right, from its own and from random weights, and from its token vectors."""
    for folder in ("data/scores", "data/baselines"):
        shutil.rmtree(folder, ignore_errors=True)
    inits = {"pretrained": trained, "random": untrained, "token_vectors": vectors}
    inits = {init: right for init, right in inits.items() if right is not None}
    for init, right in inits.items():
        predictions("data/scores/bert/same", init, seeds, right)
    predictions("data/baselines/same", "linear_svm", [None], baseline)
    predictions("data/baselines/same", "majority", [None], 0.3)
    model = measured("bert", "same", split="test", accuracy=trained) | {"derived": list(derived)}
    for init in {"random", "token_vectors"} - inits.keys():
        del model[init]
    own = {"task": "same", "metric": "accuracy", "split": "test", "protocol": "p"}
    part = {"trainable_parameters": 1}
    own["baselines"] = {
        name: part | {"test": {"accuracy": FIGURES | {"mean": mean}}} for name, mean in (("linear_svm", baseline), ("majority", 0.3))
    }  # fmt: skip
    metrics = {("finetune", "bert-same"): model, ("baseline", "same"): own}
    [row] = tables.gains(tables.scores(metrics), tables.comparisons(CHECKED, metrics))
    return row


def test_a_gain_counts_beyond_the_noise_of_seeds_and_examples_only(project):
    row = gains(0.95, 0.5)
    assert (row["gains"]["random"].verdict, row["lead"].verdict, row["ahead"]) == ("higher", "higher", True)
    assert row["baseline"]["model"] == "linear_svm"
    assert re.fullmatch(r"\+0\.\d{3} \[\+0\.\d{3}, \+0\.\d{3}\]", difference(row["gains"]["random"]))
    assert reading([row], ["bert"]) == (
        "Against random weights, pre-training is ahead beyond noise in 1 of 1 cases (bert on same). Ahead of every baseline beyond "
        "noise: bert on same. Pre-trained only once, so another run may differ: bert."
    )
    row = gains(0.6, 0.55, baseline=0.6)
    assert (row["gains"]["random"].verdict, row["lead"].verdict, row["ahead"]) == ("not beyond noise", "not beyond noise", False)
    could = row["gains"]["random"].difference.detectable
    assert reading([row], ["bert"]) == (
        "Against random weights, pre-training is ahead beyond noise in 0 of 1 cases; 1 within noise (a difference of "
        f"{could:.3f} would by itself be found in four cases of five). Ahead of every baseline beyond noise: none; bert on same is "
        "not ahead of linear_svm. Pre-trained only once, so another run may differ: bert."
    )
    row = gains(0.95, 0.5, derived=["tuned on snli"])
    assert row["model"] == "bert (tuned on snli)" and row["gains"]["random"].verdict == "higher" and row["ahead"]
    row = gains(0.3, 0.95)
    assert row["gains"]["random"].verdict == "lower" and "behind in 1 (bert on same)" in reading([row], ["bert"])


def test_own_token_vectors_are_a_start_to_be_ahead_of(project):
    """Each comparison stands in a table with its interval, its verdict, and the smallest effect that it could have seen."""
    row = gains(0.95, 0.5, vectors=0.94)
    assert [row["gains"][start].verdict for start in ("random", "token_vectors")] == ["higher", "not beyond noise"]
    said = reading([row], ["bert"])
    assert "Against random weights, pre-training is ahead beyond noise in 1 of 1" in said
    assert "Against own token vectors alone, pre-training is ahead beyond noise in 0 of 1" in said
    compared = {("bert", "same", start): own for start, own in row["gains"].items()}
    table = tables.comparison_table(pd.DataFrame({"task": ["same"], "metric": ["accuracy"]}), compared).set_index("against")
    own = row["gains"]["random"].difference
    assert table.loc["random", ["difference", "low", "high", "verdict"]].tolist() == [own.difference, own.low, own.high, "higher"]
    assert 0 < table.loc["token_vectors", "detectable"] < 0.5 and 0 <= table.loc["token_vectors", "p"] <= 1


def test_one_seed_claims_nothing(project):
    row = gains(0.95, 0.5, seeds=[1])
    assert (
        row["gains"]["random"].verdict == "one run"
        and not row["ahead"]
        and "in 1 it can't be said (one seed, or an undefined score)." in reading([row], ["bert"])
    )
    assert spread({"mean": 0.5, "std": float("nan"), "n": 1}) == "0.500 (1)"
    assert spread({"mean": float("nan"), "std": 0, "n": 1}) == "undefined"


def test_without_random_weights_nothing_is_claimed(project):
    row = gains(0.95, None)
    assert not row["starts"] and not row["gains"] and difference(None) == "–"
    assert reading([row], ["bert"]).startswith("No model was compared with another start")


def test_an_undefined_baseline_makes_a_table():
    undefined = {"dev": {"f1": FIGURES | {"mean": None, "median": None}}, "trainable_parameters": 3}
    table = tables.scores(
        {
            ("finetune", "m-t"): measured("m", "t", f1=0.5),
            ("baseline", "t"): {"task": "t", "metric": "f1", "split": "dev", "baselines": {"majority": undefined}},
        }
    )
    [row] = tables.gains(table, {})
    assert row["baseline"] is None and row["lead"] is None and table["mean"].isna().tolist() == [False, False, False, True]


def test_what_was_no_answer_stands_beside_the_score():
    outside = {"pretrained": {"dev": [0.25, 0.75]}, "random": {"dev": [1.0, 1.0]}, "token_vectors": {"dev": [0.0, 0.5]}}
    own = measured("t5", "t", accuracy=0.5) | {"outside": outside}
    assert tables.scores({("finetune", "t5-t"): own})["outside"].tolist() == [0.5, 1.0, 0.25]


def test_tasks_that_the_pre_training_text_was_not_cleared_of_are_named():
    """By each model's own text: a mix that holds a task out says nothing of a model that read another text, or went on
    with one."""
    assert tables.unguarded(selected(["same", "cola"])) == {"cola": ["bert"]}
    raw = tiny_params()
    raw["encodings"]["plain"] = raw["encodings"]["tiny"] | {"corpus": "base"}
    others = ("encoding", "architecture", "prompts", "pretrainings")
    training = {key: value for key, value in raw["models"]["bert"].items() if key not in others}
    raw["models"]["on_plain"] = raw["models"]["bert"] | {"encoding": "plain"}
    raw["derived"] = {"more": {"start": "bert", "on": "encoded/plain", "by": {"name": "pretrained", **training}}}
    raw["word_models"] = {"words": {"vectors": "one"}, "published": {"vectors": "elsewhere"}}
    source = {"kind": "files", "paths": ["raw/vectors.txt"]}
    raw["published_vectors"] = {"elsewhere": {"source": source, "licence": "CC0"}}
    models = ["bert", "on_plain", "more", "words", "published"]
    recipe = {"method": "full", "pair": "apart", "learning_rate": 0.003, "epochs": 1, "batch_size": 8, "max_length": 32}
    raw["finetune"] |= {"models": models, "recipes": dict.fromkeys(models, recipe)}
    chosen = params.check(raw)
    assert tables.unguarded(chosen) == {"same": ["on_plain", "more", "words"]}
    assert tables.of_unknown_text(chosen) == ["published"]


def selected(finetune: list[str], **adapt) -> params.Params:
    raw = tiny_params()
    same = raw["tasks"]["same"]
    raw["tasks"] |= {task: same for task in (*finetune, *adapt.get("tasks", []))}
    raw["finetune"] |= {"tasks": finetune, "models": ["bert"]}
    raw["adapt"] |= adapt
    return params.check(raw)


def test_a_benchmarks_table_stands_beside_the_published_one():
    chosen = selected(["cola", "sst2", "mnli"])
    metrics = {
        ("finetune", "bert-cola"): measured("bert", "cola", matthews_correlation=None),
        ("finetune", "bert-sst2"): measured("bert", "sst2", accuracy=0.8),
    }
    metrics["finetune", "bert-mnli"] = measured("bert", "mnli", accuracy=0.4)
    metrics["finetune", "bert-mnli"]["pretrained"]["mismatched"] = {"accuracy": FIGURES}
    table = benchmarks.benchmark(chosen, metrics, "glue").set_index("system")
    ours = table.loc["bert"]
    assert (ours["sst2"], ours["mnli-m"], ours["mnli-mm"]) == (80.0, 40.0, 50.0)
    assert pd.isna(ours["cola"]) and pd.isna(ours["mean"]), "no mean over a part"
    assert table.loc["BERT base", "mean"] == 79.6 and table.loc["BERT base", "from"] != ours["from"]
    assert benchmarks.benchmark(selected(["cola"]), metrics, "glue") is None


def test_the_benchmarks_as_one_table_of_fixed_columns():
    chosen = selected(["cola", "sst2"])
    papers = {"glue": benchmarks.benchmark(chosen, {("finetune", "bert-sst2"): measured("bert", "sst2", accuracy=0.8)}, "glue")}
    table = benchmarks.long(papers).set_index(["system", "column"])["percent"]
    assert table["bert", "sst2"] == 80.0 and table["BERT base", "mean"] == 79.6
    assert list(benchmarks.long({}).columns) == list(benchmarks.long(papers).columns) and benchmarks.long({}).empty


def test_tuning_and_freezing_side_by_side():
    recipe = {"method": "bitfit", "learning_rate": 1e-3, "epochs": 1, "batch_size": 8, "max_length": 32}
    chosen = selected(["same"], models=["bert"], methods=["biases"], tasks=["same"], recipes={"biases": recipe})
    metrics = {
        ("finetune", "bert-same"): measured("bert", "same", accuracy=0.8),
        ("adapt", "bert-biases-same"): measured("bert", "same", method="bitfit", accuracy=0.7),
    }
    table = benchmarks.tune_or_freeze(chosen, metrics)
    assert table[["method", "same accuracy", "seconds"]].values.tolist() == [["full", 0.8, 2.0], ["biases", 0.7, 2.0]]


def test_cards_show_notes_and_no_password():
    raw = tiny_params()
    raw["tasks"]["same"] |= {
        "note": "dev and test differ",
        "train": {"source": {"kind": "url", "url": "https://joe:secret@host/a.tsv", "sha256": "0" * 64}},
    }
    keys = [("corpus", "base"), ("mix", "tiny"), ("task", "same")]
    assert tables.cards(params.check(raw), dict.fromkeys(keys))[-1]["source"] == "https://host/a.tsv (dev and test differ)"
    raw["published_vectors"] = {"glove": {"source": {"kind": "files", "paths": ["glove.txt"]}, "licence": "none"}}
    measured = {key: {} for key in keys} | {("published_vectors", "glove"): {"vocabulary": 9000, "vector_size": 50, "left_out": {}}}
    card = tables.cards(params.check(raw), measured)[-1]
    assert card["name"] == "glove" and size(card["metrics"]) == "9,000 vectors of 50 dimensions"


def test_the_default_says_where_dev_and_test_differ():
    assert "dev and test are not to be compared" in params.load(Path(__file__).parents[2] / "params.yaml").tasks["stsb"].note


def test_a_word_has_moved_beyond_what_words_as_frequent_do_between_two_halves(project):
    """Without frequency half of the rare words would have changed, and no frequent one. The distances of rare words differ three times as
    much as those of frequent ones: without that, rare words that did not change would seem to."""
    rng = np.random.default_rng(0)
    counts = np.exp(rng.uniform(4, 9, 1000)).astype(int)
    rarity = (9 - np.log(counts)) / 5

    def write(pair: str, more: np.ndarray) -> None:
        spread = 0.01 * 3**rarity
        distance = 0.05 + 0.3 * rarity + spread * (rng.normal(size=1000) + more)
        rows = {"word": [f"w{i}" for i in range(1000)], "distance": distance, "source_count": counts, "target_count": 2 * counts}
        Path("data/align", pair).mkdir(parents=True)
        pd.DataFrame(rows).to_csv(f"data/align/{pair}/moved.csv", index=False)

    changed = np.where(np.arange(1000) < 100, 6.0, 0.0)  # deviations, whatever their frequency
    for pair, more in (("half", 0.0), ("other_half", 0.0), ("same", 0.0), ("eras", changed)):
        write(pair, np.zeros(1000) + more)
    raw = tiny_params()
    own = raw["alignments"]["again"]
    controls = {"controls": ["half", "other_half"]}
    raw["alignments"] = {"half": own, "other_half": own, "same": own | controls, "eras": own | controls}
    table, facts = spaces.moved(params.check(raw), "eras", words=100)
    assert sum(int(word[1:]) < 100 for word in table["word"]) > 95
    assert list(facts["beyond"]) == ["half", "other_half"] and all(0.12 < share < 0.18 for share in facts["beyond"].values())
    assert 90 < facts["changed"] < 110 and (table["falsely"].head(90) <= 0.05).all()
    _, nothing = spaces.moved(params.check(raw), "same")
    assert nothing["changed"] <= 2
    whole, _ = spaces.moved(params.check(raw), "eras", words=1000)
    unchanged = whole[whole["word"].str[1:].astype(int) >= 100]
    assert unchanged["score"].std() == pytest.approx(1, abs=0.15)
    assert 0.3 < (unchanged["source_count"].head(100) < np.median(counts)).mean() < 0.7, "rare words are not higher by chance"
    assert all(share < 0.08 for share in nothing["beyond"].values()) and spaces.moved(params.check(raw), "half")[1] == {}


def test_each_score_of_an_alignment_is_one_row_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = tiny_params()
    raw["alignments"] |= {"other": raw["alignments"]["again"]}
    for pair in ("again", "other"):
        Path("data/align", pair).mkdir(parents=True)
        rows = {column: [0.5, 0.25] for column in spaces.ALIGNMENT[1:]} | {"method": ["xing_2015"] * 2, "retrieval": ["nn", "csls"]}
        pd.DataFrame(rows).to_csv(Path("data/align", pair, "scores.csv"), index=False)
    shown = spaces.alignment_table(spaces.alignment(params.check(raw)))
    assert shown[["pair", "retrieval"]].values.tolist() == [["again", "nn"], ["again", "csls"], ["other", "nn"], ["other", "csls"]]
    assert shown["P@1"].tolist()[:2] == ["0.500 [0.500, 0.500]", "0.250 [0.250, 0.250]"]


PAGE = """
{% extends "base.html.j2" %}{% from "macros.html.j2" import table %}
{% block body %}{% include "spaces.html.j2" %}{{ figures.history_speeches }}{% endblock %}
"""


SHIFTS = {"towards": ["wordc"]}


@pytest.mark.parametrize(
    ("chosen", "known"), [(["worda", "gone"], {"wordb": SHIFTS}), ([], {}), (["gone"], {"gone": SHIFTS})], ids=["some", "none", "rare"]
)
def test_words_over_time_and_groups_of_writers_are_on_the_page(chosen, known, tmp_path, monkeypatch):
    """Out of what the stages write: the words with their neighbours, drawn and listed, and what is said of known shifts. A table without a
    row ended the report for good."""
    monkeypatch.chdir(tmp_path)
    draw, words = np.random.default_rng(0), [f"word{chr(97 + i)}" for i in range(20)]
    for period in ("one", "two"):
        space = Space(words, np.arange(200, 180, -1), draw.standard_normal((20, 8)).astype(np.float32))
        save(space, Path("data/vectors", period))
    raw = tiny_params()
    raw |= {"alignments": {}, "histories": {"speeches": {"periods": ["one", "two"], "words": chosen, "known": known}}}
    raw["groups"] = {"writers": {"first": "base", "second": "tiny", "permutations": 19}}
    all_params, used = params.check(raw), {"word": ["said"], "apart": [0.2], "score": [4.5], "p_family": [0.05], "falsely": [0.04]}
    Path("data/align/writers").mkdir(parents=True)
    pd.DataFrame(used).to_csv("data/align/writers/used.csv", index=False)
    figures = {"documents": [9, 8], "words": 1234, "used_differently": 1, "beyond_family": 0}
    metrics = {("vectors", name): {"words": 400, "vocabulary": 20} for name in ("one", "two")} | {("group", "writers"): figures}
    metrics["history", "speeches"] = history.trace(all_params, "speeches", None)

    shown = spaces.section(all_params, metrics)
    drawn = {key: Markup(plots.svg(figure)) for key, figure in spaces.figures(all_params).items()}
    if "worda" in chosen:
        near = set(" ".join(shown["histories"]["speeches"]["trajectories"]["neighbours"]).split())
        assert len([word for word in near if f">{word}<" in drawn["history_speeches"]]) >= 4 and "worda (two)" in drawn["history_speeches"]
    else:
        assert not drawn
    Path("page.html.j2").write_text(PAGE)
    shutil.copy(Path(spaces.__file__).with_name("spaces.html.j2"), "spaces.html.j2")
    pages.write(Path("page.html"), Path("page.html.j2"), "spaces", spaces=shown, figures=drawn)
    page = Path("page.html").read_text()
    assert "20 words are frequent in every period" in page and ("every period: gone." in page) == ("gone" in chosen)
    assert bool(re.search(r"Of 1 known shifts [01] go", page)) == ("wordb" in known)
    assert "Of 1,234 words frequent in both, 1 are used differently" in page and "compared with 19 deals of the 17 documents" in page
    assert "words that base and tiny use differently" in page and ">said<" in page


def test_losses_that_do_not_compare_are_drawn_apart():
    rows = [{"model": m, "reads": r, "tokens": 1e6 * i, "loss": 4.0 - i, "bits_per_byte": 2.0 - i / 2}
            for m, r in (("bert", "both_sides"), ("gpt", "left_to_right"), ("gpt2", "left_to_right")) for i in range(2)]  # fmt: skip
    drawn = {axis.get_title(): [line.get_label() for line in axis.lines] for axis in plots.curves(pd.DataFrame(rows)).axes}
    assert drawn == {
        "Loss, both sides seen (nats a target)": ["bert"], "Loss, left to right (nats a target)": ["gpt", "gpt2"],
        "Bits per byte, in one direction": ["gpt", "gpt2"],
    }  # fmt: skip
    apart = {name for name, block in KINDS["objective"].items() if block.incomparable_loss}
    assert set(plots.READS) == {*get_args(Reads), *apart} - {"no_context"}, "each that is trained on text has a title"


def seen(colour: str, matrix: np.ndarray) -> np.ndarray:
    """CIELAB of a colour as an eye sees it that `matrix` stands for (linear RGB, D65)."""
    channel = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channel > 0.04045, ((channel + 0.055) / 1.055) ** 2.4, channel / 12.92)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(matrix @ linear, 0, 1)
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


EYES = {
    "all cones": np.eye(3),
    "without red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "without green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
}  # Machado et al. 2009, severity 1


def test_eight_series_are_told_apart():
    """In colour, for the colour-blind too, and in marker; beyond eight no pair comes twice."""
    looks = list(islice(plots.styles(), 40))
    assert len({(look["color"], look["marker"]) for look in looks}) == 40
    first = looks[:8]
    assert len({look["marker"] for look in first}) == len({look["color"] for look in first}) == 8
    for name, eye in EYES.items():
        near = min(np.linalg.norm(seen(a["color"], eye) - seen(b["color"], eye)) for a, b in combinations(first, 2))
        assert near > 15, name


def test_probabilities_are_held_against_what_is_right(project):
    """Two models: one as sure as it is right, one surer."""
    rng, examples, metrics = np.random.default_rng(0), tasks.read("data/tasks/same", "test"), {}
    for model, surer in (("bert", 1), ("gpt", 4)):
        lines = []
        for seed in range(40):
            for example in examples:
                likely = rng.uniform(0.5, 1)
                right = rng.random() < likely
                said = [1 - likely, likely] if right == (example.label == "yes") else [likely, 1 - likely]
                said = (np.array(said) ** surer / (np.array(said) ** surer).sum()).tolist()
                row = {"init": "pretrained", "seed": seed, "split": "test", "id": example.id, "label": example.label}
                lines.append(json.dumps(row | {"prediction": "?", "probabilities": said}) + "\n")
        folder = Path("data/scores", model, "same")
        folder.mkdir(parents=True)
        (folder / "predictions.jsonl").write_text("".join(lines))
        own = {"expected_calibration_error": FIGURES, "brier_score": FIGURES, "temperature": FIGURES}
        measured = {"model": model, "task": "same", "split": "test", "derived": [], "method": "full"}
        measured["calibration"] = {"pretrained": {"test": own}}
        metrics["finetune", f"{model}-same"] = measured
    metrics["finetune", "elmo-scores"] = {"model": "elmo", "task": "scores", "split": "test", "derived": []}  # of another kind of task
    adapted = {("adapt", f"bert-same-{way}"): metrics["finetune", "bert-same"] | {"recipe": way, "method": "full"} for way in ("a", "b")}
    frame = tables.calibration(metrics | adapted)
    assert frame[["model", "method"]].values.tolist() == [["bert", "full"], ["gpt", "full"], ["bert", "a"], ["bert", "b"]]
    assert frame["temperature"].tolist() == [FIGURES["mean"]] * 4
    drawn = tables.reliability(CHECKED, metrics)
    assert list(drawn) == ["same"] and list(drawn["same"]) == ["bert", "gpt"]
    for model, expected in (("bert", 0.0), ("gpt", 0.177)):
        counts, likely, right = drawn["same"][model].T
        assert counts.sum() == 40 * len(examples)
        assert np.average(likely - right, weights=counts) == pytest.approx(expected, abs=0.02)
    assert [line.get_label() for line in plots.reliability(drawn).axes[0].lines][1:] == ["bert", "gpt"]


def test_the_path_of_a_word_is_drawn_once_among_its_neighbours():
    near = [{"of": "gay", "word": word, "period": None, "x": 0.1, "y": y} for word, y in (("merry", 0.2), ("bright", 0.4), ("social", 0.9))]
    path = [{"of": "gay", "word": "gay", "period": period, "x": x, "y": x} for period, x in (("1900s", 0.2), ("1990s", 0.8))]
    [axis] = plots.trajectories(pd.DataFrame([*near, *path]), ["1900s", "1990s"]).axes
    assert len(axis.lines) == 1 and [text.get_text() for text in axis.texts] == ["merry", "bright", "social", "gay (1900s)", "gay (1990s)"]
