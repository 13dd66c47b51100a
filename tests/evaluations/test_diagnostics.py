"""Multiple choice and suites of regions: readers by the papers' files, scores by hand, formulas, and what is refused."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from torch.nn.functional import log_softmax

from components.core.errors import SesameError
from components.evaluations.bits_per_byte import evaluation as bits_per_byte
from components.evaluations.choices import evaluation as choices
from components.evaluations.choices import readers
from components.evaluations.contract import Answers, group_weights
from components.evaluations.evaluate import compare
from components.evaluations.minimal_pairs import scoring
from components.evaluations.regions import evaluation as regions
from components.evaluations.regions import formulas
from components.evaluations.regions.config import Regions
from components.evaluations.regions.evaluation import joined, prepare
from components.models import store
from components.text.sources.file import SourceFile
from tests.conftest import ran, run_stage, tiny_params
from tests.evaluations.test_scoring import built

SUITE = {
    "meta": {"name": "number"},
    "predictions": [{"type": "formula", "formula": "(3;%match%) < (3;%mismatch%)"}, {"formula": "(1;%match%) = (1;%mismatch%)"}],
    "items": [
        {"item_number": 1, "conditions": [
            {"condition_name": name, "regions": [{"region_number": i, "content": content} for i, content in enumerate(regions, start=1)]}
            for name, regions in (("match", ["the dog", "", "sees a ball ."]), ("mismatch", ["the dogs", "", "sees a ball ."]))
        ]},
    ],
}  # fmt: skip


def file(name: str, text: str) -> SourceFile:
    Path(name).write_text(text)
    return SourceFile(name, lambda: open(name, "rb"))


def test_formulas_are_read_as_they_are_written():
    surprisal = {("a", 1): 1.0, ("a", 2): 2.0, ("b", 1): 3.0, ("b", 2): 0.5}
    for formula, holds in {
        "(1;%a%) < (1;%b%)": True, "(1;%a%)>(1;%b%)": False, "[(1;%a%) < (1;%b%)] & [(2;%a%) < (2;%b%)]": False,
        "[ (1;%a%) + (2;%a%) ] < [ (1;%b%) + (2;%b%) ]": True, "[(1;%b%)-(1;%a%)]-[(2;%a%)-(2;%b%)]>0": True,
        "(1;%b%) - (2;%a%) - (1;%a%) = 0": True, "(1;%a%) < (2;%a%) & (2;%a%) < (1;%b%)": True,
    }.items():  # fmt: skip
        assert formulas.holds(formula, surprisal) == holds, formula
    for formula, said in {
        "(1;%a%) <": "its end", "(1;%a%) < (9;%a%)": "no region 9 in condition 'a'", "[(1;%a%)": "its end",
        "(1;%a%) ? 2": "is unexpected", "(1;%a%) < 2 ]": "']' is unexpected", "(1;%a%) <= (1;%b%)": "'=' is unexpected",
        "(1;%a%)": "compares no regions", "1 < 2": "compares no regions", "(1;%a%) < (1;%b%) & (2;%a%)": "one side of & compares nothing",
        "(" * 5000: "nested too deeply", "(" + "9" * 5000 + ";%a%) < 1": "is unexpected",
    }.items():  # fmt: skip
        with pytest.raises(SesameError, match=said.replace("]", r"\]")):
            formulas.holds(formula, surprisal)
    assert formulas.regions("(1;%a%) < (1;%b%) & (1;%a%) > 0") == [("a", 1), ("b", 1)]
    assert joined(["The dog", "", "sees", "."]) == ("The dog sees .", [(0, 7), (7, 7), (8, 12), (13, 14)])


def test_a_choice_that_is_one_token_with_the_text_before_it_is_not_certain(tokens):
    """Scored is all from the first token that a choice shares with the text before it, in each candidate of the item: a sum of no tokens
    would be a probability of 1."""
    word = max((tokens.decode([i]) for i in range(5, tokens.vocab_size)), key=len)
    (whole,) = tokens.encode([f"the {word}"])
    text, choices_given = f"the {word[:3]}[MASK] .", [word[3:], "zz"]
    item = readers.Item("some", [readers.filled("f", text, choice) for choice in choices_given], 0)
    assert tokens.decode(whole[-1:]) == word and choices.scored_from(item, tokens) == [3, 3], "with its blank"
    spans = [[(start, candidate.end)] for start, candidate in zip(choices.scored_from(item, tokens), item.candidates, strict=True)]
    for name in ("bert", "gpt"):
        sums = scoring.score_spans(built(name, tokens), tokens, [candidate.text for candidate in item.candidates], spans)
        assert all(total[0] < -1 for total in sums), name
    apart = readers.Item("some", [readers.filled("f", "the [MASK] sees", choice) for choice in ("dog", "man")], 0)
    assert choices.scored_from(apart, tokens) == [4, 4], "a blank before a word is no text before it"
    roles = readers.Item("some", [readers.continued(context, "dog") for context in ("the man", "the old man")], 0)
    assert choices.scored_from(roles, tokens) == [8, 12]


def test_choices_of_the_same_tokens_are_equally_likely(tokens, tmp_path, monkeypatch):
    """Sums of 32 bits differ with the padding of their batch: what the tokenizer writes alike is a tie all the same."""
    monkeypatch.setitem(scoring.TOKENS, "cpu", 64)  # many batches
    words = ["the", "dog", "sees", "a", "river", "man", "old", "red", "ball", "near"]
    texts = [" ".join(np.random.default_rng(i).choice(words, 3 + i % 9)) + " [MASK] ." for i in range(200)]
    rows = [("some", [readers.filled("f", text, choice) for choice in ("dog", "Dog")], 0) for text in texts]
    assert len({tuple(ids) for ids in tokens.encode([candidate.text for candidate in rows[0][1]])}) == 1
    (tmp_path / choices.FILE).write_text(json.dumps(rows))
    answers = choices.evaluate(tmp_path, built("gpt", tokens), tokens, "gpt")
    assert answers.values.tolist() == [0.5] * 200


@pytest.mark.parametrize("name", ["gpt", "bert", "elmo"])
def test_a_span_has_the_tokens_that_begin_in_it(name, tokens):
    """The parts of a sentence sum to it; of a masked model only they are hidden."""
    model = built(name, tokens)
    text = "the old dog sees a red ball near the river ."
    spans = [(0, 11), (11, 20), (20, len(text))]
    [whole], [parts] = scoring.score(model, tokens, [text]).log_probability, scoring.score_spans(model, tokens, [text], [spans])
    assert parts.sum() == pytest.approx(whole, rel=1e-5) and (parts < 0).all()
    [some] = scoring.score_spans(model, tokens, [text], [spans[1:2]])
    assert some == pytest.approx(parts[1:2], rel=1e-5)
    if name == "gpt":  # by hand
        ids = torch.tensor([[*tokens.prefix, *tokens.encode([text])[0]]])
        model.eval()
        with torch.no_grad():
            likely = log_softmax(model.logits(model.top(ids, torch.tensor([ids.shape[1]])))[0], -1)
        [[_, offsets]] = [tokens.encode_offsets([text])[0]]
        by_hand = [
            sum(float(likely[i, ids[0, i + 1]]) for i, (first, last) in enumerate(offsets)
                if low <= first + len(text[first:last]) - len(text[first:last].lstrip()) < high)
            for low, high in spans
        ]  # fmt: skip
        assert parts == pytest.approx(by_hand, rel=1e-4)
    if name != "elmo":  # which reads texts of any length
        [long] = scoring.score_spans(model, tokens, [" ".join([text] * 9)], [spans])
        assert np.isnan(long).all() and len(long) == 3


def test_published_files_are_read_as_their_papers_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choices = [{"label": "A", "text": "larger"}, {"label": "B", "text": "smaller"}]
    stem = {"stem": "A nail is usually [MASK] than a house .", "choices": choices}
    [item] = readers.olmpics([file("size_comparison_dev.jsonl", json.dumps({"id": "1", "answerKey": "B", "question": stem}) + "\n")])
    assert item.group == "size_comparison" and item.answer == 1
    assert [own.text[own.start : own.end] for own in item.candidates] == ["larger", "smaller"]
    table = "item\tcontext_aff\tcontext_neg\ttarget_aff\ttarget_neg\n0\tA trout is (a|an)\tA trout is not (a|an)\tfish\tinsect\n"
    affirmed, negated = readers.negation([file("NEG.tsv", table)])
    assert [own.text for own in affirmed.candidates] == ["A trout is a fish", "A trout is an insect"]
    assert [own.text for own in negated.candidates] == ["A trout is not a fish", "A trout is not an insect"]
    assert (affirmed.group, affirmed.answer, negated.group, negated.answer) == ("affirmed", 0, "negated", 1)
    table = "item\tcontext\ttarget\ttgt_cloze\n1-b\twhich man the dog had \tbitten\t0.1\n1-a\twhich dog the man had \tbitten\t0.5\n"
    [item] = readers.role([file("ROLE.tsv", table)])
    assert [own.text for own in item.candidates] == ["which man the dog had bitten", "which dog the man had bitten"] and item.answer == 1
    table = "context_s1\tcontext_s2\texpected\twithin_category\tbetween_category\tconstraint\n"
    table += "Checkmate.\tShe was good at\tchess\tmonopoly\tfootball\tH\n"
    [item] = readers.cprag([file("CPRAG.tsv", table)])
    assert [own.text for own in item.candidates][0] == "Checkmate. She was good at chess" and len(item.candidates) == 3


def test_an_article_is_that_of_the_words_sound(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    an = ["hour", "Owl", "insect", "honest man", "heir", "umbrella", "uncle", "eagle", "onion"]
    a = ["house", "unit", "European", "user", "university", "one", "hair", "fish"]
    table = NEGATION + "".join(f"0\tIt is (a|an)\tIt is not (a|an)\t{word}\ttool\n" for word in (*an, *a))
    written = [item.candidates[0].text for item in readers.negation([file("NEG.tsv", table)])][::2]
    assert written == [*(f"It is an {word}" for word in an), *(f"It is a {word}" for word in a)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "a [MASK] and a [MASK]", "choices": ["x", "y"], "answer": 0}, r"has 2 gaps \[MASK\]; give each text one"),
        ({"text": "a [MASK]", "choices": ["x"], "answer": 0}, "answer 0 of 1 choices; give two or more"),
        ({"text": "a [MASK]", "choices": ["x", "y"], "answer": 2}, "answer 2 of 2 choices"),
        ({"text": "a [MASK]", "choices": ["x", "x"], "answer": 0}, "two choices are the same"),
        ({"text": "a [MASK]", "choices": ["x", " "], "answer": 0}, "is empty; fill it"),
        ({"text": "a [MASK]", "choices": "xy", "answer": 0}, "choices is 'xy'; give a list of texts"),
        ({"text": "a [MASK]", "choices": ["x", "y"], "answer": "x"}, "answer is 'x'; give the number of a choice"),
        ({"text": "a [MASK]", "choices": ["x", "y"]}, "no column 'answer'"),
        ({"text": "a [MASK]", "choices": ["x", "y"], "answer": 0, "group": "all"}, "group is 'all', which stands for all items"),
    ],
)
def test_what_is_no_multiple_choice_is_one_line(row, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SesameError, match=f"own.jsonl, line 1: .*{said}"):
        list(readers.jsonl([file("own.jsonl", json.dumps(row) + "\n")]))


OLMPICS = {"answerKey": "A", "question": {"stem": "a [MASK]", "choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]}}
CPRAG = "context_s1\tcontext_s2\texpected\twithin_category\tbetween_category\tconstraint\n"
ROLE = "item\tcontext\ttarget\ttgt_cloze\n"
NEGATION = "item\tcontext_aff\tcontext_neg\ttarget_aff\ttarget_neg\n"


@pytest.mark.parametrize(
    ("reader", "content", "said"),
    [
        ("olmpics", OLMPICS | {"question": "a"}, "an object with 'choices' expected, str found"),
        ("olmpics", OLMPICS | {"question": {"stem": "a [MASK]"}}, "no column 'choices'"),
        ("olmpics", OLMPICS | {"question": {"stem": "a [MASK]", "choices": "xy"}}, "choices is 'xy'; give a list"),
        ("olmpics", OLMPICS | {"question": {"stem": "a [MASK]", "choices": [{"text": "x"}]}}, "no column 'label'"),
        ("olmpics", OLMPICS | {"question": {"stem": "a [MASK]", "choices": [{"label": "A", "text": None}]}}, "'text' holds nothing"),
        ("olmpics", OLMPICS | {"answerKey": "C"}, "0 choices have the label 'C' of answerKey"),
        ("cprag", f"{CPRAG}A.\tB\tc\td\te\th\n", "constraint is 'h'; give H or L"),
        ("cprag", f"{CPRAG}\tB\tc\td\te\tH\n", "column 'context_s1' is empty; fill it"),
        ("role", f"{ROLE}1\ta\tb\thigh\n1\tc\tb\t0.5\n", "tgt_cloze is 'high'; give a number"),
        ("role", f"{ROLE}1\ta\tb\tnan\n1\tc\tb\t0.5\n", "tgt_cloze is 'nan'; give a number"),
        ("role", f"{ROLE}1\ta\tb\t0\n1\tc\tb\t0.0\n", "tgt_cloze is 0 in both contexts, so that neither is right; leave both rows out"),
        ("negation", f"{NEGATION}0\tA is (a|an)\tB\t\tinsect\n", "a choice of 'A is .*' is empty; fill it"),
        ("negation", f"{NEGATION}0\t \tB\tfish\tinsect\n", "column 'context_aff' is empty; fill it"),
    ],
)
def test_what_is_no_published_choice_is_one_line(reader, content, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = content if isinstance(content, str) else json.dumps(content) + "\n"
    with pytest.raises(SesameError, match=f"own.txt, line [12]: .*{said}"):
        list(readers.READERS[reader]([file("own.txt", text)]))


def suite(**changes) -> str:
    return json.dumps(SUITE | changes)


def with_regions(*regions: object, number: object = 1, first: str = "match") -> str:
    conditions = [{"condition_name": name, "regions": list(regions)} for name in (first, "mismatch")]
    return suite(items=[{"item_number": number, "conditions": conditions}])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("5", "int found; an object is expected"),
        ("[" * 100_000, "not readable as JSON: its lists or objects are nested too deep"),
        ('{"a": {}, "a": {}}', "an object has 'a' twice"),
        (json.dumps({"": SUITE}), "suite : its name is empty"),
        (json.dumps({key: value for key, value in SUITE.items() if key != "meta"}), "no 'meta'"),
        (suite(meta={"name": ["a"]}), r"meta.name is \['a'\], where text is wanted"),
        (suite(predictions=[{"formula": 5}]), "suite number: formula is 5, where text is wanted"),
        (suite(predictions=[{"formula": "(1;%match%)"}]), r"suite number: prediction '\(1;%match%\)': compares no regions"),
        (suite(predictions=[{"formula": "(1;%match%) <= (1;%mismatch%)"}]), "suite number: prediction .*: '=' is unexpected"),
        (with_regions({"region_number": 1, "content": 5}), "item 1, match: a region is 5, where text is wanted"),
        (with_regions({"region_number": 1, "content": ""}), "item 1, match: no words"),
        (with_regions({"region_number": 1, "content": "\ud800"}), "surrogates not allowed"),
        (with_regions({"region_number": 3, "content": "a"}), r"regions are numbered \[3\], not 1, 2, 3"),
        (with_regions({"region_number": 1, "content": "a"}, number=float("nan")), "the number of an item is nan"),
        (with_regions({"region_number": 1, "content": "a"}, first="mismatch"), "item 1: two conditions have one name"),
        (suite(items=[{"n": 1, "c": {"match": "xy", "mismatch": ["z"]}}]), "item 1, match: 'xy' is not a list of regions"),
        (suite(items=[{"n": 1, "c": "xy"}]), "item 1: 'xy' is not an object of conditions"),
        (suite(items=SUITE["items"] * 2), "suite number: item 1 is there twice"),
        (suite(items=[], predictions=[{"formula": "(1;%match%) = (1;%mismatch%)"}]), "no items$"),
        (suite(predictions=[]), "suite number: its predictions are an empty list"),
        (suite(predictions=[{"formula": "(1;%match%) = (1;%mismatch%)"}]), "no items: all 1 predictions are of equal surprisal"),
    ],
)
def test_what_is_no_suite_is_one_line(content, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_text(content)
    block = Regions(kind="regions", corpus="tiny", source={"kind": "files", "paths": ["own.json"]})
    with pytest.raises(SesameError, match=f"^own.json.*{said}") as told:
        prepare(tmp_path, block)
    assert "\n" not in str(told.value) and not Path("items.json").exists()


@pytest.mark.parametrize("damage", ["", "null", "[]", "{}", "[1]", '{"a": 1}'])
@pytest.mark.parametrize("evaluation", [bits_per_byte, choices, regions])
def test_damaged_items_are_one_line(evaluation, damage, tokens, tmp_path):
    (tmp_path / evaluation.FILE).write_text(damage)
    with pytest.raises(SesameError, match=f"{evaluation.FILE} can't be read"):
        evaluation.evaluate(tmp_path, built("gpt", tokens), tokens, "gpt")


def test_both_run_as_stages_of_any_model(project):
    Path("suites").mkdir()
    Path("suites/number.json").write_text(json.dumps(SUITE))
    with gzip.open("suites/all.json.gz", "wt") as stream:
        conditions = {"match": ["the dog", "", "sees a ball ."], "mismatch": ["the dogs", "", "sees a ball ."]}
        json.dump({"other": {"predictions": SUITE["predictions"][:1], "items": [{"n": 7, "c": conditions}]}}, stream)
    rows = [{"text": "the [MASK] sees a ball .", "choices": ["dog", "of"], "answer": 0, "group": "nouns"},
            {"text": "a dog [MASK] the ball", "choices": ["sees", "the", "red"], "answer": 0, "group": "verbs"}]  # fmt: skip
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "files", "paths": ["suites/*"]}
    raw = tiny_params(
        evaluations={"suites": {"kind": "regions", "corpus": "tiny", "source": source},
                     "own": {"kind": "choices", "corpus": "tiny", "source": {"kind": "files", "paths": ["own.jsonl"]}}},
        evaluate={"models": ["gpt", "bert"], "evaluations": ["suites", "own"], "twins": [1, 2]},
    )  # fmt: skip
    with open("params.yaml", "w") as stream:
        YAML().dump(raw, stream)
    assert "2 items of 2 suites; 1 predictions of equal surprisal left out" in ran("evaluations", "suites")
    assert "2 items: nouns 1, verbs 1" in ran("evaluations", "own")
    for model in ("gpt", "bert"):
        ran("pretrain", model)
        for evaluation in ("suites", "own"):
            ran("evaluations.evaluate", f"{model}-{evaluation}")
            measured = json.loads(Path(f"data/metrics/evaluate/{model}-{evaluation}.json").read_text())
            assert measured["items"] == 2 and len(measured["groups"]) == 2
    assert measured["references"] == {"chance": pytest.approx((1 / 2 + 1 / 3) / 2)}
    loaded, tokens = store.load(Path("data/models/gpt"))
    good, bad = scoring.score_spans(loaded, tokens, ["the dog sees a ball .", "the dogs sees a ball ."], [[(8, 21)], [(9, 22)]])
    gpt = json.loads(Path("data/metrics/evaluate/gpt-suites.json").read_text())
    assert gpt["groups"]["number"]["score"] == gpt["groups"]["other"]["score"] == float(good[0] > bad[0])
    Path("suites/number.json").write_text(json.dumps({key: value for key, value in SUITE.items() if key != "predictions"}))
    done = run_stage("components.evaluations", "suites")
    assert done.returncode and "number.json, suite number: no 'predictions'; a suite in SyntaxGym's format is expected" in done.stderr


def test_a_group_counts_the_same_however_many_of_its_items_were_read():
    groups = np.array(["short"] * 100 + ["long"] * 100)
    right = np.r_[np.ones(100), np.zeros(50), np.full(50, np.nan)]
    answers = Answers("rule", right, groups, group_weights(groups, right), pd.DataFrame({"item": range(200)}), {})
    assert compare(answers, right[None], np.stack([right * 0 + 0.5] * 2))["score"] == pytest.approx(0.5)


def test_one_sentence_may_be_cut_in_two_ways(tokens, tmp_path, monkeypatch):
    """Each condition has its own regions: here a region's surprisal is its number of characters."""
    narrow, wide = ["the", "dog barks ."], ["the dog", "barks ."]
    items = [
        {"suite": "cut", "item": number, "formulas": ["(1;%narrow%) < (1;%wide%)"],
         "conditions": {"narrow": [f"{word}{narrow[0]}", narrow[1]], "wide": [f"{word}{wide[0]}", wide[1]]}}
        for number, word in enumerate(("", "old "), 1)
    ]  # fmt: skip
    (tmp_path / regions.FILE).write_text(json.dumps(items))
    monkeypatch.setattr(regions.scoring, "score_spans", by_characters)
    assert regions.evaluate(tmp_path, built("gpt", tokens), tokens, "gpt").values.tolist() == [1, 1]


def by_characters(model, tokens, sentences, spans, name) -> list[np.ndarray]:
    """Surprisals that are the numbers of characters of regions."""
    return [np.array([float(start - end) for start, end in regions_of_one]) for regions_of_one in spans]


def test_all_predictions_of_an_item_must_hold(tokens, tmp_path, monkeypatch):
    """As SyntaxGym counts (Hu et al. 2020), whether a suite has one formula with `&` or several."""
    monkeypatch.setattr(regions.scoring, "score_spans", by_characters)
    monkeypatch.chdir(tmp_path)
    words = [["a", "cats"], ["an", "c"], ["a", "c"]]
    items = [{"n": i, "c": {"short": ["a", "cat"], "long": regions_of_one}} for i, regions_of_one in enumerate(words)]
    scores = {}
    longer, shorter = "(1;%long%) > (1;%short%)", "(2;%long%) < (2;%short%)"
    for formulas_given in ([longer, shorter], [f"{longer} & {shorter}"]):
        suite = {"meta": {"name": "own"}, "predictions": [{"formula": formula} for formula in formulas_given], "items": items}
        Path("suite.json").write_text(json.dumps(suite))
        block = Regions.model_validate({"kind": "regions", "corpus": "tiny", "source": {"kind": "files", "paths": ["suite.json"]}})
        assert prepare(tmp_path, block)["items"] == 3
        scores[len(formulas_given)] = regions.evaluate(tmp_path, built("gpt", tokens), tokens, "gpt").values.tolist()
    assert scores == {1: [0, 1, 0], 2: [0, 1, 0]}
