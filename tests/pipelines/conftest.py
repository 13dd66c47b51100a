"""Small labs: temporary repositories with real DVC, run by the real `sesame` against one Prefect server for the session."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import mlflow
import psutil
import pytest
import requests
from ruamel.yaml import YAML

from components import params
from components.core.mlflow_values import CURVES, flatten
from components.stages import registry
from pipelines.machines import services
from tests.conftest import shared, write_raw, write_studies
from tests.forks import PYTHON, Command
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


class Lab:
    """A temporary checkout with a valid params.yaml and whatever dvc.yaml a test writes."""

    def __init__(self, path: Path, env: dict[str, str], forks: Path | None = None):
        self.path, self.env, self.forks = path, env, forks

    def stages(self, text: str) -> "Lab":
        (self.path / "dvc.yaml").write_text(f"stages:\n{text}")
        return self

    def write(self, name: str, text: str) -> "Lab":
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)
        return self

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def start(self, *args: str, **env: str) -> subprocess.Popen | Command:
        """Start `sesame`: forked where a server is there, since only without one does it read Prefect's settings after starting one."""
        environment = os.environ | self.env | env
        if self.forks and environment["PREFECT_API_URL"]:
            return Command(str(self.forks / "commands"), list(args), str(self.path), environment)
        return subprocess.Popen(
            [BIN / "sesame", *args], cwd=self.path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def sesame(self, *args: str, code: int = 0, **env: str) -> str:
        """Run `sesame`; its output."""
        return self.ended(self.start(*args, **env), code)

    def ended(self, process: subprocess.Popen | Command, code: int) -> str:
        """Wait for a started `sesame`; its output."""
        output, _ = process.communicate()
        assert process.returncode == code, output
        assert not re.search(r"^(Traceback|.*Warning:)", output, re.M), output  # of ours; a stage's own has its name in front
        return output

    def up(self) -> str:
        """Start the servers; their pages, a line each, without what is said of a server that takes its time."""
        return "".join(line for line in self.sesame("up").splitlines(keepends=True) if not line.startswith("waiting for "))

    def until(self, condition: Callable[[], object]) -> None:
        until(condition)

    def processes(self) -> list[psutil.Process]:
        """Everything alive that works in this lab."""
        found = []
        for process in psutil.process_iter(["cwd", "status"]):
            if process.info["cwd"] == str(self.path) and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def states(self, output: str) -> dict[str, str]:
        """Prefect's own view of the flow run that `output` is about: task run -> state, and the flow's under `flow`."""
        api, run = self.env["PREFECT_API_URL"], re.search(r"/runs/flow-run/(\S+)", output).group(1)
        expected = int(re.search(r"^(\d+) stages?:", output, re.M).group(1)) - int((re.search(r"(\d+) not begun", output) or ["", "0"])[1])
        found: dict[str, str] = {}

        def settled() -> bool:  # task runs reach the database as events, a moment later
            rows = post(f"{api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
            found.clear()  # one that has just begun goes by another name
            found.update({row["name"]: row["state_name"] for row in rows})
            final = {"Completed", "Cached", "Failed", "Skipped", "Stopped"}
            return len(rows) == expected and all(row["state_name"] in final for row in rows)

        until(settled)
        return found | {"flow": requests.get(f"{api}/flow_runs/{run}").json()["state_name"]}


def post(address: str, body: dict):
    """What Prefect's API answers."""
    for _ in range(20):
        answer = requests.post(address, json=body)
        if answer.status_code != 503:  # what SQLite makes of many at once on a busy machine
            break
        time.sleep(1)
    assert answer.ok, answer.text
    return answer.json() if answer.content else None


def serve(home: Path, address: str) -> subprocess.Popen:
    """Prefect's server, at the port of the address, with its state in `home`."""
    home.mkdir(exist_ok=True)
    command, own = services.command(services.PREFECT, int(address.rpartition(":")[2]))
    own |= services.environment() | {"PREFECT_HOME": str(home)}
    with open(home / "said.txt", "a") as said:
        server = subprocess.Popen(command, env=os.environ | own, stdout=said, stderr=said)
    until(lambda: services.healthy(services.PREFECT, address))
    return server


def whole(lab: Lab, raw: dict, own: dict | None = None) -> None:
    """Turn a lab into the tiny project with all its stages, recorded in an MLflow of its own."""
    (lab.path / "studies").mkdir()
    for name in ("dvc.yaml", "studies/dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, lab.path / name)
    shutil.copytree(ROOT / "components", lab.path / "components", ignore=shutil.ignore_patterns("__pycache__"))
    write_raw(lab.path)
    write_params(lab, raw, own)
    lab.env["SESAME_TRACKING"] = ""


def recorded(lab: Lab) -> dict[str, mlflow.entities.Run]:
    """The runs of stages in the lab's MLflow by their names, each checked: what its client shows are the figures of the stage's own file,
    which the report reads, and curves stand beside them under names of their own."""
    mlflow.set_tracking_uri(f"sqlite:///{lab.path}/mlflow.db")
    client, made = mlflow.MlflowClient(), {}
    for run in mlflow.search_runs(experiment_names=["sesame"], output_format="list"):
        shown = run.data.metrics
        for name in shown:
            steps = [point.step for point in client.get_metric_history(run.info.run_id, name)]
            assert steps == sorted(steps) and (name.startswith(CURVES) or steps == [0]), (run.info.run_name, name, steps)
        files = [file.path for file in client.list_artifacts(run.info.run_id) if file.path.endswith(".json")]
        for file in files:
            figures = json.loads(Path(client.download_artifacts(run.info.run_id, file)).read_text())
            if isinstance(figures, dict) and "cost" in figures:
                figures.pop("settings", None)  # what they were made by
                flat = {"seconds": figures["cost"]["seconds"]} | flatten(figures)
                numbers = {key: value for key, value in flat.items() if isinstance(value, int | float) and not isinstance(value, bool)}
                assert {key: value for key, value in shown.items() if not key.startswith(CURVES)} == numbers, run.info.run_name
                made[run.info.run_name] = run
    return made


def write_params(lab: Lab, raw: dict, own: dict | None = None) -> None:
    """Write the params of the tiny project, each study into its own file, with `own` tokenizers and encodings in that of all studies."""
    of_studies = {key: value for key, value in raw.items() if key in params.OF_STUDIES} | (own or {})
    write_studies(lab.path, of_studies.pop("studies", {}))
    main = {key: value for key, value in raw.items() if key not in params.OF_STUDIES}
    for path, part in ((params.FILE, main), (params.STUDIES, of_studies)):
        with open(lab.path / path, "w") as file:
            YAML().dump(part, file)


def ran(folder: Path, raw: dict, name: str, cost: dict, **metrics) -> None:
    """Leave what a stage that has run with these params leaves: its metrics, its entry in dvc.lock."""
    kind, _, own = name.partition("@")
    path = folder / f"data/metrics/{kind}/{own}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = registry.entry(params.check(raw), kind, own).settings
    path.write_text(json.dumps(metrics | {"cost": cost, "settings": settings}))
    lock = folder / "dvc.lock"
    stages = YAML(typ="safe").load(lock)["stages"] if lock.exists() else {}
    outs = [{"path": str(path.relative_to(folder)), "size": 100}, {"path": f"data/models/{own}", "size": 5_000_000}]
    stages[name] = {"cmd": "x", "outs": outs}
    with lock.open("w") as file:
        YAML(typ="safe").dump({"schema": "2.0", "stages": stages}, file)


def dvc(lab: Lab, *args: str, **env: str) -> str:
    """DVC alone, without `sesame`; its output. Forked where the lab's stages are."""
    python = Path(lab.env.get(PYTHON, BIN / "python")).parent
    environment = {"PATH": f"{python}:{BIN}:/usr/bin:/bin", "SESAME_TRACKING": "off", "HOME": str(lab.path)} | env
    if lab.forks is None or python != lab.forks:
        return subprocess.run([BIN / "dvc", *args], cwd=lab.path, check=True, capture_output=True, text=True, env=environment).stdout
    with TemporaryFile("w+") as said, TemporaryFile("w+") as complained:
        outputs = said.fileno(), complained.fileno()
        status = Command(f"{lab.forks}/stages", ["-m", "dvc", *args], str(lab.path), environment, outputs).wait()
        said.seek(0)
        complained.seek(0)
        assert status == 0, complained.read()
        return said.read()


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("template")
    for command in (
        ["git", "init", "-q"], ["git", "config", "user.email", "lab@example.org"], ["git", "config", "user.name", "lab"],
        [BIN / "dvc", "init", "-q"],
    ):  # fmt: skip
        subprocess.run(command, cwd=path, check=True, env=os.environ | {"DVC_NO_ANALYTICS": "1"})
    (path / ".dvc/config").write_text("[core]\n    analytics = false\n    check_update = false\n")
    shutil.copy(ROOT / "params.yaml", path)
    (path / ".gitignore").write_text("/.sesame/\n/mlflow.db*\n/mlartifacts/\n*.out\n")
    subprocess.run(["git", "add", "-A"], cwd=path, check=True)
    subprocess.run(["git", "commit", "-qm", "lab"], cwd=path, check=True)
    return path


@pytest.fixture(scope="session")
def server(template, tmp_path_factory) -> Iterator[str]:
    """The address of the API of a Prefect server of our own."""

    def services(code: str, lab: Path) -> str:  # not by the command, which a params.yaml being edited would keep from stopping the server
        code = f"from pipelines.machines import services; print(services.{code})"
        environment = os.environ | {"PREFECT_API_URL": ""}
        return subprocess.run([sys.executable, "-c", code], cwd=lab, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(folder: Path) -> str:
        return services("up(services.PREFECT)", shutil.copytree(template, folder / "lab")).strip() + "/api"

    def stop(_: str, folder: Path) -> None:
        services("down()", folder / "lab")
        assert Lab(folder / "lab", {}).processes() == []

    with shared(tmp_path_factory, "server", start, stop) as address:
        yield address


@pytest.fixture
def bare(template, tmp_path) -> Iterator[Lab]:
    """A lab without servers, with the ledger switched off. Servers that a test starts in it end with the test."""
    path = Path(shutil.copytree(template, tmp_path / "lab"))
    lab = Lab(path, {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "SESAME_TRACKING": "off"})
    yield lab
    for process in lab.processes():
        if process.pid != os.getpid():  # a test may still stand in its lab
            process.kill()


@pytest.fixture
def lab(bare, forking, server) -> Lab:
    """A lab that uses the session's Prefect server, which comes up while the libraries are imported to fork commands off."""
    bare.env["PREFECT_API_URL"], bare.forks = server, forking
    return bare


@pytest.fixture
def many_stages(lab) -> Lab:
    """A lab whose stages are forked, too: for many stages that are not killed."""
    lab.env[PYTHON] = str(lab.forks / "python")
    return lab


@pytest.fixture
def many_flows(lab) -> Lab:
    """A lab whose flows are forked whoever starts them, and whose stages are real."""
    lab.env[PYTHON] = str(lab.forks / "flows/python")
    return lab


@pytest.fixture
def inside(bare, monkeypatch) -> Lab:
    """A lab that the test process itself stands in."""
    monkeypatch.chdir(bare.path)
    return bare
