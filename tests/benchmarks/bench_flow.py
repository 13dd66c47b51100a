"""The flow against DVC alone on the same graph, and against the time that its stages can't go below."""

import os
import subprocess
import time

from tests.benchmarks.record import best, record
from tests.pipelines.conftest import BIN, Lab, bare, template  # noqa: F401, fixtures

STAGES = 45
SLEEP = 6.0


def test_nothing_to_do(bare: Lab):  # noqa: F811
    """As many stages as the default pipeline has, all unchanged, with Prefect's server up."""
    rows = [f"  s{i}: {{cmd: echo {i} > s{i}.out, deps: [{f's{i // 2}.out' if i else 'in'}], outs: [s{i}.out]}}" for i in range(STAGES)]
    bare.write("in", "1").stages("\n".join(rows))
    bare.up()
    try:
        bare.sesame("run")
        env = os.environ | {"SESAME_TRACKING": "off"}
        alone = [BIN / "dvc", "repro", "-q"]
        ours, theirs = best(lambda: bare.sesame("run"), lambda: subprocess.run(alone, cwd=bare.path, env=env, check=True), rounds=3)
        record(f"nothing to do, {STAGES} stages", 1 / ours, 1 / theirs, "runs/s", "dvc repro")
    finally:
        bare.sesame("down")


def test_eight_stages_side_by_side(bare: Lab):  # noqa: F811
    """Eight that sleep: the wall clock over that of the longest chain, which is one of them."""
    bare.stages("\n".join(f'  s{i}: {{cmd: "sleep {SLEEP} && echo > s{i}.out", outs: [s{i}.out]}}' for i in range(8)))
    bare.up()
    try:
        started = time.perf_counter()
        bare.sesame("run", "--jobs", "8")
        record("eight independent stages", 1 / (time.perf_counter() - started), 1 / SLEEP, "runs/s", f"the longest chain, {SLEEP:g} s")
    finally:
        bare.sesame("down")
