"""Metrics against scikit-learn, scipy and known values; splits without labels are refused."""

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from components import params
from components.comparison import verdicts
from components.core.errors import SesameError
from components.tasks import Example, metrics
from tests.conftest import tiny_params


def task(kind: str = "classification", labels: list[str] | None = None, **changes) -> params.Task:
    base = params.check(tiny_params()).tasks["same"]
    return base.model_copy(update={"kind": kind, "labels": labels or [], "metrics": list(params.tasks.METRICS_OF[kind])} | changes)


def examples(labels: list, groups: list | None = None) -> list[Example]:
    return [Example(str(i), "a", None, label, group=groups[i] if groups else None) for i, label in enumerate(labels)]


def test_every_metric_that_can_be_declared_is_there():
    assert {kind: tuple(there) for kind, there in metrics.METRICS.items()} == params.tasks.METRICS_OF


def test_classification_matches_the_libraries():
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 2, (2, 200))
    names = np.array(["no", "yes"])
    two = task(labels=["no", "yes"], metrics=["f1", "accuracy", "matthews_correlation", "macro_f1"])
    result = metrics.evaluate(two, "dev", examples(names[gold].tolist()), names[predicted].tolist())
    assert list(result) == two.metrics
    assert result["accuracy"] == np.mean(gold == predicted)
    assert result["f1"] == pytest.approx(f1_score(gold, predicted))  # of "yes", the second label
    assert result["matthews_correlation"] == pytest.approx(matthews_corrcoef(gold, predicted))
    assert result["macro_f1"] == pytest.approx(f1_score(gold, predicted, average="macro"))


def test_macro_f1_counts_labels_that_do_not_occur():
    three = task(labels=["a", "b", "c"], metrics=["macro_f1"])
    assert metrics.evaluate(three, "dev", examples(["a", "b"]), ["a", "b"])["macro_f1"] == pytest.approx(2 / 3)


def test_regression_is_clipped_and_matches_scipy():
    rng = np.random.default_rng(0)
    gold, predicted = rng.uniform(0, 5, 50), rng.uniform(-3, 8, 50)
    scores = task("regression", range=(0, 5), metrics=["pearson", "spearman"])
    result = metrics.evaluate(scores, "dev", examples(gold.tolist()), predicted.tolist())
    assert result["pearson"] == pytest.approx(pearsonr(np.clip(predicted, 0, 5), gold).statistic)
    assert result["spearman"] == pytest.approx(spearmanr(np.clip(predicted, 0, 5), gold).statistic)


def test_constant_predictions_are_undefined_not_zero():
    scores = task("regression", range=(0, 5), metrics=["pearson", "spearman"])
    undefined = {"pearson": None, "spearman": None}
    assert metrics.evaluate(scores, "dev", examples([1.0, 2, 3]), [2.0] * 3) == undefined
    assert metrics.evaluate(scores, "dev", examples([1.0, 2, 3]), [7.0, 8, 9]) == undefined, "constant once clipped"
    one = task(labels=["no", "yes"], metrics=["matthews_correlation"])
    assert metrics.evaluate(one, "dev", examples(["no", "yes"]), ["no", "no"]) == {"matthews_correlation": None}
    assert metrics.shown(None) == "undefined (constant predictions or labels)" and metrics.shown(0.25) == "0.250"


def test_groups_are_judged_together():
    gold = ["true", "false", "true", "true", "false"]
    predicted = ["true", "false", "true", "false", "false"]
    multirc = task(labels=["false", "true"], metrics=["f1", "exact_match"])
    result = metrics.evaluate(multirc, "dev", examples(gold, ["0-0", "0-0", "0-1", "0-1", "1-0"]), predicted)
    assert result == {"f1": pytest.approx(0.8), "exact_match": pytest.approx(2 / 3)}
    parity = task(labels=["false", "true"], metrics=["gender_parity"])
    assert metrics.evaluate(parity, "dev", examples(["true"] * 4, ["a", "b", "a", "b"]), ["true", "false", "true", "true"]) == {
        "gender_parity": 0.5
    }


RANKING = {"range": (0, 2), "metrics": ["mrr", "ndcg"]}


def test_candidates_of_a_search_are_ranked_within_their_group():
    """Against every order of equal scores; a group whose candidates are all as relevant tells nothing."""
    rng, search = np.random.default_rng(0), task("regression", **RANKING)
    relevance = [[0, 1, 0, 0], [2, 0, 1], [0, 0, 1, 1, 0], [1], [0, 0]]
    scores = [[rng.integers(3) for _ in group] for group in relevance]
    groups = [i for i, group in enumerate(relevance) for _ in group]
    rows = examples([label for group in relevance for label in group], groups)
    ranks, gains = [], []
    for labels, given in zip(relevance[:3], scores[:3], strict=True):
        every = permutations(range(len(labels)))
        orders = [order for order in every if all(given[a] >= given[b] for a, b in pairwise(order))]
        ranks.append(np.mean([1 / (1 + min(rank for rank, i in enumerate(order) if labels[i])) for order in orders]))
        ideal = np.argsort(labels)[::-1]
        *gain, best = [sum(labels[i] / np.log2(rank + 2) for rank, i in enumerate(order)) for order in (*orders, ideal)]
        gains.append(np.mean(gain) / best)
    flat = [float(score) for group in scores for score in group]
    result = metrics.evaluate(search, "dev", rows, flat)
    assert result == {"mrr": pytest.approx(np.mean(ranks)), "ndcg": pytest.approx(np.mean(gains))}
    side = verdicts.side(search, "mrr", [replace(row, cluster=str(row.group)) for row in rows], [flat])
    assert side.scores == [pytest.approx(np.mean(ranks))] and len(side.without) == 5, "a group leaves as a whole"


def test_a_search_that_scores_all_alike_is_as_good_as_a_random_order():
    rows, search = examples([1.0, 0, 0, 0], [0] * 4), task("regression", **RANKING)
    assert metrics.evaluate(search, "dev", rows, [0.5] * 4)["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert metrics.evaluate(search, "dev", examples([1.0], [0]), [0.5]) == {"mrr": None, "ndcg": None}


def test_choice_takes_the_best_of_the_right_answers():
    rows = examples([["the White House", "Obama"], ["Ann"]])
    result = metrics.evaluate(task("choice"), "dev", rows, ["White House.", "Bob"])
    assert result == {"accuracy": 0.0, "f1": 0.5, "exact_match": 0.5}  # normalised text, not the choice, is compared
    assert metrics.evaluate(task("choice", metrics=["accuracy"]), "dev", examples([["0"], ["1"]]), ["0", "0"]) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("choices", "said", "f1", "exact"),
    [
        ({"choice 1": "cat", "choice 2": "dog"}, "choice 1", 0, 0), ({"1.": "cat", "1": "dog"}, "1.", 0, 0),
        ({"A": "big dog", "B": "the big dog"}, "A", 1, 1), ({"0": "a small dog", "1": "a big dog"}, "0", 0.5, 0),
        ({"0": "cat", "1": "dog"}, "a dog", 1, 1), ({"0": "cat", "1": "dog"}, "", 0, 0),
    ],
)  # fmt: skip
def test_the_texts_of_choices_are_compared_and_not_their_names(choices, said, f1, exact):
    row = Example("1", "what", None, [list(choices)[1]], choices=choices)
    chosen = task("choice")
    assert metrics.evaluate(chosen, "dev", [row], [said]) == {"accuracy": 0.0, "f1": f1, "exact_match": exact}
    for metric, value in (("f1", f1), ("exact_match", exact)):
        assert verdicts.side(chosen, metric, [row, row], [[said, said]]).scores == [value]


def test_of_record_the_entities_are_compared():
    """The text of a choice is the query with the entity, of which most is the same."""
    row = Example("1", "", None, ["Ann"], choices={name: f"It was {name} who came." for name in ("Ann", "Bob")})
    assert metrics.evaluate(task("choice", reader="record"), "dev", [row], ["Bob"]) == {"accuracy": 0.0, "f1": 0.0, "exact_match": 0.0}


def test_answers_are_scored_as_squad_scores_them():
    rows = examples([["308"], ["in the North Sea"], ["A Dog!", "cat"], ["the end"]])
    result = metrics.evaluate(task("extraction"), "dev", rows, ["308.", "North Sea coast", "dog", "a"])
    assert result["exact_match"] == 0.5
    assert result["f1"] == pytest.approx((1 + 2 * 2 / (3 + 3) + 1 + 0) / 4)
    assert metrics.normalised("  The  U.S.A., an idea ", "en") == "usa idea"
    assert metrics.normalised("„So“—the end…", "en") == "„so“— end", "the script knows punctuation of ASCII only"


@pytest.mark.parametrize(
    ("language", "right", "answer", "f1"),
    [
        ("fr", "il a fini", "il fini", 0.8), ("pt", "a casa", "casa", 2 / 3), ("zh", "北京", "北京。", 1), ("es", "cuándo", "¿Cuándo?", 1),
        ("de", "der Hund", "„Der Hund“", 1), ("hi", "वह आया", "वह आया।", 1), ("fr", "l'été", "L’été", 1), ("fr", "+", "-", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["extraction", "choice", "text"])
def test_articles_are_english_and_punctuation_is_of_any_language(kind, language, right, answer, f1):
    """`a` was an article, though a verb in French, and `。` a part of the answer."""
    asked = task(kind, language=language, metrics=["f1", "exact_match"])
    assert metrics.evaluate(asked, "dev", examples([[right]]), [answer]) == {"f1": pytest.approx(f1), "exact_match": float(f1 == 1)}


@pytest.mark.parametrize("kind", ["extraction", "choice", "text"])
@pytest.mark.parametrize(("right", "wrong"), [("A", "the"), ("A", ""), ("+", "-"), ("The", "an"), ("...", "?!")])
def test_an_answer_of_which_the_rule_leaves_nothing_is_itself(kind, right, wrong):
    """Option A was as right as any article, and shared no word with itself (OpenBMB/UltraRAG's issue 509)."""
    answers = task(kind, metrics=["f1", "exact_match"])
    rows = examples([[right]])
    assert metrics.evaluate(answers, "dev", rows, [right.lower()]) == {"f1": 1.0, "exact_match": 1.0}
    assert metrics.evaluate(answers, "dev", rows, [wrong]) == {"f1": 0.0, "exact_match": 0.0}


@pytest.mark.parametrize(
    ("answer", "part", "f1"),
    [("天气很好", "天气", 2 / 3), ("2016年5月", "2016年", 2 / 3), ("ประเทศไทย", "ไทย", 1 / 2), ("the North Sea", "Sea", 2 / 3)],
)
def test_a_part_of_an_answer_without_blanks_is_partly_right(answer, part, f1):
    """It was one word, right or wrong as a whole (google-deepmind/xquad's issue 2)."""
    scores = metrics.evaluate(task("extraction"), "dev", examples([[answer]]), [part])
    assert scores == {"f1": pytest.approx(f1), "exact_match": 0.0}


def test_tagging_counts_entities():
    """Three entities are there and three predicted, one of them too short: two thirds."""
    gold = [["B-per", "I-per", "O", "B-loc"], ["B-per", "O"]]
    predicted = [["B-per", "O", "O", "B-loc"], ["B-per", "O"]]
    tagging = task("tagging", ["O", "B-per", "I-per", "B-loc", "I-loc"])
    assert metrics.evaluate(tagging, "dev", examples(gold), predicted) == {"f1": pytest.approx(2 / 3), "accuracy": pytest.approx(5 / 6)}
    assert metrics.evaluate(tagging, "dev", examples([["O"]]), [["O"]]) == {"f1": 0.0, "accuracy": 1.0}
    with pytest.raises(ValueError):
        metrics.evaluate(tagging, "dev", examples(gold), [["B-per"], ["O"]])


def test_a_split_has_its_own_metrics_or_no_labels():
    raw = tiny_params()
    source = raw["tasks"]["same"]["train"]["source"]
    raw["tasks"]["same"] |= {
        "test": {"source": source, "labelled": False},
        "extra": {"ax": {"source": source, "metrics": ["matthews_correlation"]}},
    }
    same = params.check(raw).tasks["same"]
    assert metrics.evaluate(same, "ax", examples(["no", "yes"]), ["no", "yes"]) == {"matthews_correlation": 1.0}
    with pytest.raises(SesameError, match="the split test has no labels: it is for submission only"):
        metrics.evaluate(same, "test", examples([None]), ["no"])


def test_protocol_names_the_split():
    said = metrics.protocol("dev", "last of 3 epochs, nothing selected on dev", 1500, 277)
    assert said == "dev split (277 examples); last of 3 epochs, nothing selected on dev; 1500 labelled examples"


@pytest.mark.parametrize(
    "text",
    ["я иду на работу сегодня", "我今天去上班工作了", "ไทยแล้วครับผม", "私は今日仕事に行きます", "आधुनिक मानक हिन्दी है"],
)
def test_a_right_text_in_any_script_is_right(text):
    """ROUGE's own tokens are a to z, so that it gave 0.0 (google/adk-python's issue 3111); a sentence without blanks was
    one token to BLEU."""
    texts = task("text")
    assert metrics.evaluate(texts, "dev", examples([[text]]), [text]) == dict.fromkeys(texts.metrics, pytest.approx(1.0))
    half = metrics.evaluate(texts, "dev", examples([[text]]), [text[: 2 * len(text) // 3]])
    assert 0.4 < half["rouge_1"] < 1 and (" " in text or 0 < half["bleu"] < 1)


def test_words_of_other_letters_are_whole_and_english_ones_are_rouges_own():
    tokens = metrics.RougeTokens()
    assert tokens.tokenize("Schöne Türen, cafés") == ["schöne", "türen", "cafés"]
    for text in ("Two dogs running; the U.S.A.'s snake_case at 3.5%", "a  b\tCATS-and-dogs"):
        assert tokens.tokenize(text) == tokens.english.tokenize(text)


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["ein Satz", "über 我们"], "13a"), (["我们在2016年去了 Paris"], "zh"), (["私は仕事"], "char"), (["ไทย"], "char"),
        (["12", ""], "13a"), ([""], "13a"),
    ],
)  # fmt: skip
def test_how_texts_are_taken_apart_for_bleu(texts, name):
    assert metrics.bleu_tokens(texts) == name


@pytest.mark.parametrize("metric", ["bleu", "chrf", "exact_match", "f1", "rouge_l"])
def test_a_blank_is_right_where_a_target_has_a_character_without_width(metric):
    """Published tokenizers, as mT5's, make a blank of it, so that no model could write the target."""
    target = "\ufeffمی\u200cخواهم\u200f به خانه بروم"
    task = params.check(tiny_params()).tasks["same"].model_copy(update={"kind": "text", "language": "fa"})
    score = metrics.METRICS["text"][metric]
    assert score(task, [Example("1", "x", None, [target])], ["می خواهم به خانه بروم"]) == pytest.approx(1)
    assert score(task, [Example("1", "x", None, [target])], ["به خانه بروم"]) < 1


def test_an_answer_counts_in_any_form_of_its_characters():
    """Tokenizers write `m2` for `m²`: a model can't do otherwise. BLEU, chrF and ROUGE found other words in it."""
    for gold, written in (("10 m²", "10 m2"), ("cafe\u0301", "café"), ("２０２４", "2024"), ("the ﬁrst …", "the first ...")):
        assert metrics._same(written, gold, "en") and metrics._overlap(written, gold, "en") == 1
        texts = task("text")
        for right, answer in ((gold, written), (written, gold)):
            right, answer = (f"{one} a b c d {one}" for one in (right, answer))
            assert metrics.evaluate(texts, "dev", examples([[right]]), [answer]) == dict.fromkeys(texts.metrics, pytest.approx(1.0))
    assert metrics._overlap("", "", "en") == 1 and metrics._overlap("a dog", "", "en") == 0
