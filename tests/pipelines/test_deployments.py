"""prefect.yaml served by `sesame serve` and by a worker: real runners, runs in processes of their own, real stages."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest
import requests
from ruamel.yaml import YAML

from components import params
from components.core.errors import SesameError
from components.stages import registry
from pipelines.execution import sources
from tests.conftest import tiny_params
from tests.forks import Command
from tests.pipelines.conftest import BIN, ROOT, Lab, post
from tests.waiting import until

pytestmark = pytest.mark.long

STAGES = """
  corpus:
    foreach: [base]
    do: {cmd: "echo ran >> fetched; cat raw.txt > ${item}.out", outs: ["${item}.out"]}
  after: {cmd: "echo ran >> behind; cat base.out > after.out", deps: [base.out], outs: [after.out]}
"""
STUDIES = """
stages:
  study:
    foreach: [rate]
    do: {wdir: .., cmd: "python clock.py", deps: [clock.py], params: [seed], outs: [study.out]}
"""
CLOCK = """
import subprocess, sys, time
from pathlib import Path
begun = time.time()
if Path("hold").exists():
    Path("begun").touch()
    subprocess.run(["sleep", "9999"])
time.sleep(1.5)
Path("study.out").write_text("done")
with open("times", "a") as file:
    file.write(f"{begun} {time.time()}\\n")
"""


@pytest.fixture
def ready(lab) -> Iterator[Lab]:
    """A committed lab with the project's own prefect.yaml and a corpus of local text."""
    shutil.copy(ROOT / "prefect.yaml", lab.path)
    with open(lab.path / "params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    lab.stages(STAGES).write("studies/dvc.yaml", STUDIES).write("clock.py", CLOCK).write("raw.txt", "one")
    lab.env |= {"PREFECT_RUNNER_POLL_FREQUENCY": "1", "PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_PREFETCH_SECONDS": "1"}
    for command in (["add", "-A"], ["commit", "-qm", "deployments"]):
        subprocess.run(["git", *command], cwd=lab.path, check=True)
    yield lab
    for process in lab.processes():  # of a test that failed
        process.kill()


class Page:
    """What the page does, by the same API."""

    def __init__(self, api: str):
        self.api = api

    def post(self, path: str, body: dict):
        return post(f"{self.api}{path}", body)

    def deployment(self, name: str) -> dict:
        return requests.get(f"{self.api}/deployments/name/sesame/{name}").json()

    def run(self, deployed: str, /, **parameters) -> str:
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.post(f"/deployments/{self.deployment(deployed)['id']}/create_flow_run", body)["id"]

    def set_state(self, run: str, **state) -> None:
        self.post(f"/flow_runs/{run}/set_state", {"state": state})

    def cancel(self, run: str) -> None:
        self.set_state(run, type="CANCELLING", name="Cancelling")

    def state(self, run: str) -> dict:
        return requests.get(f"{self.api}/flow_runs/{run}").json()["state"]

    def end(self, run: str) -> tuple[str, str]:
        """Wait for a run; its state's name and message."""
        until(lambda: self.state(run)["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"))
        return self.state(run)["name"], self.state(run)["message"]


def begun(lab: Lab) -> None:
    """Wait for the stage that would not end."""
    until((lab.path / "begun").exists)
    (lab.path / "begun").unlink()


def at_work(lab: Lab) -> set[str]:
    """Names of the stages' processes that live in this lab, or in a worktree_run of it."""
    names = set()
    for process in psutil.process_iter(["cwd", "cmdline", "status"]):
        if (process.info["cwd"] or "").startswith(str(lab.path)) and process.info["status"] != psutil.STATUS_ZOMBIE:
            names |= {"sleep", "clock.py", "repro"} & {part.rpartition("/")[2] for part in process.info["cmdline"]}
    return names


def side_by_side(lab: Lab) -> bool:
    times = sorted(tuple(map(float, line.split())) for line in lab.read("times").splitlines())
    return any(one[1] > other[0] for one, other in zip(times, times[1:], strict=False))


def test_served(ready, many_flows):
    """One server, many runs: by hand, queued, by schedule, in a worktree_run, refused, cancelled, and the end of it all."""
    lab, page = ready, Page(ready.env["PREFECT_API_URL"])
    serve = lab.start("serve")
    until(lambda: not page.deployment("study").get("detail"))
    assert "local files" in page.deployment("pipeline")["parameter_openapi_schema"]["properties"]["recheck"]["description"]

    runs = [page.run("pipeline", targets=["corpus", "after", "study"], force=True), page.run("pipeline", targets=["study"], force=True)]
    assert {page.end(run)[0] for run in runs} == {"Completed"}
    assert len(lab.read("times").splitlines()) == 2 and not side_by_side(lab)

    nightly = page.deployment("nightly")
    assert [(entry["schedule"]["cron"], entry["schedule"]["timezone"]) for entry in nightly["schedules"]] == [("0 3 * * *", "UTC")]
    runs = {"deployments": {"id": {"any_": [nightly["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
    until(lambda: page.post("/flow_runs/filter", runs))
    planned = page.post("/flow_runs/filter", runs)[0]
    assert planned["auto_scheduled"] and planned["parameters"] == {"recheck": True} and "T03:00:00" in planned["expected_start_time"]
    page.set_state(planned["id"], type="SCHEDULED", state_details={"scheduled_time": datetime.now(UTC).isoformat()})  # night comes
    assert page.end(planned["id"])[1].startswith("2 stages: 1 cached, 1 done, 0 failed")
    assert lab.read("fetched").split() == ["ran"] * 2 and lab.read("behind").split() == ["ran"]

    before = lab.read("params.yaml")
    name, message = page.end(page.run("pipeline", targets=["study"], overrides={"seed": 2}, experiment="two"))
    assert name == "Completed" and message.startswith("experiment two done"), message
    assert lab.read("params.yaml") == before
    shown = subprocess.run([BIN / "dvc", "exp", "list", "--name-only"], cwd=lab.path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["two"]

    assert page.end(page.run("pipeline", targets=["afterr"])) == (
        "Failed",
        "no stage 'afterr' in dvc.yaml (did you mean after? `sesame plan` lists all)",
    )
    assert page.end(page.run("pipeline", overrides={"sed": 2}))[1] == "-S sed=2: sed: unknown key (did you mean seed?)"

    huge = tiny_params()
    huge["models"]["bert"]["architecture"]["hidden_size"] = 2**20
    with open(lab.path / "params.yaml", "w") as file:
        YAML().dump(huge, file)
    lab.stages(f"{STAGES}  pretrain: {{foreach: [bert], do: {{cmd: touch huge.out, outs: [huge.out]}}}}\n")
    name, message = page.end(page.run("pipeline", targets=["pretrain@bert"]))
    assert name == "Failed" and "pretrain@bert needs " in message and "of memory or more, and this machine has" in message
    lab.stages(STAGES).write("params.yaml", before)

    lab.write("hold", "")
    subprocess.run(["git", "add", "hold"], cwd=lab.path, check=True)  # a worktree_run has it, too
    running = page.run("pipeline", targets=["study"], force=True)
    begun(lab)
    waiting = page.run("pipeline", targets=["study"])
    until(lambda: page.state(waiting)["name"] == "Running")
    page.cancel(waiting)
    assert page.end(waiting)[0] == "Cancelled" and at_work(lab) == {"sleep", "clock.py", "repro"}
    page.cancel(running)
    name, message = page.end(running)
    assert name == "Cancelled" and "1 stopped" in message and at_work(lab) == set()

    worktree_run = page.run("pipeline", targets=["study"], overrides={"seed": 3}, experiment="three")
    until((lab.path / ".sesame/worktrees/three/begun").exists)
    page.cancel(worktree_run)
    assert page.end(worktree_run)[0] == "Cancelled" and at_work(lab) == set() and os.listdir(lab.path / ".sesame/worktrees") == []

    running = page.run("pipeline", targets=["study"], force=True)
    begun(lab)
    serve.send_signal(signal.SIGTERM)
    output = lab.ended(serve, code=0)
    assert page.end(running)[0] == "Cancelled" and lab.processes() == [] and page.deployment("nightly")["paused"], output


def test_a_worker(ready, tmp_path):
    """`prefect deploy --all` to a process pool; the worker stands anywhere, its runs in the checkout."""
    lab, page = ready, Page(ready.env["PREFECT_API_URL"])
    (tmp_path / "elsewhere").mkdir()

    def prefect(folder: Path, *args: str) -> Command:
        with open(tmp_path / "prefect.log", "a") as log:
            outputs = log.fileno(), log.fileno()
            return Command(str(lab.forks / "commands"), ["-m", "prefect", *args], str(folder), os.environ | lab.env, outputs)

    for args in (["work-pool", "create", "sesame", "--type", "process"], ["--no-prompt", "deploy", "--all"]):
        assert prefect(lab.path, *args).wait() == 0, (tmp_path / "prefect.log").read_text()
    command = prefect(tmp_path / "elsewhere", "worker", "start", "--pool", "sesame")
    worker = psutil.Process(command.pid)
    try:
        runs = [page.run("pipeline", targets=["study"], force=True) for _ in range(2)]
        assert {page.end(run)[0] for run in runs} == {"Completed"}
        assert len(lab.read("times").splitlines()) == 2 and not side_by_side(lab)

        lab.write("hold", "").write("clock.py", CLOCK + "# edited\n")
        running = page.run("study", name="rate")
        begun(lab)
        page.cancel(running)
        assert page.end(running)[0] == "Cancelled" and at_work(lab) == set()

        running = page.run("study", name="rate")
        begun(lab)
        for process in [*worker.children(), worker]:  # the flow and its worker, without a word
            process.kill()
        until(lambda: not lab.processes())  # the flow's guard has stopped the stage
        assert page.state(running)["name"] == "Running", "until somebody sets its state"
    finally:
        command.kill()
        command.wait()


def test_recheck(ready):
    lab = ready
    lab.stages(STAGES)
    assert "2 stages: 0 cached, 2 done" in lab.sesame("run")
    assert "2 stages: 1 cached, 1 done" in lab.sesame("run", "--recheck") and lab.read("behind") == "ran\n"
    lab.write("raw.txt", "two")  # DVC does not see it
    assert "2 stages: 0 cached, 2 done" in lab.sesame("run", "--recheck") and lab.read("after.out") == "two"


def test_which_sources_are_not_fixed():
    """Those of the default pipeline all are; every group of stages that fetches is known."""
    assert sources.unfixed(params.load(ROOT / "params.yaml")) == set()
    raw = tiny_params()
    hub = {"kind": "hub", "path": "owner/name"}
    pinned = {**raw["corpora"]["base"], "parts": [{"source": {**hub, "revision": "v1"}, "reader": {"format": "parquet", "column": "text"}}]}
    loose = json.loads(json.dumps(pinned).replace(', "revision": "v1"', ""))
    part = {"source": {"kind": "bucket", "addresses": ["s3://text/*"]}, "reader": {"format": "text"}}
    raw["corpora"] |= {"pinned": pinned, "loose": loose, "far": raw["corpora"]["base"] | {"parts": [part]}}
    assert sources.unfixed(params.check(raw)) == {"corpus@base", "corpus@loose", "corpus@far", "task@same"}
    default = YAML(typ="safe").load(ROOT / "params.yaml")
    default["published_vectors"]["glove"] = {"licence": "none", "source": {"kind": "files", "paths": ["x"]}}
    default["checkpoints"]["outside"] = {"family": "encoder", "licence": "none", "source": {"kind": "files", "paths": ["x/*"]}}
    files = {"kind": "files", "paths": ["x", "y"]}
    default["generations"]["translated"] = {"model": "outside", "inputs": {"kind": "parallel", "source": files}}
    default["evaluations"]["published"] = {"kind": "minimal_pairs", "corpus": "english", "source": {"kind": "files", "paths": ["x"]}}
    stages = registry.entries(params.check(default))
    fetching = {own.stage for own in stages if any(module.startswith("components.text.sources.") for module in own.modules)}
    assert fetching == {stage.name for stage in registry.stages().values() if stage.fetches}


def test_a_failure_is_posted(ready):
    """docs/notify.py, as docs/operations.md says."""
    lab, calls = ready, []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    hook = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    command = [sys.executable, ROOT / "docs/notify.py", f"http://127.0.0.1:{hook.server_port}/sesame"]
    for _ in range(2):  # said twice it is one automation
        subprocess.run(command, env=os.environ | lab.env, check=True)
    lab.stages("  good: {cmd: echo > good.out, outs: [good.out]}\n  bad: {cmd: \"echo 'bad: no' >&2; exit 1\", outs: [bad.out]}")
    good = lab.sesame("run", "good")
    output = lab.sesame("run", "bad", code=1)
    well, run = (re.search(r"/runs/flow-run/(\S+)", said).group(1) for said in (good, output))
    until(lambda: [call for call in calls if call["id"] == run])
    hook.shutdown()
    [call] = [call for call in calls if call["id"] == run]
    assert call["state"] == "Failed" and call["message"].startswith("1 stage: 0 cached, 0 done, 1 failed")
    assert not [call for call in calls if call["id"] == well], "others on this server may fail meanwhile"


ENTRY = {"name": "own", "entrypoint": "pipelines.deployments.pipeline", "description": "d"}


def deployments_of(**entry) -> list:
    own = {key: value for key, value in (ENTRY | entry).items() if value is not None}
    with open("prefect.yaml", "w") as file:
        YAML().dump({"deployments": [own]}, file)
    from pipelines import deployments

    return deployments._deployments()


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ({"cron": "0 3 * * *"}, "0 3 * * * UTC"),  # which is what Prefect keeps it by, whatever the machine's time zone
        ({"cron": "0 3 * * *", "timezone": "Europe/Berlin", "active": False}, "0 3 * * * Europe/Berlin (paused)"),
        ({"interval": 5400}, "every 1:30:00 UTC"),
        ({"rrule": "FREQ=DAILY;BYHOUR=3"}, "FREQ=DAILY;BYHOUR=3 UTC"),
    ],
)
def test_a_schedule_is_shown_as_it_is_kept(tmp_path, monkeypatch, schedule, shown):
    from pipelines import deployments

    monkeypatch.chdir(tmp_path)
    [deployed] = deployments_of(schedules=[schedule])
    assert list(map(deployments._when, deployed.schedules)) == [shown]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Pariss"}]}, "deployment own: .*Invalid timezone"),
        ({"schedules": [{"cron": "99 3 * * *"}]}, "deployment own: Invalid cron string"),
        ({"schedules": [{"cron": "0 3 * * *", "time_zone": "UTC"}]}, "deployment own: .*unexpected .* 'time_zone'"),
        ({"description": None}, "deployment own: no 'description'"),
        ({"entrypoint": "pipelines.deployments.pipelin"}, "deployment own: .*pipelin"),
    ],
)
def test_a_wrong_deployment_is_one_line(tmp_path, monkeypatch, entry, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SesameError, match=said) as error:
        deployments_of(**entry)
    assert "\n" not in str(error.value)
    Path("prefect.yaml").write_text("deployments: [\n")
    from pipelines import deployments

    with pytest.raises(SesameError, match="prefect.yaml: not a list of `deployments` in YAML"):
        deployments._deployments()
