"""The list of deliberate mistakes is up to date: each can still be made, and the tests that should notice it are there."""

import ast
import subprocess

import pytest

from tests.benchmarks.mistakes import ROOT, copy, wrong
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


def test_git_knows_the_files_of_the_copy(tmp_path):
    """`tests/test_editors.py` asks it for them as it is collected."""
    copy(tmp_path)
    here, there = (
        subprocess.run(["git", "ls-files", "*.yaml", "*.yml"], cwd=folder, capture_output=True, text=True, check=True).stdout.split()
        for folder in (ROOT, tmp_path)
    )
    assert there and {name for name in here if (ROOT / name).is_file()} <= set(there)
