"""From held-out text to figures next to random weights: the two stages, what they count, and the report's table."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from components import params
from components.core.errors import SesameError
from components.evaluations import stages
from components.evaluations.config import COLUMNS_READ
from components.evaluations.contract import Answers, check_answers, check_size
from components.evaluations.evaluate import by_layer, compare
from components.evaluations.minimal_pairs import pairs
from components.report import evaluations
from tests.conftest import ran, tiny_params

SENTENCES = [
    "{} sees an old dog near the river .", "{} sees a red ball near the river .", "the man of {} is here today .",
    "the men of {} are here today .", "today {} was in this house again .", "in these houses {} slept again .",
]  # fmt: skip


@pytest.fixture
def asking(project):
    """The tiny project with held-out sentences of which pairs can be made, and a model that has read something."""
    raw = tiny_params(
        evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}},
        evaluate={"models": ["gpt", "bert", "elmo"], "evaluations": ["pairs"], "twins": [1, 2]},
    )
    names = ["mary", "peter", "anna", "paul", "the farmer", "my sister", "john", "the old woman", "his teacher", "her friend"]
    lines = [sentence.format(name) for name in names for sentence in SENTENCES]
    Path("data/corpora/tiny/test.txt").write_text("\n\n".join(lines) + "\n")
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    return raw


def test_from_held_out_text_to_figures(asking):
    """Of models that read left to right, both sides, and each direction."""
    said = ran("evaluations", "pairs")
    asked = pairs.read(Path("data/evaluations/pairs/pairs.jsonl"))
    made = json.loads(Path("data/metrics/evaluation/pairs.json").read_text())
    assert made["pairs"] == len(asked) == sum(made["kept"].values()) > 10 and f"a/an: kept {made['kept']['a/an']} of " in said
    held_out = Path("data/corpora/tiny/test.txt").read_text() + Path("data/corpora/tiny/valid.txt").read_text()
    assert all(pair.good in held_out and pair.bad != pair.good for pair in asked)
    ngrams = pd.read_csv("data/evaluations/pairs/ngrams.csv")
    assert list(ngrams) == ["unigram", "bigram", "trigram"] and len(ngrams) == len(asked)
    protocols = {"gpt": "log_probability", "bert": "pll_within_word_l2r", "elmo": "log_probability"}
    for model, protocol in protocols.items():
        ran("pretrain", model)
        said = ran("evaluations.evaluate", f"{model}-pairs")
        measured = json.loads(Path(f"data/metrics/evaluate/{model}-pairs.json").read_text())
        assert measured["protocol"] == protocol and measured["items"] + measured["left_out"] == len(asked)
        items = pd.read_csv(f"data/evaluated/{model}/pairs/items.csv")
        assert measured["score"] == pytest.approx(items["score"].mean()) and (items["score"] == (items["good"] > items["bad"])).all()
        twins = items[["random_1", "random_2"]].to_numpy()
        assert measured["random"]["mean"] == pytest.approx(twins.mean()) and measured["random"]["n"] == 2
        assert measured["gain"]["low"] <= measured["gain"]["difference"] <= measured["gain"]["high"]
        assert measured["settings"] == {"kind": "minimal_pairs", "twins": [1, 2]} and f"{len(asked):,} items, 0 left out" in said
    checked = params.check(asking)
    files = {("evaluate", f"{model}-pairs"): Path(f"data/metrics/evaluate/{model}-pairs.json") for model in protocols}
    metrics = {key: json.loads(path.read_text()) for key, path in files.items()}
    table = evaluations.table(checked, metrics)
    assert (table["group"] == "all").sum() == 3 and set(table["group"]) > {"article"}
    assert "of 3 scores are better than those of random weights of the same architecture, beyond noise" in evaluations.reading(table)
    for measured in metrics.values():  # a group of this name is not the score over all items
        measured["groups"]["all"] = measured["groups"].pop("article")
    table = evaluations.table(checked, metrics)
    assert (table["group"] == "all").sum() == 3 == (table["group"] == "all (a group)").sum()


def test_published_pairs_are_a_source(asking):
    """Each paradigm counts the same; words that the text does not have are counted."""
    rows = ["the dog sees an old song .\tthe dog sees a old song .\tone\n"] * 1 + [
        f"{name} is here .\t{name} are here .\tother\n" for name in ("mary", "peter", "zyxw")
    ]
    Path("raw/pairs.tsv").write_text("right\twrong\tkind\n" + "".join(rows))
    columns = {"good": "right", "bad": "wrong", "paradigm": "kind"}
    own = {"kind": "minimal_pairs", "corpus": "tiny", "source": {"kind": "files", "paths": ["raw/pairs.tsv"]}, "columns": columns}
    with open("params.yaml", "w") as file:
        YAML().dump(asking | {"evaluations": {"pairs": own}}, file)
    said = ran("evaluations", "pairs")
    assert "4 pairs; " in said and json.loads(Path("data/metrics/evaluation/pairs.json").read_text())["known_words"] < 4
    ran("pretrain", "gpt")
    ran("evaluations.evaluate", "gpt-pairs")
    measured = json.loads(Path("data/metrics/evaluate/gpt-pairs.json").read_text())
    items = pd.read_csv("data/evaluated/gpt/pairs/items.csv")
    paradigms = items.groupby("paradigm")["score"].mean()
    assert measured["score"] == pytest.approx(paradigms.mean())
    assert measured["error"] == pytest.approx(paradigms.std() / 2**0.5), "over paradigms, whose pairs are made by one template"
    assert items.groupby("paradigm")["weight"].sum().to_numpy() == pytest.approx(2, abs=1e-5)
    with open("params.yaml", "w") as file:
        YAML().dump(asking | {"evaluations": {"pairs": own | {"pairs_per_paradigm": 2}}}, file)
    assert "3 of 4 pairs drawn, at most 2 of each paradigm" in ran("evaluations", "pairs")
    measured = json.loads(Path("data/metrics/evaluation/pairs.json").read_text())
    assert measured["pairs"] == 3 and measured["available"] == 4
    with open("params.yaml", "w") as file:
        YAML().dump(asking | {"evaluations": {"pairs": own | {"shared_words": True}}}, file)
    ran("evaluations", "pairs")
    ran("evaluations.evaluate", "gpt-pairs")
    measured = json.loads(Path("data/metrics/evaluate/gpt-pairs.json").read_text())
    assert measured["protocol"] == "log_probability of shared words" and "references" not in measured
    shared = pd.read_csv("data/evaluated/gpt/pairs/items.csv")
    assert ((shared["good"] > items["good"]) & (shared["bad"] > items["bad"])).all(), "fewer words are scored"


def test_a_layers_figures_are_of_all_pretrainings():
    """They stood for the first one alone, beside a score that is a mean over all."""
    one = np.ones(2)
    answers = [
        Answers("rule", one, one, one, pd.DataFrame(), {}, layers=[{"score": score, "control": score / 2} for score in scores])
        for scores in ([0.2, 0.4], [0.4, 0.8], [0.1, 0.3])
    ]
    assert by_layer(answers[:2], answers[2:]) == [
        {"score": pytest.approx(mean), "control": pytest.approx(mean / 2), "random_score": pytest.approx(random)}
        for mean, random in ((0.3, 0.1), (0.6, 0.3))
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reader": "blimp"}, "reader has no effect: without a source, pairs are generated"),
        ({"columns": {"good": "a"}}, "columns has no effect: without a source"),
        ({"pairs_per_paradigm": 9}, "pairs_per_paradigm has no effect: without a source, pairs are generated"),
        ({"shared_words": True}, "shared_words has no effect: generated pairs differ in one word"),
        ({"source": {"kind": "files", "paths": ["x"]}, "core": True}, "core has no effect: it selects generated pairs"),
        ({"source": {"kind": "files", "paths": ["x"]}, "reader": "zorro", "columns": {}}, "columns has no effect: reader zorro"),
    ],
)
def test_what_has_no_effect_is_refused(change, said):
    with pytest.raises(SesameError, match=rf"evaluations\.pairs: {said}"):
        params.check(tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"} | change}))


FILES = {"kind": "files", "paths": ["x"]}


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"kind": "bits_per_byte", "sentences": 1}, "sentences: Input should be greater than or equal to 2"),
        ({"kind": "minimal_pairs", "source": {"kind": "hub", "path": "a/b"}}, "source: no kind 'hub' .there are: pypi, url, files, bucket"),
        ({"kind": "regions", "source": {"kind": "synthetic", "problem": "integrals", "pairs": 9}}, "source: no kind 'synthetic'"),
        ({"kind": "attention", "test": {"source": FILES}, "train": {"source": FILES, "columns": [*COLUMNS_READ, "head"]}},
         "train: columns: head is there 2 times; name each of form, upos, head, deprel once"),
        ({"kind": "probe", "label": "tree", "test": {"source": FILES}, "train": {"source": FILES, "columns": [*COLUMNS_READ[:3], "x"]}},
         "train: columns: deprel is missing; name each of form"),
    ],
)  # fmt: skip
def test_what_no_evaluation_can_read_is_refused(block, said):
    with pytest.raises(SesameError, match=rf"evaluations\.asked\.{said}"):
        params.check(tiny_params(evaluations={"asked": {"corpus": "tiny"} | block}))


@pytest.mark.parametrize(
    ("values", "clusters", "said"),
    [
        ([1.0], None, "gpt can read 1 of 1 items, and the error of a score needs 2 or more"),
        ([1.0, np.nan], None, "gpt can read 1 of 2 items"),
        ([1.0, 0.0, np.nan], [0, 0, 1], "gpt can read 1 of 2 sentences"),
    ],
)
def test_too_few_items_for_an_error_are_one_line(values, clusters, said):
    values = np.array(values)
    groups, ones, clusters = np.full(len(values), "all"), np.ones(len(values)), clusters and np.array(clusters)
    with pytest.raises(SesameError, match=said):
        check_answers(Answers("rule", values, groups, ones, pd.DataFrame(), {}, clusters=clusters), "gpt")
    with pytest.raises(SesameError, match="test sentences: 1, and the error of a score needs 2 or more"):
        check_size({"train_sentences": 9, "test_sentences": 1})
    with pytest.raises(SesameError, match="returned no number of items; it returns one of pairs, items"):
        check_size({"words": 9})


def test_a_gain_has_the_noise_of_items_and_twins():
    """Of a hundred models that know as much as random ones, some five are found ahead or behind before any correction."""
    draw, found = np.random.default_rng(0), 0
    for _ in range(100):
        values, twins = draw.integers(0, 2, 400).astype(float), draw.integers(0, 2, (3, 400)).astype(float)
        groups = np.array(["one", "two"])[draw.integers(0, 2, 400)]
        figures = compare(Answers("rule", values, groups, np.ones(400), pd.DataFrame(), {}), values[None], twins)
        found += figures["gain"]["p"] < 0.05
    assert 1 <= found <= 12
    values[:7] = np.nan
    figures = compare(Answers("rule", values, groups, np.ones(400), pd.DataFrame(), {}), values[None], twins)
    assert figures["items"] == 393 and figures["left_out"] == 7


def test_an_error_is_over_items_and_pretrainings():
    """That of the first pre-training's items alone is .015."""
    rng = np.random.default_rng(0)
    trained = (rng.random((3, 400)) < [[0.9], [0.6], [0.75]]).astype(float)
    answers = Answers("rule", trained[0], np.full(400, "all"), np.ones(400), pd.DataFrame(), {})
    between, items = trained.mean(1).var(ddof=1) / 3, trained.mean(0).var(ddof=1) / 400
    twins = rng.integers(0, 2, (2, 400)).astype(float)
    assert compare(answers, trained, twins)["error"] == pytest.approx((between + items) ** 0.5, rel=0.1)


@pytest.mark.parametrize("clusters", [None, np.array([0, 0, 1])])
def test_a_single_item_has_neither_error_nor_interval(clusters):
    answers = Answers("rule", np.array([1.0, np.nan, np.nan]), np.full(3, "all"), np.ones(3), pd.DataFrame(), {}, clusters=clusters)
    twins = np.array([[0.0, 1.0, 1.0], [0.5, 1.0, 1.0]])
    figures = compare(answers, answers.values[None], twins)
    assert figures["score"] == 1 and figures["left_out"] == 2 and figures["random"]["mean"] == 0.25
    assert figures["error"] is None and figures["gain"] == {"difference": 0.75, "low": None, "high": None, "p": None, "detectable": None}
    table = stages.table({("evaluate", "gpt-pairs"): figures | {"measure": "accuracy"}})
    assert table.rows[0][3] == "1.000 ± –"
    with pytest.raises(SesameError, match="none of 3 items was scored"):
        compare(answers, np.full((1, 3), np.nan), twins)


def test_names_that_point_at_nothing_have_their_place():
    raw = tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "nope"}})
    raw["evaluate"] = {"models": ["gpd"], "evaluations": ["pair"]}
    with pytest.raises(SesameError) as said:
        params.check(raw)
    for problem in (
        "evaluations.pairs.corpus: no 'nope' in corpora or mixes", "evaluate.models[0]: no 'gpd' in models or checkpoints or derived",
        "evaluate.evaluations[0]: no 'pair' in evaluations (there are: pairs)",
    ):  # fmt: skip
        assert problem in str(said.value)
