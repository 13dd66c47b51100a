"""One stage as a child: streamed, timed out, stopped with everything it started."""

import json
import os
import re
import sys
import threading
from collections import deque
from signal import SIGINT, SIGKILL, SIGTERM

import pytest
from dvc_data.hashfile.checkout import LinkError

from pipelines.execution import processes, runner


@pytest.fixture(autouse=True)
def fresh():
    runner.reset()
    yield
    runner.reset()


def run(name: str = "a", **options) -> tuple[runner.Outcome, list[str]]:
    lines: list[str] = []
    return runner.run(name, lines.append, **options), lines


def test_streams_and_knows_what_is_unchanged(inside):
    inside.stages("  a: {cmd: 'echo one; echo two >&2; echo > a.out', outs: [a.out]}")
    outcome, lines = run()
    assert (outcome.returncode, outcome.skipped, outcome.problem) == (0, False, "")
    assert lines == ["> echo one; echo two >&2; echo > a.out", "one", "two"]
    assert run()[0].skipped
    assert not run(force=True)[0].skipped


def test_taken_from_the_run_cache(inside):
    inside.write("in", "1").stages("  a: {cmd: cat in > a.out, deps: [in], outs: [a.out]}")
    run()
    inside.write("in", "2")
    assert not run()[0].skipped
    inside.write("in", "1")
    outcome, lines = run()
    assert outcome.skipped and any("is cached - skipping run" in line for line in lines)


def test_the_venv_leads_and_the_environment_arrives(inside):
    inside.stages("  a: {cmd: 'python -c \"import sys, os; print(sys.prefix, os.environ[chr(88)])\" > a.out', outs: [a.out]}")
    assert run(env={"X": "hello"})[0].returncode == 0
    assert inside.read("a.out").split() == [sys.prefix, "hello"]


@pytest.mark.parametrize(
    ("cmd", "problem"),
    [
        ("echo 'a: no such corpus' >&2; echo afterwards; exit 1", "no such corpus"),
        ("python -c '1/0'", "ZeroDivisionError: division by zero"),
        ("kill -9 $$", "killed by the system (signal 9), most often because memory ran out"),
        ("exit 3", "failed to run: exit 3, exited with 3"),
        ("true", "output 'a.out' does not exist"),
    ],
)
def test_says_why_in_one_line(inside, cmd, problem):
    inside.stages(f"  a: {{cmd: {json.dumps(cmd)}, outs: [a.out]}}")
    outcome, _ = run()
    assert outcome.returncode != 0
    assert outcome.problem == problem


def test_a_full_disk_under_outputs_of_the_cache_is_named():
    """In place of DVC's words for it."""
    said = f"ERROR: failed to reproduce 'one': {LinkError('data/x')}"
    assert re.search(r"DVC's cache \([\d,]+ MiB of disk are free\): free some space", runner._problem("one", deque([said])))


def test_a_progress_bar_is_thinned(inside):
    bar = "import sys\nfor i in range(1000): sys.stdout.write(f'\\r{i}')\nprint('\\rend')\n"
    inside.write("bar.py", bar).stages("  a: {cmd: python bar.py && echo > a.out, outs: [a.out]}")
    _, lines = run()
    assert len(lines) < 10 and lines[-1] == "end"


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "9999"])
subprocess.Popen(["sleep", "9999"], start_new_session=True)
open("begun", "w")
time.sleep(9999)
"""


def test_timeout_ends_even_the_stubborn(inside, monkeypatch):
    monkeypatch.setattr(runner.processes, "GENTLE", ((SIGINT, 0.5), (SIGTERM, 0.5), (SIGKILL, 2.0)))
    inside.stages("  a: {cmd: python -c 1 && echo > a.out, outs: [a.out]}")
    timeout = round(3 + 2 * run()[0].seconds)  # how long DVC and Python take to begin is the machine's affair
    inside.write("stubborn.py", STUBBORN).stages("  a: {cmd: python stubborn.py, outs: [a.out]}")
    outcome, _ = run(timeout=timeout)
    assert (inside.path / "begun").exists()
    assert outcome.problem == f"stopped after its timeout of {timeout} s (meta.timeout in dvc.yaml)" and outcome.returncode != 0
    assert len(inside.processes()) == 1  # this one


def test_a_stage_that_is_stopped_as_it_begins_shows_no_traceback(inside):
    """Its own last word stays, and so do those of one that fails by itself."""
    slow = "import time\ntry:\n    open('begun', 'w')\n    time.sleep(99)\nfinally:\n    print('a: stopped', flush=True)\n"
    inside.write("slow.py", slow)
    inside.stages("  a: {cmd: python slow.py, outs: [a.out]}\n  b: {cmd: python -c 1/0, outs: [b.out]}")
    assert any(line.startswith("Traceback") for line in run("b")[1])
    ended = []
    thread = threading.Thread(target=lambda: ended.append(run()))
    thread.start()
    inside.until((inside.path / "begun").exists)
    runner.stop_all()
    thread.join()
    [(outcome, lines)] = ended
    assert outcome.stopped and "a: stopped" in lines and not [line for line in lines if "Traceback" in line or "Interrupt" in line], lines


def test_impatient_ctrl_c_neither_hangs_nor_waits(inside, monkeypatch):
    """Of a hundred that raised in the midst of a lock, one or two left it taken, and the flow waited for ever."""
    monkeypatch.setattr(processes, "GENTLE", ((SIGINT, 9999.0), (SIGKILL, 60.0)))
    inside.stages("  a: {cmd: \"trap '' INT TERM; touch begun; sleep 9999\", outs: [a.out]}")
    ended, over = [], threading.Event()

    def press() -> None:
        while not over.wait(1e-4):
            os.kill(os.getpid(), SIGINT)

    stage = threading.Thread(target=lambda: ended.append(run()[0]))
    stage.start()
    inside.until((inside.path / "begun").exists)
    with processes.ctrl_c_again() as hurried:
        presses = threading.Thread(target=press)
        presses.start()
        for _ in range(500):  # it may be said again
            runner.stop_all(hurried)
        stage.join()
        over.set()
        presses.join()
    assert ended[0].stopped and len(inside.processes()) == 1


def test_what_a_stage_leaves_running_is_ended(inside):
    inside.stages("  a: {cmd: 'sleep 9999 & echo > a.out', outs: [a.out]}")
    assert run()[0].returncode == 0
    assert len(inside.processes()) == 1


def test_stop_all(inside):
    inside.stages("  a: {cmd: sleep 9999, outs: [a.out]}\n  b: {cmd: sleep 9998, outs: [b.out]}")
    outcomes = []
    threads = [threading.Thread(target=lambda name=name: outcomes.append(run(name)[0])) for name in "ab"]
    for thread in threads:
        thread.start()
    inside.until(lambda: sum(process.name() == "sleep" for process in inside.processes()) == 2)
    runner.stop_all()
    for thread in threads:
        thread.join()
    assert [outcome.stopped for outcome in outcomes] == [True, True]
    assert len(inside.processes()) == 1
    assert run("a")[0].stopped  # none begins after that
