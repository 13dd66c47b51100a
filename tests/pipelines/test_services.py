"""The servers and the ledger: up, down, away; and what is said before anything runs."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
import requests

from components.core import tracking
from components.core.errors import SesameError
from pipelines.execution import mlflow_view
from pipelines.machines import services
from tests.conftest import free_port
from tests.pipelines.conftest import BIN, ROOT, serve
from tests.waiting import until

pytestmark = pytest.mark.long

STEP = """
import sys
from pathlib import Path
from components.core.storage import output
from components.stages.stage import main

def body(params, name, run):
    with output(Path(f"{name}.out")) as path:
        path.write_text(name)
    return {"length": len(name)}

main("step", body)
"""
STEPS = """
  step:
    foreach: [a, b, c]
    do: {cmd: "python step.py ${item}", deps: [step.py], outs: ["${item}.out"]}
"""


def test_up_down_and_a_fresh_ledger_under_parallel_stages(bare, monkeypatch):
    """One story, since servers are slow to start: stages write a fresh database side by side, both pages show them, all goes away."""
    bare.env["SESAME_TRACKING"] = ""
    bare.write("step.py", textwrap.dedent(STEP)).stages(STEPS)
    output = bare.sesame("run", "--jobs", "3")  # starts Prefect's server by itself
    assert "3 stages: 0 cached, 3 done, 0 failed" in output and "warning" not in output
    assert "MLflow   start its page with `sesame up`" in output and "report   " not in output

    first = bare.up()
    assert bare.up() == first
    assert re.search(r"^mlflow +\S+/#/experiments/\d+/runs\?workflowType=machine_learning", first, re.M)
    pages = {name: page.partition("/#")[0] for name, page in (line.split() for line in first.splitlines())}
    assert f"Prefect  {pages['prefect']}/runs/flow-run/" in output
    assert bare.sesame("status").count(" up ") == 2
    assert requests.get(pages["prefect"]).ok
    assert requests.get(f"{pages['prefect']}/ui-settings").json()["api_url"] == f"{pages['prefect']}/api"
    answers_its_own_page_only(pages["prefect"], f"{pages['prefect']}/api/flows/filter", {})
    no_socket_for_another_page(pages["prefect"])
    said = {line["message"] for line in requests.post(f"{pages['prefect']}/api/logs/filter", json={}).json()}
    assert {"[step@a] begins", "[step@b] begins", "[step@c] begins"} <= said
    takes_many_writes_at_once(f"{pages['prefect']}/api")

    mlflow = f"{pages['mlflow']}/api/2.0/mlflow"
    experiment = requests.get(f"{mlflow}/experiments/get-by-name", params={"experiment_name": tracking.EXPERIMENT}).json()
    body = {"experiment_ids": [experiment["experiment"]["experiment_id"]]}
    answers_its_own_page_only(pages["mlflow"], f"{mlflow}/runs/search", body)
    for headers in ({"Origin": "http://localhost:9999"}, {"Host": "evil.example"}):
        assert requests.get(f"{pages['mlflow']}/health", headers=headers).status_code == 403, headers
    runs = {run["info"]["run_name"]: run for run in requests.post(f"{mlflow}/runs/search", json=body).json()["runs"]}
    tags = {name: {tag["key"]: tag["value"] for tag in run["data"]["tags"]} for name, run in runs.items()}
    parent = next(name for name in runs if not name.startswith("step@"))
    assert set(runs) == {parent, "step@a", "step@b", "step@c"}
    assert {run["info"]["status"] for run in runs.values()} == {"FINISHED"}
    assert tags[parent]["prefect_flow_run"] in output and tags[parent]["git_commit"]
    assert (tags[parent]["dvc_lock_before"], len(tags[parent]["dvc_lock"])) == ("", 32)
    for name in ("step@a", "step@b", "step@c"):
        assert tags[name]["mlflow.parentRunId"] == runs[parent]["info"]["run_id"]
        assert {"data.step.py", f"data.{name[-1]}.out"} <= tags[name].keys()
    artifacts = requests.get(f"{mlflow}/artifacts/list", params={"run_id": runs[parent]["info"]["run_id"]}).json()
    assert "dvc.lock" in [file["path"] for file in artifacts["files"]]

    again = bare.sesame("run")
    assert "3 cached" in again  # nothing to do: nothing recorded
    opens_on_the_runs_of_the_flow(again, pages["mlflow"], runs[parent]["info"]["run_id"])
    assert len(requests.post(f"{mlflow}/runs/search", json=body).json()["runs"]) == 4

    assert bare.sesame("down") == "stopped: prefect, mlflow\n"
    assert bare.processes() == []
    assert bare.sesame("down") == "stopped: nothing, as no server was running\n"
    assert bare.sesame("status").count(" down") == 2


def answers_its_own_page_only(address: str, question: str, body: dict) -> None:
    """A server answers its page and programs, but neither another web page nor a name bent to this machine."""
    port = address.rpartition(":")[2]
    for headers, code in (
        ({}, 200), ({"Origin": address}, 200), ({"Origin": f"http://localhost:{port}"}, 200),
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "evil.example"}, 403), ({"Host": f"localhost:{port}"}, 200), ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ):  # fmt: skip
        assert requests.post(question, json=body, headers=headers).status_code == code, headers
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in requests.options(question, headers=asked).headers


def no_socket_for_another_page(address: str) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
    assert requests.get(f"{address}/api/events/in", headers=upgrade | {"Origin": "http://evil.example"}).status_code == 403


def takes_many_writes_at_once(api: str, **options) -> None:
    """On SQLite Prefect alone answers most of these with 503, and may stand still for a minute."""
    flow = requests.post(f"{api}/flows/", json={"name": "many"}, **options).json()["id"]
    deployment = requests.post(f"{api}/deployments/", json={"name": "many", "flow_id": flow}, **options).json()["id"]
    begin = f"{api}/deployments/{deployment}/create_flow_run"
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda _: requests.post(begin, json={}, timeout=60, **options).status_code, range(64)))
    assert codes == [201] * 64, codes
    assert requests.delete(f"{api}/flows/{flow}", **options).ok  # its runs too: nobody does them


def opens_on_the_runs_of_the_flow(output: str, page: str, flow_run: str) -> None:
    """The link names a view that MLflow has, and what the view filters and sorts by is there."""
    link = r"^MLflow   \S+/#/experiments/(\d+)/runs\?workflowType=machine_learning&viewStateShareKey=(\S+)$"
    experiment, view = re.search(link, output, re.M).groups()
    found = requests.get(f"{page}/api/2.0/mlflow/experiments/get", params={"experiment_id": experiment}).json()["experiment"]
    tags = {tag["key"]: tag["value"] for tag in found["tags"]}
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    state = json.loads(tags[f"mlflow.sharedViewState.{view}"])
    assert {"tags.`stage`", "tags.`model`", "tags.`init`", "metrics.`score`", "metrics.`seconds`"} <= set(state["selectedColumns"])
    order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"
    body = {"experiment_ids": [experiment], "filter": state["searchFilter"], "order_by": [order]}
    runs = requests.post(f"{page}/api/2.0/mlflow/runs/search", json=body).json()["runs"]
    assert {run["info"]["run_name"] for run in runs} == {"step@a", "step@b", "step@c"}
    assert all({"key": "flow", "value": flow_run} in run["data"]["tags"] for run in runs)
    assert all("seconds" in {metric["key"] for metric in run["data"]["metrics"]} for run in runs)


def test_a_ledger_that_is_away_costs_one_line(lab):
    lab.env |= {"SESAME_TRACKING": "", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    lab.write("step.py", textwrap.dedent(STEP)).stages(STEPS)
    output = lab.sesame("run", "step@a")
    assert "1 stage: 0 cached, 1 done" in output
    assert output.count("warning: MLflow at http://127.0.0.1:9 is not usable") == output.count("warning") == 1
    nothing = "MLflow   this flow was not recorded ({}); its results are in data/"
    assert nothing.format("MLflow could not be reached, see above") in output.splitlines()
    output = lab.sesame("run", "step@b", SESAME_TRACKING="off")
    assert nothing.format("SESAME_TRACKING=off") in output.splitlines()


WAITS = """
import time
from pathlib import Path
Path("begun").touch()
while not Path("go").exists():
    time.sleep(0.1)
"""


def test_the_runs_of_a_killed_flow_are_closed_by_the_next(bare, monkeypatch):
    bare.env["SESAME_TRACKING"] = ""
    bare.write("step.py", WAITS + textwrap.dedent(STEP)).stages(STEPS)
    run = bare.start("run", "step@a")
    bare.until((bare.path / "begun").exists)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{bare.path}/mlflow.db")
    tracking.client.cache_clear()

    def statuses() -> list[str]:
        experiment = tracking.client().get_experiment_by_name(tracking.EXPERIMENT).experiment_id
        return sorted(own.info.status for own in tracking.client().search_runs([experiment]))

    assert statuses() == ["RUNNING"]
    (bare.path / "go").touch()
    # its guard ends what it began; DVC's hold on the stage's output goes when the system has buried that process
    holders = bare.path / ".dvc/tmp/rwlock"
    bare.until(lambda: not any(psutil.pid_exists(int(pid)) for pid in re.findall(r'"pid": (\d+)', holders.read_text())))
    assert "1 done" in bare.sesame("run", "step@a")
    assert statuses() == ["FINISHED", "FINISHED", "KILLED"]
    assert not (bare.path / ".sesame/mlflow_run").exists()
    tracking.client.cache_clear()
    bare.sesame("down")


def test_a_database_that_is_away_costs_seconds_and_keeps_its_password(lab, monkeypatch):
    lab.env |= {"SESAME_TRACKING": "", "MLFLOW_TRACKING_URI": "postgresql://joe:s3cret@127.0.0.1:9/mlflow"}
    lab.write("step.py", textwrap.dedent(STEP)).stages(STEPS)
    output = lab.sesame("run")
    assert "3 stages: 0 cached, 3 done, 0 failed" in output
    assert output.count("done in") == 3, "the time of a stage is said once"
    assert output.count("warning: MLflow at postgresql://127.0.0.1:9/mlflow is not usable") == output.count("warning") == 1
    said = lab.sesame("runs", code=1)
    assert said.startswith("sesame: MLflow at postgresql://127.0.0.1:9/mlflow is not usable: ") and said.count("\n") == 1
    assert lab.sesame("up", code=1).splitlines()[-1].startswith("sesame: MLflow at postgresql://127.0.0.1:9/mlflow is not usable")
    assert not any("s3cret" in text for text in (output, said, lab.sesame("status")))
    import mlflow  # noqa: F401, its import is no part of what is timed

    monkeypatch.setenv("MLFLOW_TRACKING_URI", lab.env["MLFLOW_TRACKING_URI"])
    tracking.client.cache_clear()
    begun = time.monotonic()
    with pytest.raises(SesameError, match="is not usable"):
        tracking.connected()
    assert time.monotonic() - begun < 60, "MLflow alone tries for two minutes"


@pytest.mark.cluster
def test_a_server_for_the_network(tmp_path):
    """By the command of docs/operations.md: under any name, by its password, and in turns as well."""
    [command] = re.findall(r"^(uvicorn .*?) > ", (ROOT / "docs/operations.md").read_text(), re.M)
    port = services._free(0)
    own = {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_API_AUTH_STRING": "me:secret"}
    with open(tmp_path / "log", "w") as log:
        program = [BIN / "uvicorn", *command.replace("4200", str(port)).split()[1:]]
        server = subprocess.Popen(program, env=os.environ | own, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: services.healthy(services.PREFECT, address))
        for options, code in (({}, 401), ({"auth": ("me", "secret")}, 200)):
            asked = requests.get(f"{address}/api/admin/version", headers={"Host": f"lab:{port}"}, **options)
            assert asked.status_code == code, (tmp_path / "log").read_text()
        takes_many_writes_at_once(f"{address}/api", auth=("me", "secret"))
    finally:
        server.terminate()
        server.wait()


@pytest.mark.cluster
def test_an_mlflow_server_for_the_network(tmp_path):
    """By the command of docs/operations.md: it asks for the password that the line before it gives to the clients."""
    text = (ROOT / "docs/operations.md").read_text()
    [command], [secret] = re.findall(r"^(MLFLOW_AUTH.*) &$", text, re.M), re.findall(r"MLFLOW_TRACKING_PASSWORD=(a-\S+)$", text, re.M)
    port = free_port()
    command = command.replace("mlflow server", f"exec {BIN}/mlflow server --port {port}")
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, shell=True, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: services.healthy(services.MLFLOW, f"http://127.0.0.1:{port}"))
        for options, code in (({}, 401), ({"auth": ("me", secret)}, 200)):
            search = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search"
            asked = requests.post(search, json={"max_results": 1}, headers={"Host": f"lab:{port}"}, **options)
            assert asked.status_code == code, (tmp_path / "log").read_text()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def test_a_server_that_nobody_knows_any_more_ends(tmp_path):
    """As where `.sesame` was deleted with its log: `sesame down` would not find it."""
    code = """
import time
from pipelines.machines import mlflow_app
mlflow_app.LOOK_SECONDS = 0.1
mlflow_app.OwnPageOnly(None)
print("looks", flush=True)
time.sleep(60)
"""
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=log, env=os.environ | {services.PAGES: "http://127.0.0.1:1"})
    until(lambda: "looks" in (tmp_path / "server.log").read_text())
    time.sleep(1)
    assert server.poll() is None
    (tmp_path / "server.log").unlink()
    assert server.wait(timeout=60) == -signal.SIGTERM


def test_an_address_without_a_scheme_is_one_line(bare):
    bare.stages("  a: {cmd: echo > a.out, outs: [a.out]}")
    for command in ("run", "up", "status"):
        message = bare.sesame(command, code=1, PREFECT_API_URL="127.0.0.1:4299/api")
        said = "'127.0.0.1:4299/api' is not the address of a server; write it as http://HOST:PORT/api, or unset it"
        assert message == f"sesame: PREFECT_API_URL: {said}\n"
    assert not (bare.path / ".sesame/services.json").exists()


def test_a_prefect_server_that_is_away_is_one_line(bare):
    bare.stages("  a: {cmd: echo > a.out, outs: [a.out]}")
    message = bare.sesame("run", code=1, PREFECT_API_URL="http://127.0.0.1:9/api")
    said = "no server answers at http://127.0.0.1:9 (PREFECT_API_URL); start it, or unset PREFECT_API_URL"
    assert message.endswith(f"\nsesame: prefect: {said}\n")
    assert not (bare.path / "a.out").exists()


def test_a_server_that_says_it_is_well_and_answers_nothing_else_is_one_line(bare):
    class Well(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/health"):
                self.send_response(200)
                self.end_headers()
            self.close_connection = True

        def log_message(self, *_) -> None:
            pass

    bare.stages("  a: {cmd: echo > a.out, outs: [a.out]}")
    with ThreadingHTTPServer(("127.0.0.1", 0), Well) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/api"
        message = bare.sesame("run", code=1, PREFECT_API_URL=address)
        server.shutdown()
    assert message.endswith(f"sesame: Prefect's server at {address}/ does not answer; start it, or unset PREFECT_API_URL\n"), message
    assert not (bare.path / "a.out").exists()


def test_an_mlflow_server_without_the_experiment_is_shown_by_its_address(monkeypatch):
    """As a new one, before the first run."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"}')

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", page)
        shown = mlflow_view.address([])
        server.shutdown()
    assert shown == page


def test_a_prefect_server_that_falls_silent_in_mid_flow(bare, tmp_path):
    """As behind a proxy that is frozen: connections are taken, and nobody answers. The flow ends after its
    tries (fewer and shorter here than ours are), and what was done is kept."""
    address = f"http://127.0.0.1:{free_port()}"
    server = serve(tmp_path / "prefect", address)
    try:
        bare.stages('  a: {cmd: "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo > a.out", outs: [a.out]}')
        tries = {"PREFECT_CLIENT_MAX_RETRIES": "1", "PREFECT_API_REQUEST_TIMEOUT": "4"}
        run = bare.start("run", PREFECT_API_URL=f"{address}/api", **tries)
        bare.until((bare.path / "begun").exists)
        server.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        (bare.path / "go").touch()
        output = bare.ended(run, code=1)
        took = time.monotonic() - begun
    finally:
        server.kill()
        server.wait()
    head = "sesame: Prefect's server does not answer (ReadTimeout); finished stages are kept"
    last = f"{head}: run the command again (`sesame status` shows the servers)\n"
    assert output.endswith(last) and took < 40, (took, output)
    assert "1 stage: 1 cached" in bare.sesame("run")


def test_a_server_that_does_not_come_up_is_one_line(bare):
    bare.write("broken.py", "")
    (bare.path / ".sesame/prefect").mkdir(parents=True)
    (bare.path / ".sesame/prefect/profiles.toml").write_text("not toml [")
    bare.stages("  a: {cmd: echo > a.out, outs: [a.out]}")
    message = bare.sesame("up", code=1)
    assert message.startswith("sesame: prefect: its server doesn't answer at http://127.0.0.1:") and message.count("\n") == 1
    assert bare.processes() == []


ANSWERS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


def test_a_port_taken_at_the_same_moment_is_given_up(inside, monkeypatch):
    """Two checkouts choose the same port: the one whose server comes late begins again at another, and takes no stranger's for its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    free = services._free
    other = subprocess.Popen([sys.executable, "-c", ANSWERS, str(port := free(0))])
    inside.until(lambda: services.healthy(services.MLFLOW, f"http://127.0.0.1:{port}"))
    chosen = iter([port, port])
    monkeypatch.setattr(services, "_free", lambda wanted: next(chosen, None) or free(0))
    monkeypatch.setattr(services, "command", lambda service, port: ([sys.executable, "-c", ANSWERS, str(port)], {}))
    try:
        address = services.up(services.MLFLOW)
        assert address != f"http://127.0.0.1:{port}" and services.healthy(services.MLFLOW, address)
        assert services.up(services.MLFLOW) == address and services.down() == ["mlflow"]
        assert not services.healthy(services.MLFLOW, address)
    finally:
        other.kill()
        other.wait()


def test_every_problem_of_params_is_said_before_anything_runs(bare):
    text = bare.read("params.yaml").replace("vocab_size:", "vocab_sizes:").replace("encoding: english", "encoding: english_")
    bare.write("params.yaml", text).stages("  a: {cmd: echo > a.out, outs: [a.out]}")
    message = bare.sesame("run", code=1)
    assert (
        message.startswith("sesame: params.yaml: ") and "tokenizers.english.vocab_sizes: unknown key" in message and "english_" in message
    )
    assert not (bare.path / "a.out").exists() and not (bare.path / ".sesame").exists()


def test_a_wrong_target_is_said_before_a_server_starts(bare):
    bare.stages("  train: {cmd: echo > a.out, outs: [a.out]}")
    assert bare.sesame("run", "trian", code=1).startswith("sesame: no stage 'trian' in dvc.yaml (did you mean train?")
    assert bare.sesame("status").count(" down") == 2


def test_plan(bare):
    bare.stages("  a: {cmd: echo > a.out, outs: [a.out], desc: Write, meta: {resource: cpu}}\n  b: {cmd: cat a.out, deps: [a.out]}")
    output = bare.sesame("plan")
    assert [line.split() for line in output.splitlines()][1:3] == [["a", "to", "run", "?", "?", "cpu"], ["b", "to", "run", "?", "?", "a"]]
    assert output.endswith("2 stages to run; no time estimate for 2 stages\n")


def test_scores_are_shown_at_the_end(lab):
    scores = (
        "model,task,method,init,metric,mean,std,n\nbert,stsb,full,pretrained,pearson,0.61234,0.01,3\ngpt,stsb,full,random,pearson,,,0\n"
    )
    (lab.path / "data/report").mkdir(parents=True)
    lab.write("data/report/scores.csv", scores).stages("  report: {cmd: echo > a.out, outs: [a.out]}")
    output = lab.sesame("run")
    assert "0.612 ± 0.010 (3)" in output and "nan" not in output and "report   data/report/index.html" in output


def test_light_imports():
    """`sesame --help` and wrong params answer at once: nothing heavy is imported with the command."""
    code = "import sys, json, pipelines.cli; print(json.dumps([m for m in ('prefect', 'dvc', 'mlflow', 'torch') if m in sys.modules]))"
    assert json.loads(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout) == []
