"""Real servers behind the pipeline: PostgreSQL under Prefect and MLflow, DVC remotes in a folder and in S3."""

import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import boto3
import psycopg2
import pytest
import requests

from pipelines.machines import services
from tests.conftest import s3_server
from tests.pipelines.conftest import BIN, Lab
from tests.pipelines.test_services import STEP

pytestmark = pytest.mark.long

STEPS = """
  first: {cmd: python step.py a, deps: [step.py], outs: [a.out]}
  second: {cmd: python step.py b, deps: [step.py, a.out], outs: [b.out]}
"""


class PostgreSQL:
    """A cluster of Debian's PostgreSQL on loopback."""

    def __init__(self, programs: Path, folder: str):
        self.programs, self.folder = programs, folder
        self.place = {"host": "127.0.0.1", "port": services._free(0), "user": "sesame"}
        self.environment = {"PGHOST": self.place["host"], "PGPORT": str(self.place["port"]), "PGUSER": self.place["user"]}
        self.call("initdb", "-D", "data", "--auth=trust", "--username=sesame", "--no-sync", "--encoding=UTF8")

    def call(self, name: str, *args: str) -> None:
        root = os.geteuid() == 0  # whom initdb refuses
        done = subprocess.run(
            [self.programs / name, *args], cwd=self.folder, env=os.environ | self.environment, user="postgres" if root else None, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        options = f"-p {self.place['port']} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self.call("pg_ctl", "-D", "data", "-l", "log", "-o", options, "-w", "start")

    def stop(self) -> None:
        """As by `kill -9`."""
        self.call("pg_ctl", "-D", "data", "-m", "immediate", "stop")


@pytest.fixture
def postgresql() -> Iterator[PostgreSQL]:
    """With the databases `prefect` and `mlflow`."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("Debian's package `postgresql` is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own is closed to other users
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        cluster = PostgreSQL(found[-1], folder)
        cluster.start()
        try:
            for name in ("prefect", "mlflow"):
                cluster.call("createdb", name)
            yield cluster
        finally:
            cluster.stop()


def rows(place: dict, database: str, query: str) -> set[tuple]:
    with psycopg2.connect(**place, dbname=database) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return set(cursor.fetchall())


def test_postgresql(bare, postgresql):
    """docs/operations.md: two variables, and both servers keep what they know there."""
    address = "{user}:s3cret@{host}:{port}".format(**postgresql.place)
    bare.env["PREFECT_API_DATABASE_CONNECTION_URL"] = f"postgresql+asyncpg://{address}/prefect"
    bare.env |= {"MLFLOW_TRACKING_URI": f"postgresql://{address}/mlflow", "SESAME_TRACKING": ""}
    bare.write("step.py", textwrap.dedent(STEP)).stages(STEPS)
    assert "2 stages: 0 cached, 2 done, 0 failed" in bare.sesame("run")
    bare.until(lambda: len(rows(postgresql.place, "prefect", "select name from task_run where state_name = 'Completed'")) == 2)
    assert rows(postgresql.place, "prefect", "select name, state_name from task_run") == {("first", "Completed"), ("second", "Completed")}
    [(flow, state)] = rows(postgresql.place, "prefect", "select name, state_name from flow_run")
    assert state == "Completed"
    runs = rows(postgresql.place, "mlflow", "select name, status, artifact_uri from runs")
    assert {(name, status) for name, status, _ in runs} == {(name, "FINISHED") for name in (flow, "step@a", "step@b")}
    assert all(uri.startswith(f"file://{bare.path}/mlartifacts/") for _, _, uri in runs)
    assert rows(postgresql.place, "mlflow", "select key, value from latest_metrics where key = 'length'") == {("length", 1.0)}
    pages = {name: page.partition("/#")[0] for name, page in (line.split() for line in bare.up().splitlines())}
    try:
        found = requests.get(f"{pages['mlflow']}/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": "sesame"})
        assert found.json()["experiment"]["name"] == "sesame"
        assert not any("s3cret" in " ".join(process.cmdline()) for process in bare.processes()), "any user may list processes"
        assert not list(bare.path.glob(".sesame/prefect/*.db")) and not (bare.path / "mlflow.db").exists()
    finally:
        bare.sesame("down")


def run(lab: Lab, *command: str | Path) -> None:
    done = subprocess.run(command, cwd=lab.path, env=os.environ | lab.env, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["folder", "s3"])
def remote(request, lab, tmp_path) -> Iterator[list[list[str]]]:
    """The commands that name a DVC remote of each kind."""
    if request.param == "folder":
        yield [["remote", "add", "--default", "store", str(tmp_path / "store")]]
        return
    lab.env |= {"AWS_ACCESS_KEY_ID": "sesame", "AWS_SECRET_ACCESS_KEY": "sesame", "AWS_DEFAULT_REGION": "us-east-1"}
    keys = {"aws_access_key_id": "sesame", "aws_secret_access_key": "sesame", "region_name": "us-east-1"}
    with s3_server() as address:
        boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket="lab")
        yield [["remote", "add", "--default", "store", "s3://lab/sesame"], ["remote", "modify", "store", "endpointurl", address]]


def test_a_remote(lab, remote, tmp_path):
    """Built in one clone, pushed, pulled in another, and nothing is left to do there."""
    lab.write("in", "text").stages("""
  first: {cmd: echo ran >> ran; cat in > a.out, deps: [in], outs: [a.out]}
  second: {cmd: echo ran >> ran; cat a.out > b.out, deps: [a.out], outs: [b.out]}
""")
    lab.write("studies/dvc.yaml", "stages: {study: {wdir: .., cmd: cat in > c.out, deps: [in], outs: [c.out]}}\n")  # not run
    for command in remote:
        run(lab, BIN / "dvc", *command)
    assert "2 stages: 0 cached, 2 done" in lab.sesame("run")
    for command in (["git", "add", "-A"], ["git", "commit", "-qm", "built"], [BIN / "dvc", "push"]):
        run(lab, *command)
    (lab.path / "ran").unlink()
    shutil.rmtree(lab.path / ".dvc/cache")  # it can come from the remote only

    run(lab, "git", "clone", "-q", lab.path, tmp_path / "other")
    other = Lab(tmp_path / "other", lab.env)
    (other.path / "ran").unlink()
    run(other, BIN / "dvc", "pull", "dvc.yaml")
    assert other.read("b.out") == "text"
    assert "2 stages: 2 cached, 0 done" in other.sesame("run") and not (other.path / "ran").exists()
