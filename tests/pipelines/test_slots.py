"""GPUs and cores shared out among flows: made-up GPUs, real locks, flows and kills."""

import os
import shutil
import subprocess
import sys

import pytest

from components import params
from pipelines.execution import graph, slots
from pipelines.money.estimates import Estimate
from pipelines.money.forecast import Forecast, default_jobs
from pipelines.worktrees import sweep
from tests.conftest import tiny_params
from tests.pipelines.conftest import Lab

USES = """
import os, sys, time
begun = time.time()
time.sleep(float(sys.argv[2]))
with open("../seen", "a") as file:
    file.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} {begun} {time.time()} {sys.argv[1]}\\n")
"""


@pytest.fixture
def three(monkeypatch, tmp_path):
    """A machine with three GPUs that no other test sees."""
    monkeypatch.setenv(slots.VISIBLE, "4,5,7")
    monkeypatch.setenv(slots.FOLDER, str(tmp_path / "slots"))
    slots.names.cache_clear()
    yield
    slots.names.cache_clear()


def test_slots_are_held_all_or_none_and_given_back(three):
    one = slots.take(slots.GPU, 1)
    assert one.env == {"CUDA_VISIBLE_DEVICES": "4"} and slots.take(slots.GPU, 3) is None
    two = slots.take(slots.GPU, 2)
    assert two.env == {"CUDA_VISIBLE_DEVICES": "5,7"} and slots.take(slots.GPU, 1) is None
    one.release()
    assert slots.take(slots.GPU, 1).names == ("4",)
    assert slots.take(slots.CPU, 1).env == {}, "cores are counted, not chosen"


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("0, 1", ("0", "1")),  # the same two as "0,1" of another flow, under the same locks
        ("0,2,-1,1", ("0", "2")),  # as CUDA reads it: with the others a stage would see no GPU, and train on the CPU
        ("-1", ("",)),
        ("", ("",)),
        ("GPU-8932f937, MIG-41b35014", ("GPU-8932f937", "MIG-41b35014")),
    ],
)
def test_gpus_are_those_that_cuda_sees(three, monkeypatch, visible, names):
    monkeypatch.setenv(slots.VISIBLE, visible)
    slots.names.cache_clear()
    assert slots.names(slots.GPU) == names


HOLDS = "from pipelines.execution import slots; print(slots.take('gpu', 2).names, flush=True); import time; time.sleep(9999)"


def test_what_a_killed_process_held_is_free_at_once(three):
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert "('4', '5')" in holder.stdout.readline()
    assert slots.take(slots.GPU, 2) is None
    holder.kill()
    holder.wait()
    held = slots.take(slots.GPU, 2)
    assert held.names == ("4", "5")
    child = subprocess.Popen(["sleep", "9999"], pass_fds=held.files)
    held.release()
    assert slots.take(slots.GPU, 2) is None, "a stage keeps them when its flow is gone"
    child.kill()
    child.wait()
    assert slots.take(slots.GPU, 3)


def test_a_stage_asks_for_what_its_training_is_set_to(three):
    raw = tiny_params()
    raw["models"]["bert"]["run"]["devices"] = 2
    raw["models"]["gpt"]["run"]["devices"] = "auto"
    raw["models"]["gpt"]["trainer"] = {"threads": None}
    checked = params.check(raw)

    def wanted(name: str, resource: str) -> int:
        return slots.demand(checked, graph.Stage(name, (), "", graph.Meta(resource=resource)))

    stages = ("pretrain@bert", "pretrain@gpt", "finetune@bert-same", "variant@rate-15-1")
    asked = {name: wanted(name, slots.GPU) for name in stages}
    assert asked == {"pretrain@bert": 2, "pretrain@gpt": 3, "finetune@bert-same": 1, "variant@rate-15-1": 2}
    assert wanted("pretrain@bert", slots.CPU) == 1 and wanted("pretrain@bert", "printer") == 1
    assert wanted("finetune@bert-same", slots.CPU) == 1 < wanted("another", slots.CPU) == os.cpu_count()
    assert wanted("pretrain@gpt", slots.CPU) == os.cpu_count() == slots.capacity(slots.CPU)


def test_a_forecast_counts_with_them(three):
    """Five trainings of ten seconds, one of them on two GPUs: two rounds on three GPUs, five in a row on a thing that there is once."""

    def seconds(resource: str) -> float:
        plan = [graph.Stage(name, (), "", graph.Meta(resource=resource)) for name in "abcde"]
        estimates, states = {each.name: Estimate(10.0, 2.0**30) for each in plan}, {each.name: "to run" for each in plan}
        found = Forecast(plan, states, estimates, 0, 8, lambda each: 1 + (each.name == "a" and resource == slots.GPU))
        assert found.memory == (5 if resource == slots.GPU else 1) * 2**30
        return found.seconds(["to run"])

    assert seconds(slots.GPU) == 20 and seconds("printer") == 50
    assert default_jobs(params.check(tiny_params(resources={"pretrain": "gpu", "finetune": None}))) >= 3


def test_as_many_lanes_as_the_machine_takes(three):
    """By GPUs, cores, or one where a thing is there once; those whose stages run elsewhere hardly take any of it."""

    def worktree_runs(pretrain: str | None, **changes: str) -> int:
        return sweep.default_jobs(params.check(tiny_params(resources={"pretrain": pretrain, "finetune": None}, **changes)))

    assert (worktree_runs("gpu"), worktree_runs("printer"), worktree_runs(None)) == (3, 1, max(1, os.cpu_count() // 2))
    assert worktree_runs("gpu", run_on="farm") == worktree_runs(None, run_on="farm") == sweep.AWAY


@pytest.mark.long
def test_two_flows_share_the_gpus_and_a_dead_one_leaves_none(lab, template, tmp_path):
    """Ten stages of two checkouts on three GPUs: never two at once on one; a flow whose GPUs are all held says what it waits for."""
    stage = '  NAME: {cmd: "python uses.py NAME 0.7 && touch NAME.out", outs: [NAME.out: {cache: false}], meta: {resource: gpu}}\n'
    env = {slots.VISIBLE: "4,5,7", slots.FOLDER: str(tmp_path / "slots")}
    labs = [lab, Lab(shutil.copytree(template, tmp_path / "other"), lab.env, lab.forks)]
    for own in labs:
        own.stages("".join(stage.replace("NAME", name) for name in "abcde")).write("uses.py", USES)
    runs = [own.start("run", "--jobs", "5", **env) for own in labs]
    for own, run in zip(labs, runs, strict=True):
        assert "5 stages: 0 cached, 5 done" in own.ended(run, code=0)
    rows = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(rows) == 10 and {row[0] for row in rows} == {"4", "5", "7"}
    for gpu in ("4", "5", "7"):
        times = sorted((float(begun), float(ended)) for used, begun, ended, _ in rows if used == gpu)
        assert all(one[1] <= other[0] for one, other in zip(times, times[1:], strict=False))

    holder = subprocess.Popen([sys.executable, "-c", HOLDS.replace("2", "3")], env=os.environ | env, stdout=subprocess.PIPE, text=True)
    holder.stdout.readline()
    waiting = lab.start("run", "--force", "a", **env)
    assert any("waits for gpus of this machine that another flow uses" in line for line in waiting.stdout)
    holder.kill()
    holder.wait()
    lab.ended(waiting, code=0)
