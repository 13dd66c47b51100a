"""`sesame run` end to end: real DVC, Prefect and child processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from pipelines.execution import ledger
from tests.pipelines.conftest import ROOT, Lab, dvc, post
from tests.waiting import until

pytestmark = pytest.mark.long

WRITER = """
import subprocess, sys, time
from pathlib import Path
from components.core.storage import output
subprocess.Popen(["sleep", "9999"])
with output(Path("long.out")) as path:
    path.write_text("half")
    Path("begun").touch()
    while Path("hold").exists():
        time.sleep(0.05)
    path.write_text("whole")
"""
LONG = "  quick: {cmd: echo > quick.out, outs: [quick.out]}\n  long: {cmd: python writer.py, deps: [quick.out], outs: [long.out]}\n"


def summary(output: str) -> str:
    return re.search(r"^\d+ stages?: (.*) in [\d.]+ s$", output, re.M).group(1)


def test_states_are_shown_as_they_are(lab):
    """A failure costs what depends on it and nothing else; the next run does what is left."""
    lab.write("in", "1").stages("""
  good: {cmd: cat in > good.out, deps: [in], outs: [good.out], desc: Copy}
  bad: {cmd: "echo try >> tries; echo 'bad: no such thing' >&2; test -e fixed && echo > bad.out", outs: [bad.out], meta: {retries: 1}}
  after: {cmd: cat bad.out > after.out, deps: [bad.out], outs: [after.out]}
  later: {cmd: cat after.out > later.out, deps: [after.out], outs: [later.out]}
  slow: {cmd: "sleep 9999; echo > slow.out", outs: [slow.out], meta: {timeout: 2}}
  beside: {cmd: cat good.out > beside.out, deps: [good.out], outs: [beside.out]}
""")
    output = lab.sesame("run", code=1)
    assert summary(output) == "0 cached, 2 done, 2 failed, 2 skipped"
    assert (
        "[good] Copy" in output
        and "[bad] failed: no such thing" in output
        and "[bad] failed: no such thing; trying again (1 of 1)" in output
    )
    assert "[slow] failed: stopped after its timeout of 2 s" in output and lab.processes() == []
    assert lab.read("tries").split() == ["try", "try"], output
    assert lab.states(output) == {
        "good": "Completed", "beside": "Completed", "bad": "Failed", "slow": "Failed", "after": "Skipped", "later": "Skipped",
        "flow": "Failed",
    }  # fmt: skip

    lab.write("fixed", "")
    output = lab.sesame("run", "later", "beside")
    assert summary(output) == "2 cached, 3 done, 0 failed"
    assert lab.states(output)["good"] == "Cached"

    assert summary(lab.sesame("run", "good", "--force")) == "0 cached, 1 done, 0 failed"


def test_what_cannot_pass_is_not_tried_again(lab):
    lab.stages("""
  wrong: {cmd: "echo try >> wrong.tries; echo 'wrong: no such key' >&2; exit 2", outs: [a.out], meta: {retries: 2}}
""")
    output = lab.sesame("run", code=1)
    assert "[wrong] failed: no such key (1/1)" in output and "trying again" not in output
    assert lab.read("wrong.tries").split() == ["try"]
    assert lab.states(output) == {"wrong": "Failed", "flow": "Failed"}


@pytest.mark.parametrize("left", ["", '{"write": {"/x'])
def test_a_list_of_files_in_use_that_a_stop_has_cut(lab, left):
    """DVC rewrites it in place; empty it would block every later run."""
    lab.stages("  a: {cmd: echo > a.out, outs: [a.out]}").write(".dvc/tmp/rwlock", left)
    output = lab.sesame("run")
    assert summary(output) == "0 cached, 1 done, 0 failed" and output.count("rwlock could not be read") == 1
    assert "could not be read" not in lab.sesame("run", "--force")


def test_a_list_of_files_in_use_that_a_kill_within_a_flow_has_cut(lab):
    """As a timeout may, or a system out of memory: the stages after it run."""
    lab.stages("""
  a_cut: {cmd: "echo > a.out; : > .dvc/tmp/rwlock; kill -9 $PPID", outs: [a.out]}
  later: {cmd: echo > later.out, outs: [later.out]}
""")
    output = lab.sesame("run", "--jobs", "1", code=1)
    assert output.index("[a_cut] failed") < output.index("[later] done")
    assert summary(output) == "0 cached, 1 done, 1 failed" and output.count("rwlock could not be read") == 1


def test_the_lock_file_is_in_the_order_of_the_graph(lab, many_stages):
    """Whatever finished first: byte for byte as `dvc repro` alone writes it, so that git's diff shows what changed."""
    lab.stages("""
  slow: {cmd: "sleep 2; echo 1 > slow.out", outs: [slow.out]}
  after: {cmd: cat slow.out > after.out, deps: [slow.out], outs: [after.out]}
  quick: {cmd: echo 1 > quick.out, outs: [quick.out]}
  end: {cmd: cat quick.out after.out > end.out, deps: [quick.out, after.out], outs: [end.out]}
""")
    lab.sesame("run", "--jobs", "2")
    found = lab.read("dvc.lock")
    (lab.path / "dvc.lock").unlink()
    dvc(lab, "repro")
    assert found == lab.read("dvc.lock") and found.index(" slow:") < found.index(" quick:")


MEET = """
import sys, time
from pathlib import Path
begun, name = time.time(), sys.argv[1]
Path(f"{name}.begun").touch()
other = Path({"a": "c", "b": "d", "c": "a", "d": "b"}[name] + ".begun")
while not other.exists():
    time.sleep(0.05)
Path(f"{name}.out").write_text(f"{begun} {time.time()}")
"""


def test_one_resource_one_stage(lab):
    """Stages with the same resource follow each other; one that waits for it takes no job from the others, each of which meets one."""
    lab.write("meet.py", MEET)
    lab.stages("""
  heavy:
    foreach: [a, b]
    do: {cmd: "python meet.py ${item}", outs: ["${item}.out"], meta: {resource: cpu}}
  light:
    foreach: [c, d]
    do: {cmd: "python meet.py ${item}", outs: ["${item}.out"]}
""")
    assert summary(lab.sesame("run", "--jobs", "2")) == "0 cached, 4 done, 0 failed"
    times = {name: tuple(map(float, lab.read(f"{name}.out").split())) for name in "abcd"}

    def overlap(one: str, other: str) -> bool:
        return times[one][0] < times[other][1] and times[other][0] < times[one][1]

    assert not overlap("a", "b")


@pytest.mark.parametrize("how", ["Ctrl-C", "hang-up", "Prefect"])
def test_stop_leaves_nothing_and_the_next_run_continues(lab, how):
    lab.write("writer.py", WRITER).write("hold", "").stages(LONG)
    process = lab.start("run", **{ledger.TAGS: json.dumps({"experiment": str(lab.path)})})
    lab.until((lab.path / "begun").exists)
    if how == "Prefect":
        api = lab.env["PREFECT_API_URL"]
        wanted = {"flow_runs": {"name": {"any_": [str(lab.path)]}}}  # the server has flows of other tests, too
        [running] = post(f"{api}/flow_runs/filter", wanted)
        post(f"{api}/flow_runs/{running['id']}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    else:
        process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGHUP)
    output = lab.ended(process, code=130)
    assert lab.processes() == []
    assert list(lab.path.glob("*long.out*")) + list(lab.path.glob(".long.out*")) == []
    assert summary(output) == "0 cached, 1 done, 0 failed, 1 stopped"
    assert lab.states(output) == {"quick": "Completed", "long": "Stopped", "flow": "Cancelled"}
    if how != "Ctrl-C":
        return
    (lab.path / "hold").unlink()
    assert summary(lab.sesame("run")) == "1 cached, 1 done, 0 failed"
    assert lab.read("long.out") == "whole"


def test_ctrl_c_cancels_a_flow_that_was_started_as_a_module(lab):
    """As worktree runs are. The process was killed, its stages by their guard, and Prefect called the flow running ever after."""
    lab.write("writer.py", WRITER).write("hold", "").stages(LONG)
    environment = os.environ | lab.env | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "run"], cwd=lab.path, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    lab.until((lab.path / "begun").exists)
    process.send_signal(signal.SIGINT)
    output = lab.ended(process, code=130)
    assert lab.states(output) == {"quick": "Completed", "long": "Stopped", "flow": "Cancelled"}


def test_a_second_ctrl_c_ends_at_once_and_lists_what_ran(lab):
    lab.stages("  a: {cmd: \"trap '' INT TERM; touch begun; sleep 9999\", outs: [a.out]}\n  b: {cmd: x, deps: [a.out], outs: [b.out]}")
    process = lab.start("run")
    lab.until((lab.path / "begun").exists)
    process.send_signal(signal.SIGINT)
    assert any("stopping the running stages" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    output = lab.ended(process, code=130)
    assert lab.processes() == []
    assert summary(output) == "0 cached, 0 done, 0 failed, 1 stopped, 1 not begun"


def test_one_flow_a_checkout(lab):
    lab.write("writer.py", WRITER).write("hold", "").stages(LONG)
    first = lab.start("run")
    lab.until((lab.path / "begun").exists)
    assert lab.sesame("run", code=1) == (
        "sesame: another flow runs in this checkout; wait for its end by `sesame run --wait`\n"
    )
    second = lab.start("run", "--wait")
    assert any("waiting for another flow that runs" in line for line in second.stdout)
    (lab.path / "hold").unlink()
    assert summary(lab.ended(second, code=0)) == "2 cached, 0 done, 0 failed"
    assert summary(lab.ended(first, code=0)) == "0 cached, 2 done, 0 failed"


def test_twenty_flows_lose_no_stage(many_stages, template, tmp_path):
    """Twenty checkouts, one server, four flows at a time."""
    text = "  a: {cmd: echo > a.out, outs: [a.out]}\n  b: {cmd: cat a.out > b.out, deps: [a.out], outs: [b.out]}"
    env, forks = many_stages.env, many_stages.forks
    labs = [Lab(shutil.copytree(template, tmp_path / f"lab{number}"), env, forks).stages(text) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda lab: lab.sesame("run"), labs))
    for lab, end in zip(labs, ends, strict=True):
        assert summary(end) == "0 cached, 2 done, 0 failed"
        assert lab.states(end) == {"a": "Completed", "b": "Completed", "flow": "Completed"}


def test_a_schedule_gets_runs(server):
    """With other versions of fastapi or sqlalchemy than those pinned, Prefect's scheduler creates none, and silently."""
    flow = post(f"{server}/flows/", {"name": "guard"})
    schedule = {"schedule": {"cron": "*/5 * * * *", "timezone": "UTC"}, "active": True}
    body = {"name": "guard", "flow_id": flow["id"], "entrypoint": "pipelines/flow.py:sesame", "schedules": [schedule]}
    deployment = post(f"{server}/deployments/", body)
    wanted = {"deployments": {"id": {"any_": [deployment["id"]]}}}

    until(lambda: len(post(f"{server}/flow_runs/filter", wanted)) >= 3)
    requests.delete(f"{server}/deployments/{deployment['id']}")
