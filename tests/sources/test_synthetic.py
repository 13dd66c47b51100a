"""Inverse problems: what is drawn can be solved, what solves it is found right in any form, and the parts share none."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import sympy

from components import params
from components.core.errors import SesameError
from components.generate.__main__ import best_of, pass_at
from components.text import sources
from components.text.sources import synthetic
from components.text.sources.parallel import translations
from components.text.sources.synthetic import counts, integrals, programs, shapes
from tests.conftest import run_stage, tiny_params


def source(**changes) -> params.SyntheticSource:
    return params.SyntheticSource(**({"kind": "synthetic", "problem": "integrals", "pairs": 60, "operators": 3} | changes))


def test_pairs_are_right_differ_and_come_again():
    pairs = list(synthetic.generate_pairs(source()))
    assert pairs == list(synthetic.generate_pairs(source())) != list(synthetic.generate_pairs(source(seed=2))) and len(pairs) == 60
    assert len({problem for problem, _ in pairs}) == 60
    for problem, solution in pairs:
        for text in (problem, solution):
            assert sympy.simplify(integrals.from_words(text) - integrals.from_words(integrals.to_words(integrals.from_words(text)))) == 0
        assert integrals.solves(problem, solution) and integrals.solves(problem, f"add {solution} int+ 7"), "up to a constant"
        assert not integrals.solves(problem, f"add {solution} x")
    others = {problem for problem, _ in synthetic.generate_pairs(source(part="held_out", pairs=10))}
    assert not others & {problem for problem, _ in synthetic.generate_pairs(source(pairs=200))}


@pytest.mark.parametrize(("answer", "found"), [
    ("mul x log x", True), ("mul log x x", True), ("add mul x log x int- 1 2", True), ("div mul pow x int+ 2 log x x", True),
    ("mul x", False), ("mul x log x x", False), ("add x y", False), ("", False), ("int+", False), ("pow int+ 0 int- 1", False),
    ("exp exp exp exp mul int+ 9 9 9 x", False),
])  # fmt: skip
def test_an_answer_is_right_in_whatever_form(answer, found):
    assert integrals.solves("add int+ 1 log x", answer) is found


@pytest.mark.parametrize(("answer", "right"), [
    ("sort double", True), ("double sort", True), ("sort reverse reverse double", True), ("double", False), ("sort", False), ("", False),
    ("sort treble", False), ("sort tail double", False),
])  # fmt: skip
def test_a_program_is_right_if_it_makes_every_output(answer, right):
    assert programs.solves("in 3 1 2 out 2 4 6 in 5 0 out 0 10", answer) is right
    assert programs.run(["negate", "sums", "halve"], [3, 0, 2]) == [-2, -2, -3], "halves are rounded down"


@pytest.mark.parametrize(("answer", "right"), [
    ("the cat chased a dog", True), ("a dog chased the cat", True), ("the cat chased a girl", False), ("chased the cat a dog", False),
    ("the cat chased a dog near a dog", False), ("the kat chased a dog", False), ("", False),
])  # fmt: skip
def test_a_sentence_is_right_if_it_is_one_and_its_counts_are_those(answer, right):
    assert counts.solves("words 5 a 3 e 2 i 0 o 1 u 0", answer) is right


PICTURE = """
. . . . . . . .
. r r r . . . .
. r r r . . . .
. r r r . . . .
. . . . . b b b
. . . . . b . b
. . . . . b b b
. . . . . . . .
"""


@pytest.mark.parametrize(("caption", "true"), [
    ("a red square above a blue ring", True), ("a blue ring below a red square", True),
    ("a red square left of a blue ring", True), ("a blue ring right of a red square", True),
    ("a red square below a blue ring", False), ("a red square right of a blue ring", False),
    ("a red ring above a blue ring", False), ("a blue square above a blue ring", False),
    ("a red square", False), ("a red square above a blue ring above a green star", False), ("red square above a blue ring", False),
    ("a red square above a blue ring above", False), ("", False), ("above", False), (" above ".join(["a red square"] * 30), False),
])  # fmt: skip
def test_a_caption_is_right_if_it_is_true_and_names_all_shapes(caption, true):
    assert shapes.solves(" ".join(PICTURE.split()), caption) is true


def test_new_combinations_are_in_no_other_part():
    def captions(part: str, pairs: int) -> list[str]:
        made = list(synthetic.generate_pairs(source(problem="shapes", pairs=pairs, part=part)))
        assert all(shapes.solves(*pair) for pair in made)
        return [caption for _, caption in made]

    seen = " ".join(captions("training", 400) + captions("held_out", 60))
    assert not any(f"{colour} {shape}" in seen for colour, shape in shapes.NEW)
    assert all(colour in seen for colour in shapes.COLOURS) and all(shape in seen for shape in shapes.SHAPES)
    assert all(any(f"{colour} {shape}" in caption for colour, shape in shapes.NEW) for caption in captions("new_combinations", 60))
    with pytest.raises(ValueError, match="part new_combinations: only problem shapes has it, not counts; write held_out"):
        source(problem="counts", part="new_combinations")


@pytest.mark.parametrize("problem", ["programs", "counts", "shapes"])
def test_pairs_of_other_problems_are_right_differ_and_come_again(problem):
    pairs = list(synthetic.generate_pairs(source(problem=problem)))
    assert pairs == list(synthetic.generate_pairs(source(problem=problem)))
    assert pairs != list(synthetic.generate_pairs(source(problem=problem, seed=2)))
    assert len({asked for asked, _ in pairs}) == 60 and all(synthetic.load(problem).solves(*pair) for pair in pairs)
    others = {asked for asked, _ in synthetic.generate_pairs(source(problem=problem, part="held_out", pairs=10))}
    assert not others & {asked for asked, _ in synthetic.generate_pairs(source(problem=problem, pairs=200))}


def test_of_k_draws_one_is_right_as_often_as_by_taking_them_all():
    """Against every way to take k of five; of beams the best are taken."""
    right = [False, True, False, False, True]
    for count in range(1, 6):
        taken = list(combinations(right, count))
        assert pass_at(right, count) == pytest.approx(sum(map(any, taken)) / len(taken))
    assert [best_of(right, count) for count in (1, 2, 4)] == [0, 1, 1] and pass_at([False] * 3, 3) == 0


@pytest.mark.parametrize(("changes", "said"), [
    ({"decoding": {"kind": "greedy"}}, "answers 3: greedy decoding has one; take decoding.kind sample or beam"),
    ({"decoding": {"kind": "beam", "beams": 2}}, "answers 3: more than decoding.beams, 2; raise beams"),
    ({"inputs": {"kind": "beginnings"}}, "answers 3: only those to a synthetic source's problems can be checked; leave it out"),
])  # fmt: skip
def test_answers_that_cannot_be_written_or_checked_are_refused(changes, said):
    block = {"model": "solver", "inputs": {"kind": "parallel", "source": source()}, "answers": 3}
    with pytest.raises(ValueError, match=re.escape(said)):
        params.Generation(**(block | changes))


def test_two_files_of_as_many_lines():
    files = list(sources.open_files(source(pairs=5)))
    assert [file.name.rpartition(": ")[2] for file in files] == ["problems", "solutions"]
    assert len(list(translations("here", source(pairs=5)))) == 5
    with pytest.raises(SesameError, match="no new problem in 2,000 tries after .* of 60; ask for fewer pairs or for more operators"):
        list(synthetic.generate_pairs(source(pairs=60, operators=1)))


def test_a_long_drawing_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(synthetic, "SECONDS_PER_LINE", 0.0)
    list(sources.open_files(source(pairs=5)))
    assert "integrals of up to 3 operators, training: 3 of 5 problems\n" in capsys.readouterr().out


def test_a_model_is_asked_and_its_answers_are_checked(project):
    raw = tiny_params()
    of = {"kind": "synthetic", "problem": "integrals", "operators": 2}
    raw["corpora"]["integrals"] = {
        "language": "en", "licence": "none", "parts": [{"source": {**of, "pairs": 120}, "reader": {"format": "parallel"}}],
        "splits": {"valid": 0.1, "test": 0},
    }  # fmt: skip
    raw["tokenizers"]["integrals"] = {"corpus": "integrals", "vocab_size": 300}
    raw["encodings"]["integrals"] = {"corpus": "integrals", "tokenizer": "integrals"}
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 64}
    raw["models"]["solver"] = raw["models"]["bert"] | {
        "encoding": "integrals", "architecture": {"name": "encoder_decoder", **sizes}, "objective": {"name": "translation"},
        "prompts": ["mul int+ 2 x"],
    }  # fmt: skip
    raw["generations"]["solved"] = {
        "model": "solver", "inputs": {"kind": "parallel", "source": {**of, "pairs": 12, "part": "held_out"}, "word_by_word": False},
        "decoding": {"kind": "greedy", "max_new_tokens": 8},
    }  # fmt: skip
    raw["generations"]["drawn"] = raw["generations"]["solved"] | {"decoding": {"kind": "sample", "max_new_tokens": 8}, "answers": 3}
    raw["generations"]["searched"] = raw["generations"]["solved"] | {"decoding": {"kind": "beam", "max_new_tokens": 8}, "answers": 3}
    Path("params.yaml").write_text(json.dumps(raw))
    for module, name in (
        ("components.text.corpora", "integrals"), ("components.text.tokenizer", "integrals"), ("components.text.encode", "integrals"),
        ("components.pretrain", "solver"), ("components.generate", "drawn"), ("components.generate", "searched"),
        ("components.generate", "solved"),
    ):  # fmt: skip
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in Path("data/generated/solved/texts.jsonl").read_text().splitlines()]
    share = sum(integrals.solves(row["input"], row["written"]) for row in rows) / len(rows)
    assert json.loads(Path("data/metrics/generate/solved.json").read_text())["solved"] == share and f"solved: {share:.1%}" in done.stdout
    assert all(integrals.solves(row["input"], row["reference"]) for row in rows)
    for name in ("drawn", "searched"):
        rows = [json.loads(line) for line in Path(f"data/generated/{name}/texts.jsonl").read_text().splitlines()]
        assert all(row["answers"][0] == row["written"] and len(row["answers"]) == 3 for row in rows)
        assert any(len(set(row["answers"])) > 1 for row in rows)
        measured = json.loads(Path(f"data/metrics/generate/{name}.json").read_text())
        right = [[integrals.solves(row["input"], answer) for answer in row["answers"]] for row in rows]
        assert measured["solved_by_any"]["3"] == sum(map(any, right)) / len(rows) and list(measured["solved_by_any"]) == ["1", "2", "3"]
