"""What docs/compose.yaml starts, with its own commands and settings, as processes: passwords, PostgreSQL, artifacts in a bucket."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import boto3
import pytest
import requests
from ruamel.yaml import YAML

from pipelines.execution import processes
from pipelines.machines import services
from tests.conftest import s3_server
from tests.pipelines.conftest import BIN, ROOT
from tests.pipelines.test_servers import postgresql  # noqa: F401, a fixture
from tests.pipelines.test_services import STEP, STEPS
from tests.waiting import until

DATABASES = ("prefect", "mlflow", "mlflow_users")
SECRETS = {
    "HOST": "127.0.0.1", "POSTGRES_PASSWORD": "any", "PREFECT_AUTH": "lab:s3cret", "MLFLOW_PASSWORD": "password1234567",
    "MLFLOW_SECRET": "any long text", "BUCKET_PASSWORD": "test",
}  # fmt: skip


@pytest.fixture
def store() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.mark.cluster
def test_compose(bare, postgresql, store, tmp_path, monkeypatch):  # noqa: F811
    """A flow with passwords leaves its runs, under a name, and its files there; one without, or with a server gone, says so in a line."""
    for name, value in {"AWS_ACCESS_KEY_ID": "sesame", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=store).create_bucket(Bucket="mlflow")
    text = (ROOT / "docs/compose.yaml").read_text()
    compose, ports = YAML(typ="safe").load(text), {"prefect": services._free(0), "mlflow": services._free(0)}
    assert set(re.findall(r"\$\{(\w+)", text)) == set(SECRETS) and all(name in text.partition("x-python")[0] for name in SECRETS)

    def filled(text: str) -> str:
        """As Docker fills variables in, and with this machine's addresses in place of its network's."""
        text = re.sub(r"\$\{(\w+)[^}]*\}", lambda own: SECRETS[own[1]], text)
        text = text.replace("@postgresql:5432", f"@127.0.0.1:{postgresql.place['port']}").replace("http://bucket:9000", store)
        text = text.replace("/auth.ini", str(tmp_path / "auth.ini"))
        return re.sub(r"\b(4200|5000)\b", lambda own: str(ports["prefect" if own[0] == "4200" else "mlflow"]), text)

    (tmp_path / "auth.ini").write_text(filled(compose["configs"]["auth"]["content"]))
    postgresql.call("dropdb", "mlflow")  # the fixture's own
    postgresql.call("psql", "-q", "postgres", *(f"--command={text};" for text in compose["configs"]["databases"]["content"].split(";")))

    started: dict[str, subprocess.Popen] = {}

    def up() -> None:
        """Both servers, until they are well."""
        for name, port in ports.items():
            service = compose["services"][name]
            command = [*shlex.split(filled(service["command"][-1]).partition("exec ")[2]), "--port", str(port)]
            own = {key: filled(value) for key, value in service["environment"].items()}
            with open(tmp_path / f"{name}.log", "w") as log:
                environment = os.environ | {"PREFECT_HOME": str(tmp_path / "home")} | own
                started[name] = subprocess.Popen(
                    [BIN / command[0], *command[1:]], env=environment, stdout=log, stderr=log, start_new_session=True
                )
        for name in ports:
            check = filled(compose["services"][name]["healthcheck"]["test"][-1])
            until(lambda check=check: subprocess.run([sys.executable, "-c", check], capture_output=True).returncode == 0)

    try:
        up()
        bare.env |= {"PREFECT_API_URL": f"http://127.0.0.1:{ports['prefect']}/api", "SESAME_TRACKING": "", "SESAME_USER": "ada"}
        bare.env["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{ports['mlflow']}"
        bare.write("step.py", textwrap.dedent(STEP)).stages(STEPS)
        assert "asks for a password: set PREFECT_API_AUTH_STRING" in bare.sesame("run", code=1)
        bare.env["PREFECT_API_AUTH_STRING"] = "lab:s3cret"
        output = bare.sesame("run")  # without MLflow's password
        assert "3 stages: 0 cached, 3 done" in output and "is not usable" in output
        bare.env |= {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "password1234567"}
        output = bare.sesame("run", "--force")
        assert "3 stages: 0 cached, 3 done" in output and "is not usable" not in output
        search, user = f"{bare.env['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/search", ("admin", "password1234567")
        assert requests.post(search, json={"experiment_ids": ["1"]}).status_code == 401
        runs = requests.post(search, json={"experiment_ids": ["1"]}, auth=user).json()["runs"]
        assert len(runs) == 4 and {run["info"]["user_id"] for run in runs} == {"ada"}
        kept = boto3.client("s3", endpoint_url=store).list_objects_v2(Bucket="mlflow")["Contents"]
        assert any(item["Key"].endswith("artifacts/dvc.lock") for item in kept)

        dumps = [f"--file={postgresql.folder}/{name}.sql" for name in DATABASES]
        for name, dump in zip(DATABASES, dumps, strict=True):
            postgresql.call("pg_dump", dump, name)
        steps = bare.read("dvc.yaml")
        bare.stages('  step: {cmd: "touch begun; while [ ! -e go ]; do sleep 0.1; done; touch d.out", outs: [d.out]}\n')
        run = bare.start("run")
        until((bare.path / "begun").exists)
        postgresql.stop()
        (bare.path / "go").touch()
        output = run.communicate(timeout=60)[0]
        assert run.returncode == 1 and "Prefect's server answers 50" in output and "Traceback" not in output
        processes.stop([process.pid for process in started.values()], processes.FIRM)
        postgresql.start()
        for name, dump in zip(DATABASES, dumps, strict=True):
            postgresql.call("dropdb", name)
            postgresql.call("createdb", name)
            postgresql.call("psql", "-q", "--set=ON_ERROR_STOP=1", dump, name)
        up()
        assert requests.post(search, json={"experiment_ids": ["1"]}, auth=user).json()["runs"] == runs
        assert "1 stage: 1 cached" in bare.sesame("run"), "done, though nobody could write down that it was"
        bare.write("dvc.yaml", steps)

        processes.stop([started["mlflow"].pid], processes.FIRM)
        output = bare.sesame("run", "--force")
        assert "3 stages: 0 cached, 3 done" in output and "is not usable" in output
    finally:
        processes.stop([process.pid for process in started.values()], processes.FIRM)
