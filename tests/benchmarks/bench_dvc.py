"""What DVC's own commands take on the full default, beside the stages themselves: seconds of CPU against a limit of five."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.record import record

ROOT = Path(__file__).parents[2]
LIMIT = 5.0
"""Seconds of CPU that a user waits for an answer about params or results."""
EDIT = "learning_rate: 2.0e-3", "learning_rate: 3.0e-3"
CHECK = "repro --dry --allow-missing"
COMMANDS = {
    CHECK: ("repro", "--dry", "--allow-missing"),
    "status": ("status", "dvc.yaml"),
    "params diff": ("params", "diff"),
    "metrics diff": ("metrics", "diff"),
    "exp show --only-changed": ("exp", "show", "--only-changed"),
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone of the last commit."""
    path = tmp_path_factory.mktemp("dvc") / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(path)], check=True)
    return path


def edit(clone: Path) -> None:
    """One value changed, as a user does, and seen by `resolve`."""
    params = clone / "params.yaml"
    params.write_text(params.read_text().replace(*EDIT, 1))
    environment = os.environ | {"PYTHONPATH": str(clone)}
    subprocess.run([sys.executable, "-m", "components.stages.resolve"], cwd=clone, check=True, capture_output=True, env=environment)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_of_dvc_takes(clone, name):
    if name != CHECK:  # which is for a clone as it was committed
        edit(clone)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([Path(sys.executable).parent / "dvc", *COMMANDS[name]], cwd=clone, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    record(f"dvc {name}", 1 / seconds, 1 / LIMIT, "commands a second of CPU", f"the limit of {LIMIT:g} s")
