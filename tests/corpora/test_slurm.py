"""Corpora of shards by array jobs of a real Slurm: the stage runs on the head, which is no node, and its tasks on two others."""

import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components import params
from tests.conftest import run_stage, tiny_params
from tests.corpora.test_shards import documents, written
from tests.hosts import HEAD, Running
from tests.slurm import Slurm
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def slurm(tmp_path, tmp_path_factory, monkeypatch) -> Iterator[Slurm]:
    """In a folder with code of its own, as a lane has it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(params.__file__).parents[1], "components")
    with Slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def write(text: bytes | str, **run) -> None:
    """params.yaml of a corpus of three shards, and its text."""
    part = {"source": {"kind": "files", "paths": ["data.txt"]}, "reader": {"format": "text", "document": "line"}}
    base = {"language": "en", "licence": "none", "parts": [part], "splits": {"valid": 0.1, "test": 0.1}, "shards": 3}
    own = tiny_params()
    own["corpora"] = {"base": base | {"cleaning": {"near_duplicates": None}}}
    Path("params.yaml").write_text(json.dumps(own | {"text": {"executor": "slurm"} | run}))
    Path("data.txt").write_bytes(text if isinstance(text, bytes) else text.encode())


TEXT = "\n".join(documents(random.Random(0), 60))


def stage(slurm: Slurm) -> Running:
    return slurm.start(HEAD, sys.executable, "-m", "components.text.corpora", "base", log=Path("said.txt"))


def ended(running: Running) -> tuple[int, str]:
    return running.wait(), Path("said.txt").read_text()


def queue(slurm: Slurm) -> str:
    return slurm.do("squeue", "-h", "-o", "%i %j %t %r")


def test_the_same_bytes(slurm):
    """Of tasks that run the code that is here; nothing is left in the queue."""
    write(TEXT, executor="local", workers=1)
    done = run_stage("components.text.corpora", "base")
    assert done.returncode == 0, done.stderr
    whole = written("data/corpora/base")
    shutil.rmtree("data/corpora/base")
    write(TEXT, executor="slurm", workers=2)
    with open("components/text/corpora/shards/steps.py", "a") as file:
        file.write("\nimport os\nif task := os.environ.get('SLURM_ARRAY_TASK_ID'):\n    open('tasks.txt', 'a').write(task)\n")
    status, said = ended(stage(slurm))
    assert status == 0 and "clean: 3 of 3 tasks" in said, said
    assert written("data/corpora/base") == whole and sorted(Path("tasks.txt").read_text()) == sorted("012" + "0" + "012")
    until(lambda: not queue(slurm), 20)


def test_a_task_that_fails_is_a_line(slurm):
    write(TEXT.encode() + b"\ncaf\xe9\n")
    status, said = ended(stage(slurm))
    assert status == 2 and "1 of 3 tasks of the step clean failed on Slurm, or were cancelled; the first one's log is" in said, said
    assert "invalid UTF-8 (byte 0xe9 at 3)" in Path(said.split("log is ")[1].split(";")[0]).read_text()
    until(lambda: not queue(slurm), 20)


def test_jobs_that_wait_are_said_and_those_that_are_cancelled_are_not_waited_for(slurm):
    write(TEXT, time="48:00:00")
    running = stage(slurm)
    until(lambda: "clean: waits for Slurm (PartitionTimeLimit)" in Path("said.txt").read_text())
    assert set(slurm.do("squeue", "-h", "-o", "%m").split()) == {"2G"}
    slurm.do("scancel", "--name=sesame-clean")
    status, said = ended(running)
    assert status == 2 and "3 of 3 tasks of the step clean failed on Slurm, or were cancelled" in said, said


def test_a_stage_that_is_stopped_or_was_killed_leaves_no_job(slurm):
    """What the killed one could not take out of the queue the next one does."""
    write(TEXT, time="48:00:00")
    for number in (signal.SIGKILL, signal.SIGTERM):
        Path("said.txt").unlink(missing_ok=True)
        running = stage(slurm)
        until(lambda: "waits for Slurm" in Path("said.txt").read_text())
        assert queue(slurm).count("sesame-clean") == 1
        running.end(number)
        ended(running)
        assert bool(queue(slurm)) == (number == signal.SIGKILL)


def test_what_sbatch_refuses_is_a_line(slurm):
    write(TEXT, partition="nowhere")
    status, said = ended(stage(slurm))
    assert status == 2 and "Traceback" not in said, said
    assert "text.executor slurm: sbatch has refused the step clean" in said and "text.partition 'nowhere'" in said, said


def test_a_controller_that_is_away_is_waited_for(slurm):
    write(TEXT)
    slurm.do("scontrol", "update", "partition=normal", "state=DOWN")
    running = stage(slurm)
    until(lambda: "waits for Slurm (PartitionDown)" in Path("said.txt").read_text())
    [controller] = slurm.hosts.processes(HEAD, "slurmctld")
    controller.terminate()
    until(lambda: "Unable to contact slurm controller" in Path("said.txt").read_text())
    slurm.control()
    time.sleep(2)
    slurm.do("scontrol", "update", "partition=normal", "state=UP")
    status, said = ended(running)
    assert status == 0, said
