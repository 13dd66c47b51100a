"""A training in jobs of a real Slurm, whose two nodes are hosts of their own."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from tests.pretrain.test_nodes import SETTINGS, same, single
from tests.pretrain.test_pretrain import pretrain, write_params
from tests.slurm import NODES, Slurm
from tests.waiting import until

cluster = pytest.mark.cluster
STAGE = f"OMP_NUM_THREADS=1 {sys.executable} -m components.pretrain"
TWO = {"launcher": "slurm", "num_nodes": 2, "log_every": 4}


@pytest.fixture
def slurm(project, tmp_path_factory) -> Iterator[Slurm]:
    with Slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def saved(step: int) -> bool:
    return any(torch.load(last, weights_only=False)["global_step"] >= step for last in Path(".sesame/checkpoints").glob("gpt-*/last.ckpt"))


def processes(slurm: Slurm, *which: str, nodes: tuple[str, ...] = NODES) -> list[psutil.Process]:
    """Those of the stage on these nodes: itself, `srun` (there are two of each), or the tasks."""

    def kind(process: psutil.Process) -> str:
        with suppress(psutil.Error):  # it has just ended
            program = (process.cmdline() or [""])[0]  # a process that ended, and that nobody has waited for yet, has none
            return "srun" if "srun" in program else "task" if "SLURM_STEP_ID" in process.environ() else "stage"
        return ""

    return [process for node in nodes for process in slurm.hosts.processes(node, "components.pretrain") if kind(process) in which]


@cluster
def test_two_nodes_train_as_one_process(slurm):
    """One task a node, though the job would have four; the first alone writes."""
    alone, _ = single()
    write_params(**SETTINGS, run=TWO)
    state, said = slurm.ended(slurm.submit("--nodes=2", "--ntasks-per-node=4", command=f"{STAGE} gpt"))
    assert state == "COMPLETED" and said.count("pretrain@gpt: done in") == 1 and said.count("parameters, 24 steps") == 1, said
    same("gpt", alone)


@cluster
def test_a_job_is_cancelled_and_the_next_one_goes_on(slurm):
    """At once: Slurm's own patience (`KillWait`) is longer here than a test may take."""
    alone, _ = single()
    write_params(**SETTINGS, run=TWO)
    job = slurm.submit("--nodes=2", command=f"{STAGE} gpt")
    until(lambda: saved(6))
    slurm.do("scancel", job)
    until(lambda: not processes(slurm, "stage", "srun", "task"))
    state, said = slurm.ended(job)
    assert state == "CANCELLED" and not Path("data/models/gpt").exists(), said
    state, said = slurm.ended(slurm.submit("--nodes=2", command=f"{STAGE} gpt"))
    assert state == "COMPLETED" and "resumed at step" in said, said
    same("gpt", alone)


@cluster
@pytest.mark.parametrize("what", ["task", "stage", "srun"])
def test_what_is_killed_takes_all_tasks_along(slurm, what):
    """kill -9 of the second task, of the process that DVC starts, or of `srun`; the job's script goes on and sees the stage's failure."""
    write_params(budget={"steps": 10000}, run=TWO)
    job = slurm.submit("--nodes=2", command=f"{STAGE} gpt; echo ended with $?; sleep 60")
    until(lambda: saved(1))
    killed = processes(slurm, what)[-1:] if what == "task" else processes(slurm, what)
    for process in killed:  # one of the two `srun` ends the tasks when the other one is gone
        process.suspend()
    for process in killed:
        process.kill()
    until(lambda: not processes(slurm, "stage", "srun", "task"))
    output = Path(f"job-{job}.txt")
    until(lambda: re.search("ended with (137|75)", output.read_text()))
    assert slurm.state(job) == "RUNNING" and "Traceback" not in output.read_text()
    assert what != "task" or "srun: error: two: task 1: Killed" in output.read_text()


@cluster
def test_a_failure_of_the_first_alone_has_its_exit_code(slurm):
    """2 is not tried again; `srun` itself gives that of the other task, which it ends: at once, and not after Slurm's patience."""
    write_params(run=TWO | {"checkpoints_to": "no://where"})
    job = slurm.submit("--nodes=2", command=f"{STAGE} gpt; echo ended with $?")
    until(lambda: Path(f"job-{job}.txt").exists() and "task 0: Exited with exit code 2" in Path(f"job-{job}.txt").read_text())
    _, said = slurm.ended(job)
    assert "pretrain@gpt: run.checkpoints_to: no://where" in said and "ended with 2" in said, said


@cluster
def test_two_trainings_of_one_job(slurm):
    """Each on a node of its own, and the second one's is not the first of the job."""
    write_params(run={"launcher": "slurm", "devices": 2})
    both = f"{STAGE} gpt & {STAGE} bert & wait"
    state, said = slurm.ended(slurm.submit("--nodes=2", "--ntasks-per-node=2", command=both))
    assert all(f"pretrain@{name}: done in" in said for name in ("gpt", "bert")), said


@cluster
def test_a_node_is_lost_and_slurm_begins_the_job_again(slurm):
    """A power cut: nobody hears of it, but Slurm misses the node; when that is back it starts the same job, which goes on."""
    alone, _ = single()
    write_params(**SETTINGS, run=TWO)
    job = slurm.submit("--nodes=2", command=f"{STAGE} gpt")
    until(lambda: saved(6))
    slurm.hosts.lose("two")
    until(lambda: slurm.state(job) != "RUNNING")
    slurm.hosts.add("two")
    slurm.node("two")
    state, said = slurm.ended(job)
    assert state == "COMPLETED" and "resumed at step" in said, said
    same("gpt", alone)


@cluster
def test_a_job_that_lost_a_node_is_cancelled(slurm):
    """The first task waits for the lost one and hears no signal, and Slurm would wait for it as long as `KillWait` says."""
    write_params(budget={"steps": 10000}, run=TWO)
    job = slurm.submit("--nodes=2", command=f"{STAGE} gpt")
    until(lambda: saved(1))
    slurm.hosts.lose("two")
    slurm.do("scancel", job)
    until(lambda: not processes(slurm, "stage", "srun", "task", nodes=("one",)))
    assert slurm.ended(job)[0] == "CANCELLED"


def test_no_job_and_too_few_nodes_are_lines(project):
    write_params(run=TWO)
    outside = pretrain("gpt")
    assert outside.returncode == 2 and "run.launcher slurm: not inside a Slurm job" in outside.stderr
    few = pretrain("gpt", SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="1")
    assert few.returncode == 2 and "run.num_nodes 2: the Slurm job has 1" in few.stderr
    none = pretrain("gpt", SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="2", PATH="/nowhere")
    assert none.returncode == 2 and "run.launcher slurm: srun is not in the PATH of this node" in none.stderr
