"""The documentation as a site: every page is in it and can be reached, it fetches nothing, and the reference has every key and command."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
from ruamel.yaml import YAML

from components import params
from pipelines import cli

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_its_index(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {path.stem for path in site.glob("*.html")} == pages | {"404", "readme", "search"}
    linked = set(re.findall(r"\]\((\w+)\.md\)", (ROOT / "docs/index.md").read_text()))
    assert pages - linked == {"index"}
    named = re.findall(r"- (\w+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert {*named} >= pages and not YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text())["theme"]["font"]


def test_it_needs_no_net(site):
    for page in ("index.html", "evaluations.html", "reference/params.html"):
        fetched = re.findall(r"<(?:link|script|img)[^>]*(?:href|src)=\"(https?:[^\"]*)", (site / page).read_text())
        assert not fetched, fetched


def test_no_item_of_a_list_is_cut_by_a_comment(site):
    """Markdown ends a list at a line that begins with one."""
    cut = [page.name for page in site.glob("*.html") if re.search(r"<p>[^<]*\s- <strong>", page.read_text())]
    assert not cut


def test_links_between_pages_lead_somewhere(site):
    pages = {*site.glob("*.html"), *site.glob("studies/*.html")}
    for page in pages - {site / "404.html"}:  # whose links are those of a server
        for link in re.findall(r"<a[^>]* href=\"((?!https?:|mailto:)[^\"#]+\.html)[\"#]", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_reference_has_every_section_and_command(site):
    keys, commands = ((site / f"reference/{name}.html").read_text() for name in ("params", "cli"))
    assert all(f"<code>{section}</code>" in keys for section in params.Params.model_fields if section != "studies")
    assert all(f"sesame {name}" in commands for name in typer.main.get_command(cli.app).commands)
    assert "Highest learning rate of the matrices" in keys


def test_every_study_has_a_page_with_its_file_and_what_came_out(site):
    listed = (site / "studies/index.html").read_text()
    for name in params.load().studies:
        page = (site / f"studies/{name}.html").read_text()
        assert f"sesame study {name}" in page and f'href="{name}.html"' in listed
        if (ROOT / f"data/report/studies/{name}.csv").exists():
            rows = pd.read_csv(ROOT / f"data/report/studies/{name}.csv")
            assert "<svg" in page and all(f"<td>{variant}</td>" in page for variant in rows["variant"])
        else:
            assert "not run yet" in page
    masking = (site / "studies/masking.html").read_text()
    assert "Wettig et al. 2023" in masking and "reproduced" in masking


def test_every_column_of_a_table_is_explained():
    text = (ROOT / "docs/outputs.md").read_text()
    explained = set(re.findall(r"`([^`]+)`", text))
    for table in (ROOT / "data/report").glob("*.csv"):
        columns = {re.sub(r"^epoch_\d+$", "epoch_1", name) for name in pd.read_csv(table, nrows=0).columns}
        assert table.name in text and columns <= explained, (table.name, columns - explained)
    measured = r".+_(std|difference|low|high|p|deviations|detectable|verdict)$"
    for table in (ROOT / "data/report/studies").glob("*.csv"):
        columns = pd.read_csv(table, nrows=0).columns
        others = {name for name in columns if not re.match(measured, name) and f"{name}_verdict" not in columns}
        assert others <= explained, (table.name, others - explained)


def test_messages_of_troubleshooting_are_those_of_the_code():
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    folders = (ROOT / "components", ROOT / "pipelines")
    code = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    for message in (one for row in rows for one in re.findall(r"`([^`]+)`", row)):
        assert message in code, message
    assert len(rows) > 10


@pytest.mark.parametrize("words", ["mlm_probability", "resume", "BLiMP"])
def test_the_search_finds(words, site):
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert any(words in page["text"] for page in index)
