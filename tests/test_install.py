"""The package as another environment gets it: `pip install .`, whose files are enough, in whatever folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from pipelines import install

ROOT = Path(__file__).parents[1]
USES = """
import sys
sys.path = [path for path in sys.path if path] + sys.argv[1:]
import components
assert components.__file__.startswith(sys.argv[1]), components.__file__
from components import notebook, params, report
from components.core.errors import SesameError
from pipelines import cli, profiles
assert "glue" in profiles.listed()
try:
    notebook.load("gpt")
except SesameError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from what git has, without an index."""
    folder = tmp_path_factory.mktemp("wheel")
    files = subprocess.run(["git", "ls-files", "components", "pipelines", "pyproject.toml", "README.md", "LICENSE"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    for file in files:
        (folder / "source" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / "source" / file)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, folder / "source"]
    subprocess.run(command, check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return made


def test_a_wheel_has_every_file_that_code_reads(wheel):
    read = subprocess.run(
        ["git", "ls-files", "components", "pipelines"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(zipfile.ZipFile(wheel).namelist()) >= set(read)


@pytest.mark.long
def test_installed_elsewhere_it_is_imported(wheel, tmp_path):
    """As from a notebook: another folder, no checkout."""
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", USES, str(target), str(Path(torch.__file__).parents[1])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("data/models/gpt: no model there"), done.stdout


def test_a_failed_installation_says_what_pip_said_last(tmp_path, monkeypatch, capsys):
    """Which versions conflict pip writes among its lines of progress, not as an error."""
    monkeypatch.chdir(tmp_path)
    Path("constraints.txt").write_text("one==1\n")
    said = "print('Collecting one'); print('    two 2 depends on one>=3'); raise SystemExit(1)"
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", said])
    assert install.main() == 1
    shown = capsys.readouterr().out
    assert "two 2 depends on one>=3\n" in shown and "not installed after" in shown
