"""The list of deliberate mistakes is up to date: each can still be made, and the tests that should notice it are there."""

import ast

import pytest

from tests.benchmarks.mistakes import ROOT, wrong
from tests.benchmarks.mistakes_list import MISTAKES


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_can_still_be_made(mistake):
    text = (ROOT / mistake.file).read_text()
    assert ast.dump(ast.parse(wrong(mistake))) != ast.dump(ast.parse(text))
    for file, _, name in (test.partition("::") for test in mistake.tests.split()):
        assert (f"def {name.partition('[')[0]}(" if name else "def test_") in (ROOT / file).read_text()


def test_a_text_that_is_gone_is_an_error():
    with pytest.raises(ValueError, match="components/core/flops.py has the text to be replaced 0 times, not once"):
        wrong(MISTAKES[0]._replace(file="components/core/flops.py"))
