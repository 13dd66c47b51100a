"""What the docs show can be pasted: every block of params is one that the project takes; what they name is there."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import typer
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from components import params
from components.params.variants import laid_over
from components.report import readme, readme_default
from pipelines import cli
from tests.conftest import sections

ROOT = Path(__file__).parents[1]
BLOCKS = [
    (path, number, block)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for text in [path.read_text(encoding="utf-8")]
    for number, block in enumerate([
        *re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S),
        *(f"# {file}\n{written}" for file, written in re.findall(r"^cat > (\S+) << END\n(.*?)^END$", text, re.M | re.S)),
    ])
]  # fmt: skip


@pytest.mark.parametrize(("path", "number", "block"), BLOCKS, ids=[f"{path.name}-{number}" for path, number, _ in BLOCKS])
def test_a_block_of_the_docs_is_taken_beside_the_default(path, number, block):
    yaml = YAML(typ="safe")
    default, studies = yaml.load(ROOT / "params.yaml"), params.studies_beside(ROOT / "params.yaml")
    if path.name.startswith("tutorial_"):  # each block goes on from the ones before it
        for _, _, before in [own for own in BLOCKS if own[0] == path][:number]:
            default = laid_over(default, yaml.load(before))
    shown = sections(block, yaml.load(block))
    assert shown.keys() <= default.keys() | studies.keys(), f"{path.name}: sections of params.yaml, so that it is clear where it goes"
    ours, theirs = ({key: own for key, own in shown.items() if (key in params.OF_STUDIES) == of} for of in (False, True))
    params.check(laid_over(default, ours), studies=laid_over(studies, theirs))


def test_the_readme_says_how_many_studies_there_are():
    [said] = re.findall(r"ships with (\d+) studies", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert int(said) == len([*(ROOT / "studies/params").glob("*.yaml")])


def test_there_are_such_blocks():
    assert {path.name for path, _, _ in BLOCKS} >= {"README.md", "adaptation.md", "comparisons.md", "search.md", "studies.md"}


def test_the_tables_of_the_readme_are_those_of_the_report(monkeypatch, tmp_path):
    """As `python -m components.report.readme` fills them, from the committed files: `make run` measures its own seconds, and the pages
    stay those of the commit."""

    def changed(*paths: str) -> bool:
        return bool(subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *paths], cwd=ROOT).returncode)

    monkeypatch.chdir(ROOT)
    if changed("data/report") and not changed("docs", "README.md"):
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", tmp_path], input=archive, check=True)
        monkeypatch.chdir(tmp_path)
    pages = [page.read_text(encoding="utf-8") for page in readme.PAGES]
    assert all(readme.filled(written) == written for written in pages)
    assert set(re.findall(r"<!-- table: (\w+)", "".join(pages))) == set(readme.TABLES)
    assert all(file.read_text(encoding="utf-8") == drawn() for file, drawn in readme.PICTURES.items())
    assert len(re.findall(r"<!-- (?:score|gain|precision): ", "".join(pages))) > 10


def test_the_best_rate_of_each_start_has_one_tried_on_either_side():
    table = pd.read_csv(ROOT / "docs/starts.csv")
    assert {*table["start"]} == {"pretrained", *readme_default.STARTS} and {*table["model"]} == {"bert", "gpt", "elmo"}
    for (model, start), tried in table.groupby(["model", "start"]):
        scale, rate = tried.groupby(["embedding_scale", "learning_rate"])["score"].mean().idxmax()
        rates = tried.loc[tried["embedding_scale"] == scale, "learning_rate"]
        assert rates.min() < rate < rates.max(), (model, start)
        assert tried["embedding_scale"].nunique() == (4 if start == "random" and model != "elmo" else 1), (model, start)


def test_a_score_is_bold_where_it_is_ahead_of_every_other_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme_default.REPORT.mkdir(parents=True)
    starts = ["pretrained", *readme_default.STARTS]
    scores = [("gpt", "snli", init, 0.5 + number / 10, 0.01) for number, init in enumerate(starts)]
    pd.DataFrame(scores, columns=["model", "task", "init", "mean", "std"]).to_csv(readme_default.REPORT / "scores.csv")
    cases = ((["higher", "higher"], "**0.500 ± 0.010**"), (["higher", "not beyond noise"], "0.500 ± 0.010"))
    for verdicts, shown in cases:
        gains = [("gpt", "snli", start, verdict) for start, verdict in zip(readme_default.STARTS, verdicts, strict=True)]
        pd.DataFrame(gains, columns=["model", "task", "against", "verdict"]).to_csv(readme_default.REPORT / "gains.csv")
        assert f"| gpt | pretrained | {shown} |" in readme_default.scores() and readme_default.scores().count("**") == shown.count("**")


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = {path: [*re.findall(r"^```(?:console|sh|bash)\n(.*?)^```", text, re.M | re.S), *re.findall(r"`([^`\n]+)`", text)]
        for path in PAGES for text in [path.read_text(encoding="utf-8")]}  # fmt: skip
EACH = pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])


def commands(path: Path) -> list[list[str]]:
    """The words behind each `sesame` of a page, without comments."""
    lines = [line.partition(" #")[0] for code in CODE[path] for line in code.splitlines()]
    found = [part for line in lines for part in re.findall(r"(?:^|[\s/'(])sesame ([a-z].*?)(?=$| && |'|\))", line)]
    return [part.split() for part in found]


@EACH
def test_commands_of_the_docs_are_there_with_their_options(path):
    groups = typer.main.get_command(cli.app).commands
    for words in commands(path):
        assert words[0] in groups, words
        command, rest = groups[words[0]], words[1:]
        if rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        known = {option for own in command.params for option in own.opts}
        assert {word.partition("=")[0] for word in rest if word.startswith("-")} <= known, words


@EACH
def test_stages_and_studies_of_the_docs_are_there(path):
    yaml = YAML(typ="safe")
    stages = {name for file in ("dvc.yaml", "studies/dvc.yaml") for name in yaml.load(ROOT / file)["stages"]}
    written = re.findall(r"cat > studies/params/(\w+)\.yaml", path.read_text(encoding="utf-8"))
    studies = {*params.load(ROOT / "params.yaml").studies, *written}
    for words in commands(path):
        named = [word for word in words[1:] if re.fullmatch(r"[a-z_]+(@[\w-]+)?", word)]
        if words[0] == "run":
            assert {word.partition("@")[0] for word in named} <= stages, words
        if words[0] == "study":
            assert set(named) <= studies, words


@EACH
def test_files_modules_and_targets_of_the_docs_are_there(path):
    targets = " ".join(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.M)).split()
    for code in CODE[path]:
        for file in re.findall(r"(?<![\w/.~-])((?:components|pipelines|tests|studies|docs)/[\w./-]+)", code):
            assert (ROOT / file.rstrip(".")).exists() or f"cat > {file}" in code, file
        for module in re.findall(r"python -m ((?:components|pipelines|tests)[\w.]*)", code):
            assert find_spec(module), module
        for target in re.findall(r"^make ([\w-]+)", code, re.M):
            assert target in targets, target


@EACH
def test_links_of_the_docs_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
        target = path.parent / file if file else path
        assert target.exists(), file
        headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8").lower(), re.M) if anchor else [""]
        assert anchor in [re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings], anchor


@EACH
def test_no_sentence_is_cut_by_a_filled_figure(path):
    """Markdown ends a list, and begins a block of HTML, at a line that begins with a comment."""
    assert not re.findall(r"^ +<!-- \w+:.*", path.read_text(encoding="utf-8"), re.M)


SIZES = {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "max_length": 192}
LAID_OVER = {
    "recurrent.md": {"architecture": {"name": "recurrent"}, "objective": {"name": "bptt"}},
    "writing.md": {"architecture": {"name": "encoder_decoder"}, "objective": {"name": "denoising"}},
}
SETTING = re.compile(
    r"(architecture|objective|run|phases|trainer): [{[]|\{kind: (spans|dropped|prefix|whole)\b|(positions|activation): \w+, "
)


def inline(path: Path) -> list[str]:
    """Settings that stand within the sentences of a page, but those with a name to be filled in."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S).replace("\n", " ")
    found = [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", prose) if SETTING.match(span)]
    return [span for span in found if "..." not in span and not re.search(r"\b[A-Z]{4,}\b", span)]


INLINE = [(path, span) for path in PAGES for span in inline(path)]


@pytest.mark.parametrize(("path", "span"), INLINE, ids=[f"{path.name}-{span[:40]}" for path, span in INLINE])
def test_a_setting_within_a_sentence_is_taken(path, span):
    """Laid over the default's `bert`, or what the page is about; of several values the first."""
    span = re.sub(r" \| \w+", "", span)
    span = f"objective: {{noise: {span}}}" if span.startswith("{") else span
    span = f"architecture: {{{span}}}" if re.match("positions|activation", span) else span
    [(key, own)] = YAML(typ="safe").load(span).items()
    bert = YAML(typ="safe").load(ROOT / "params.yaml")["models"]["bert"]
    if key in ("architecture", "objective"):
        base = LAID_OVER.get(path.name, {}).get(key) or bert[key]
        own = {**(base if own.get("name", base["name"]) == base["name"] and "size" not in own else {}), **own}
    if key == "architecture":
        own = {**({} if "size" in own else SIZES), **own}
    annotation = params.Model.model_fields[key].annotation
    if key == "architecture":  # what another family refuses is not asked about
        annotation = next(block for block in get_args(annotation) if own["name"] in get_args(block.model_fields["name"].annotation))
    kind = TypeAdapter(annotation)
    try:
        kind.validate_python(own)
    except ValidationError as error:
        unasked = {problem["loc"][-1] for problem in error.errors() if problem["type"] == "extra_forbidden"}
        kind.validate_python({name: value for name, value in own.items() if name not in unasked & SIZES.keys()})


REPORT = ROOT / "data/report/studies"
NUMBER = r"[+−-]?\d*\.?\d+"


def tables_of_studies() -> dict[str, str]:
    """The part of a page that has a study's table."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
    family, by_flops = pages["family.md"].split("At 3e12 FLOPs each")
    ulmfit, sentences = pages["recurrent.md"].split("**Vectors of sentences**")
    found = {"family": family, "family_flops": by_flops, "ulmfit": ulmfit, "sentences": sentences}
    found["t5_objectives"] = pages["writing.md"]
    sections = re.findall(r"^### (\w+)[: ](.*?)(?=^##|\Z)", pages["studies.md"], re.M | re.S)
    return found | {name: text for name, text in sections if (REPORT / f"{name}.csv").exists()}


def rounded(shown: str, value: float) -> bool:
    places = len(shown.partition(".")[2])
    return abs(float(shown.replace("−", "-")) - value) <= 0.5 * 10**-places + 1e-9


@pytest.mark.parametrize(("study", "text"), tables_of_studies().items(), ids=tables_of_studies())
def test_figures_of_a_studys_table_are_those_of_its_file(study, text):
    table, checked = pd.read_csv(REPORT / f"{study}.csv"), 0
    for line in text.splitlines():
        first = re.match(r"\| [`*]*(\w+)", line)
        own = table[table["variant"] == first[1]] if first else table[:0]
        for mean, deviation in re.findall(rf"({NUMBER}) ± ({NUMBER})", line if len(own) else ""):
            pairs = [(own[name], own[f"{name}_std"]) for name in own if f"{name}_std" in own]
            there = [rounded(mean, a) and rounded(deviation, b) for one, other in pairs for a, b in zip(one, other, strict=True)]
            assert any(there), (first[1], mean, deviation)
            checked += 1
        for shown in re.findall(rf"({NUMBER})\*{{0,2}} ?\[({NUMBER}), ({NUMBER})\]", line if len(own) else ""):
            tasks = [name.removesuffix("_difference") for name in own if name.endswith("_difference")]
            parts = [own[[f"{task}_{part}" for part in ("difference", "low", "high")]] for task in tasks]
            rows = [row for part in parts for row in part.itertuples(index=False)]
            assert any(all(map(rounded, shown, row)) for row in rows), (first[1], shown)
            checked += 1
    assert checked > 5
