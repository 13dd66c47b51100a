"""What the docs show can be pasted: every block of params is one that the project takes."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from components import params
from components.params.studies import laid_over
from components.report import readme

ROOT = Path(__file__).parents[1]
BLOCKS = [
    (path, number, block)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))
]


@pytest.mark.parametrize(("path", "number", "block"), BLOCKS, ids=[f"{path.name}-{number}" for path, number, _ in BLOCKS])
def test_a_block_of_the_docs_is_taken_beside_the_default(path, number, block):
    yaml = YAML(typ="safe")
    default, studies = yaml.load(ROOT / "params.yaml"), yaml.load(ROOT / "studies/params.yaml")
    shown = yaml.load(block)
    assert shown.keys() <= default.keys() | studies.keys(), f"{path.name}: sections of params.yaml, so that it is clear where it goes"
    ours, theirs = ({key: own for key, own in shown.items() if (key in params.OF_STUDIES) == of} for of in (False, True))
    params.check(laid_over(default, ours), studies=laid_over(studies, theirs))


def test_there_are_such_blocks():
    assert {path.name for path, _, _ in BLOCKS} >= {"adaptation.md", "comparisons.md", "search.md", "studies.md"}


def test_the_tables_of_the_readme_are_those_of_the_report(monkeypatch):
    """As `python -m components.report.readme` fills them, from the committed files."""
    monkeypatch.chdir(ROOT)
    written = readme.README.read_text(encoding="utf-8")
    assert readme.filled(written) == written and written.count("<!-- table: ") == len(readme.TABLES)
