"""What an editor says of our YAML, by a parser and a validator that are not ours: YAML 1.2 of `yamlcore`, JSON Schema of `jsonschema`.

The project itself reads by `ruamel.yaml`, which takes more for a number (`250_000`) than YAML 1.2 does.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from yamlcore import CoreLoader

from components import params
from components.core import config
from components.params.variants import laid_over
from tests.conftest import sections

ROOT = Path(__file__).parents[1]
FILES = subprocess.run(["git", "ls-files", "*.yaml", "*.yml"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
SNIPPETS = {
    f"{page}-{number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S))
}


class Loader(CoreLoader):
    """YAML 1.2 with merge keys, as editors read it."""

    flatten_mapping = yaml.SafeLoader.flatten_mapping

    def construct_mapping(self, node, deep=False):
        before = [key.value for key, _ in node.value]
        assert len(set(before)) == len(before), node.start_mark
        self.flatten_mapping(node)
        node.value = list({key.value: (key, value) for key, value in node.value}.values())  # what is merged comes first
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])


def read(text: str):
    return yaml.load(text, Loader=Loader)


def complaints(shown: dict) -> list[str]:
    """Of the schemas, each about its sections."""
    found = []
    of_studies = {key: part for key, part in shown.items() if key in params.OF_STUDIES}
    each = [("study", study) for study in of_studies.pop("studies", {}).values()]
    main = {key: part for key, part in shown.items() if key not in params.OF_STUDIES}
    for name, own in [("params", main), ("studies", of_studies), *each]:
        schema = json.loads((ROOT / f"components/{name}.schema.json").read_text())
        found += [error.message[:200] for error in Draft202012Validator(schema).iter_errors(own)]
    return found


@pytest.fixture(scope="module")
def shipped() -> dict:
    said = {file: read((ROOT / file).read_text()) for file in params.files(ROOT)}
    return laid_over(said[params.FILE], params.joined(said))


@pytest.mark.parametrize("file", FILES)
def test_a_shipped_file_says_the_same_to_any_parser(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert json.loads(json.dumps(read(text))) == json.loads(json.dumps(YAML(typ="safe").load(text)))


@pytest.mark.parametrize("file", params.files(ROOT), ids=str)
def test_the_params_files_fit_their_schemas(file):
    schema = {params.FILE: "params", params.STUDIES: "studies"}.get(file, "study")
    validator = Draft202012Validator(json.loads((ROOT / f"components/{schema}.schema.json").read_text()))
    assert not [error.message[:200] for error in validator.iter_errors(read((ROOT / file).read_text()))]


@pytest.mark.parametrize("file", sorted((ROOT / "pipelines/profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_profile_fits_the_schema(file, shipped):
    assert not complaints(laid_over(shipped, read(file.read_text())))


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_of_the_docs_fits_the_schema(name, shipped):
    shown = read(SNIPPETS[name])
    assert json.loads(json.dumps(shown)) == json.loads(json.dumps(YAML(typ="safe").load(SNIPPETS[name])))
    assert not complaints(laid_over(shipped, sections(SNIPPETS[name], shown)))


@pytest.mark.parametrize("page", (*PAGES, *FILES))
def test_numbers_are_written_as_every_parser_reads_them(page):
    """In prose and comments, too, from where they are copied."""
    assert not re.findall(r"(?<![\w.])\d{1,3}(?:_\d{3})+(?!\w)", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["My-Model", "1st", "a" * 101])
def test_a_name_that_is_refused_is_refused_by_the_schema(name, shipped):
    block = shipped["models"]["gpt"]
    assert complaints(laid_over(shipped, {"models": {name: block}}))


@pytest.mark.parametrize(
    ("method", "right"),
    [
        ("xing_2015", True), ({"preset": "artetxe_2018b", "name": "numerals", "start": "numerals"}, True),
        ({"name": "mine", "map": "rcsls"}, True), ("xing_2016", False), ({"preset": "xing_2016"}, False), ({"map": "rcsls"}, False),
    ],
)  # fmt: skip
def test_methods_of_alignments_are_presets_or_blocks(shipped, method, right):
    found = complaints(laid_over(shipped, {"alignments": {"en_fr": {"methods": [method]}}}))
    assert bool(found) != right, found


def test_every_key_says_what_it_means_and_its_default():
    """In the words of its own docstring: those of a type (`a dimension of a model or a machine`) are the same for many keys."""
    general = {part.description for kind in ("Name", "Count", "Size", "Seed", "Sha256") for part in getattr(config, kind).__metadata__}
    for name in ("params", "studies", "study"):
        schema = json.loads((ROOT / f"components/{name}.schema.json").read_text())
        for kind, part in (schema["$defs"] | {"the file": schema}).items():
            for key, own in part.get("properties", {}).items():
                said = own.get("description", "").partition("Default: ")[0].strip()
                assert len(said) > 5 and said not in general, f"{kind}.{key} has no docstring"
                if own.get("default") not in (None, {}, []):
                    assert own["description"].endswith(f"Default: {json.dumps(own['default'])}."), f"{kind}.{key}"
