"""Inverse problems: what is drawn can be solved, what solves it is found right in any form, and the parts share none."""

import json
from pathlib import Path

import pytest
import sympy

from components import params
from components.core.errors import SesameError
from components.text import sources
from components.text.sources import synthetic
from components.text.sources.parallel import translations
from tests.conftest import run_stage, tiny_params


def source(**changes) -> params.SyntheticSource:
    return params.SyntheticSource(**({"kind": "synthetic", "problem": "integrals", "pairs": 60, "operators": 3} | changes))


def test_pairs_are_right_differ_and_come_again():
    pairs = list(synthetic.generate_pairs(source()))
    assert pairs == list(synthetic.generate_pairs(source())) != list(synthetic.generate_pairs(source(seed=2))) and len(pairs) == 60
    assert len({problem for problem, _ in pairs}) == 60
    for problem, solution in pairs:
        for text in (problem, solution):
            assert sympy.simplify(synthetic.from_words(text) - synthetic.from_words(synthetic.to_words(synthetic.from_words(text)))) == 0
        assert synthetic.solves(problem, solution) and synthetic.solves(problem, f"add {solution} int+ 7"), "up to a constant"
        assert not synthetic.solves(problem, f"add {solution} x")
    others = {problem for problem, _ in synthetic.generate_pairs(source(part="held_out", pairs=10))}
    assert not others & {problem for problem, _ in synthetic.generate_pairs(source(pairs=200))}


@pytest.mark.parametrize(("answer", "found"), [
    ("mul x log x", True), ("mul log x x", True), ("add mul x log x int- 1 2", True), ("div mul pow x int+ 2 log x x", True),
    ("mul x", False), ("mul x log x x", False), ("add x y", False), ("", False), ("int+", False), ("pow int+ 0 int- 1", False),
    ("exp exp exp exp mul int+ 9 9 9 x", False),
])  # fmt: skip
def test_an_answer_is_right_in_whatever_form(answer, found):
    assert synthetic.solves("add int+ 1 log x", answer) is found


def test_two_files_of_as_many_lines():
    files = list(sources.open_files(source(pairs=5)))
    assert [file.name.rpartition(": ")[2] for file in files] == ["problems", "solutions"]
    assert len(list(translations("here", source(pairs=5)))) == 5
    with pytest.raises(SesameError, match="no new problem in 2,000 tries after .* of 60; ask for fewer pairs or for more operators"):
        list(synthetic.generate_pairs(source(pairs=60, operators=1)))


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
    Path("params.yaml").write_text(json.dumps(raw))
    for module, name in (
        ("components.text.corpora", "integrals"), ("components.text.tokenizer", "integrals"), ("components.text.encode", "integrals"),
        ("components.pretrain", "solver"), ("components.generate", "solved"),
    ):  # fmt: skip
        done = run_stage(module, name)
        assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in Path("data/generated/solved/texts.jsonl").read_text().splitlines()]
    share = sum(synthetic.solves(row["input"], row["written"]) for row in rows) / len(rows)
    assert json.loads(Path("data/metrics/generate/solved.json").read_text())["solved"] == share and f"solved: {share:.1%}" in done.stdout
    assert all(synthetic.solves(row["input"], row["reference"]) for row in rows)
