"""A pool's workers on this machine: what a stage costs beyond its own time, in parts, and whether the simulation foretells the whole.

`SESAME_STAGES` says how many (16).
"""

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import psutil
import pytest
import requests

from tests.benchmarks.pool_simulation import Costs, simulate
from tests.benchmarks.record import record
from tests.pipelines.conftest import BIN, Lab, bare, template  # noqa: F401, fixtures
from tests.pipelines.test_pool import git

STAGES = int(os.environ.get("SESAME_STAGES", 16))
SLEEP = 1.0
MEASURED: list[Costs] = []
"""Of each run; the first one's count, of one worker, since those of many hold their waits for a core."""


def cpu(process: psutil.Process) -> float:
    """Seconds that a process and its children, the ended ones too, have computed."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return sum(own.user + own.system for own in times) + times[0].children_user + times[0].children_system


def taken(question: Callable[[], requests.Response]) -> float:
    """Seconds of one, of fifty."""
    begun = time.perf_counter()
    for _ in range(50):
        question().raise_for_status()
    return (time.perf_counter() - begun) / 50


@pytest.fixture
def pooled(bare: Lab, tmp_path) -> Lab:  # noqa: F811
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(bare.path, "remote", "add", "origin", str(tmp_path / "origin.git"))
    subprocess.run([BIN / "dvc", "remote", "add", "-q", "--default", "store", str(tmp_path / "store")], cwd=bare.path, check=True)
    bare.write("params.yaml", bare.read("params.yaml").replace("run_on: here", "run_on: bench"))
    bare.write("in", "1").stages(
        "\n".join(f'  s{i}: {{cmd: "sleep {SLEEP} && cp in s{i}.out", deps: [in], outs: [s{i}.out]}}' for i in range(STAGES))
    )
    git(bare.path, "add", "-A")
    git(bare.path, "commit", "-qm", "stages")
    git(bare.path, "push", "-q", "origin", "HEAD:main")
    bare.env["PREFECT_API_URL"] = re.search(r"prefect +(\S+)", bare.up()).group(1) + "/api"
    yield bare
    bare.env["PREFECT_API_URL"] = ""
    bare.sesame("down")


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_short_stages(pooled, tmp_path, workers):
    lab, processes = pooled, []
    for number in range(workers):
        git(tmp_path, "clone", "-q", "-b", "main", str(tmp_path / "origin.git"), f"worker{number}")
        log = open(tmp_path / f"worker{number}.log", "w")  # noqa: SIM115
        processes.append(
            subprocess.Popen(
                [BIN / "sesame", "worker", "bench"], cwd=tmp_path / f"worker{number}", env=os.environ | lab.env, stdout=log, stderr=log
            )
        )
    api = lab.env["PREFECT_API_URL"]
    online = f"{api}/work_pools/bench/workers/filter"
    while (answer := requests.post(online, json={})).status_code == 404 or len(answer.json()) < workers:  # the first one makes the pool
        time.sleep(0.5)
    server = psutil.Process(json.loads(Path(lab.path, ".sesame/services.json").read_text())["prefect"]["pid"])
    poll = taken(
        lambda: requests.post(f"{api}/work_pools/bench/get_scheduled_flow_runs", json={"scheduled_before": "2100-01-01T00:00:00Z"})
    )
    served, begun = cpu(server), time.perf_counter()
    try:
        flow = lab.start("run")
        output = flow.communicate()[0]
        seconds, serve = time.perf_counter() - begun, (cpu(server) - served) / STAGES
        assert f"{STAGES} stages: 0 cached, {STAGES} done" in output, output
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    parts = [list(map(float, row)) for row in re.findall(r"pulled in (\S+) s, ran (\S+) s, pushed in (\S+) s", output)]
    starts = []
    for run in requests.post(f"{api}/flow_runs/filter", json={"flows": {"name": {"any_": ["stage"]}}, "limit": 200}).json():
        states = requests.get(f"{api}/flow_run_states/", params={"flow_run_id": run["id"]}).json()
        when = {state["name"]: datetime.fromisoformat(state["timestamp"]) for state in states}
        if "Running" in when:  # one that was lost before is sent again
            starts.append((when["Running"] - when["Pending"]).total_seconds())
    ask = taken(lambda: requests.get(f"{api}/flow_runs/{run['id']}"))
    lost = len(re.findall("lost: ", output))
    ready, ran, sent = (statistics.median(part) for part in zip(*parts, strict=True))
    print(
        f"\n{workers} workers: {seconds:.1f} s; a stage: starts {statistics.median(starts):.2f}, ready {ready:.2f}, runs {ran:.2f}, "
        f"sends {sent:.2f} s; server {serve:.2f} s of a core, "
        f"{1000 * poll:.0f} ms for a worker's question, {1000 * ask:.0f} for a stage's; {lost} lost and sent again"
    )
    own = Costs(
        poll=poll,
        ask=ask,
        start=max(0.1, statistics.median(starts) - serve / 4),
        repro=max(0.1, ran - SLEEP),
        prepare=ready,
        push=sent,
        serve=serve,
    )
    MEASURED.append(own)
    foretold = simulate(STAGES, workers, SLEEP, MEASURED[0], cores=os.cpu_count())
    record(f"{STAGES} stages of {SLEEP:g} s, {workers} workers", 1 / seconds, 1 / foretold, "flows/s", "as simulated")
    record(f"{STAGES} stages of {SLEEP:g} s, {workers} workers, ideal", 1 / seconds, workers / STAGES / SLEEP, "flows/s", "the ideal")
