"""The MLflow run of a stage: the ledger's one writer.

Runs are children of the flow's run, when there is one (environment variable `SESAME_PARENT_RUN`).
A ledger that can't be reached costs a clear line, never the stage's work. MLflow is imported only where
a run is opened, since that takes 1.5 s.
"""

import getpass
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from components.core.errors import SesameError, without_secrets

EXPERIMENT = "sesame"
PARENT = "SESAME_PARENT_RUN"
"""In the environment of a stage: the id of its flow's run."""
FLOW = "flow"
"""The tag with that id on every run that the flow brings about, at whatever depth: MLflow's page filters by tags, and shows one parent."""
IDLE = "idle_seconds"
"""The tag of a run that goes on after it was stopped: how long nobody was at work between its start and its end."""
USER = "SESAME_USER"
"""In the environment: the name that stands at runs, where it is not the system's."""
OFF = "SESAME_TRACKING"
"""`SESAME_TRACKING=off` records nothing (tests, debugging)."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Opens MLflow's page of an experiment on its runs; without it on an overview for applications of language models, which is empty here."""
WRITTEN = tuple(f":(exclude){path}" for path in ("data", "dvc.lock", "**/dvc.lock", "studies/trainings.json"))
"""What a run changes of the files that git has: results belong to the commit of the code and params that they came from."""
CURVES = "curves/"
"""Before the names of what is logged at several steps; MLflow's page shows such names together."""
PATIENCE = 5
"""Seconds that a database server gets to answer."""


def uri() -> str:
    """`MLFLOW_TRACKING_URI`, or `mlflow.db` in the project's folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').resolve()}"


def user() -> str:
    """Whose runs these are: who started the flow, on whatever machine its stages run."""
    with suppress(OSError, KeyError):  # a container's user may have no name
        return os.environ.get(USER) or getpass.getuser()
    return ""


def flatten(value: dict, prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`; lists become text."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def unusable(error: Exception) -> str:
    """That the ledger can't be used, and why, in one line without secrets."""
    lines = without_secrets(str(error)).strip().splitlines() or [type(error).__name__]
    named = "; start it, or unset MLFLOW_TRACKING_URI" if os.environ.get("MLFLOW_TRACKING_URI") else ""
    return without_secrets(f"MLflow at {uri()} is not usable: {lines[0][:200]}{named}")


def connected():
    """The MLflow client for a command that can do nothing without it. Raises SesameError when the ledger can't be reached."""
    try:
        return client()
    except Exception as error:  # whatever MLflow and the driver of its database raise
        raise SesameError(unusable(error)) from None


def _answers(address: str) -> None:
    """Raises what the driver raises when a database server does not answer: MLflow itself would try for two minutes."""
    import sqlalchemy

    place = sqlalchemy.make_url(address)
    if place.get_backend_name() in ("postgresql", "mysql", "mssql"):
        limit = {"timeout" if place.get_backend_name() == "mssql" else "connect_timeout": PATIENCE}
        engine = sqlalchemy.create_engine(place, connect_args=limit)
        engine.connect().close()
        engine.dispose()


@cache
def client():
    """The MLflow client, its database and experiment in place. Raises whatever MLflow raises when it is not reachable."""
    # Before MLflow is imported, which brings git: a stage must not wait for a ledger that is away, nor tell strangers that it ran.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import logging

    import mlflow

    ours = not os.environ.get("MLFLOW_TRACKING_URI")  # which `set_tracking_uri` sets
    if ours and "?" in uri():  # it would write to the file whose name ends there, beside the checkout
        raise SesameError("SQLAlchemy reads a path up to its `?`; rename the folder, or set MLFLOW_TRACKING_URI")

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    Path(".sesame").mkdir(exist_ok=True)
    local = not uri().startswith("http")
    if local:
        _answers(uri())
    with FileLock(".sesame/mlflow.lock"):  # processes that create the tables at the same time crash each other
        mlflow.set_tracking_uri(uri())
        made = mlflow.MlflowClient()
        experiment = made.get_experiment_by_name(EXPERIMENT)
        if experiment is None:  # a server knows its own place
            made.create_experiment(EXPERIMENT, Path("mlartifacts").resolve().as_uri() if local else None, tags=KIND)
        elif not KIND.items() <= experiment.tags.items():  # made before the page asked for it
            for key, value in KIND.items():
                made.set_experiment_tag(experiment.experiment_id, key, value)
        if experiment and ours:
            _follow(experiment.artifact_location)
    return made


ADDRESSES = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "source"), ("model_versions", "storage_location"),
)  # fmt: skip
"""Tables and columns where MLflow keeps addresses of files."""


def _follow(before: str) -> None:
    """Give a checkout that was moved, or copied, its files again: MLflow makes even relative addresses absolute."""
    import sqlalchemy

    now = Path("mlartifacts").resolve().as_uri()
    if before == now or not Path("mlartifacts").is_dir():
        return
    engine = sqlalchemy.create_engine(uri())
    with engine.begin() as database:
        for table, column in ADDRESSES:
            follows = f"{column} = :now || substr({column}, :rest) WHERE substr({column}, 1, :rest - 1) = :before"
            change = sqlalchemy.text(f"UPDATE {table} SET {follows}")
            database.execute(change, {"now": now, "before": before, "rest": len(before) + 1})
    engine.dispose()


def git_commit() -> str:
    """The commit of the checkout; with `-dirty` when tracked files differ from it, those aside that stages write; empty outside git."""
    commit = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True, text=True).stdout.strip()
    if not commit:
        return ""
    differs = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", *WRITTEN], capture_output=True).returncode
    return commit + "-dirty" * bool(differs)


def _read_by_dvc(address: str) -> list:
    """The data that a stage depends on, for `log_inputs`; its settings are the run's params."""
    from dvc.repo import Repo
    from mlflow.entities import Dataset, DatasetInput, InputTag

    file, _, name = address.rpartition(":")
    with Repo(os.environ["DVC_ROOT"]) as repo:
        # the place is said from the project's folder: it holds wherever that is
        deps = repo.stage.load_one(file or "dvc.yaml", name).deps
        files = [dep for dep in deps if dep.protocol == "local" and not dep.def_path.startswith("data/resolved/")]
        read = {Path(dep.fs_path).relative_to(repo.root_dir).as_posix(): dep.get_hash().value for dep in files}
    kind = [InputTag("mlflow.data.context", "input")]
    sets = [Dataset(path.removeprefix("data/"), md5, "local", json.dumps({"uri": path})) for path, md5 in read.items()]
    return [DatasetInput(dataset, kind) for dataset in sets]


NEEDED = (
    "torch", "safetensors", "sentencepiece", "tokenizers", "numpy", "pandas", "pydantic", "ruamel.yaml", "filelock", "mlflow",
    "cloudpickle",
)  # fmt: skip
"""Packages that loading and reading a model takes."""


def log_model(run_id: str, folder: Path, name: str, **more: str):
    """Log a model of data/models with the code that reads it: whoever loads it needs packages and no checkout."""
    import mlflow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow asks for type hints, and for an example beside the signature
        return _log_model(mlflow, run_id, folder, name, **more)


def _log_model(mlflow, run_id: str, folder: Path, name: str, **more: str):
    from components.notebook import served

    # without the `+cpu` of a build, which no index has
    needed = [f"{package}=={version(package).partition('+')[0]}" for package in NEEDED]
    ours = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as code, mlflow.start_run(run_id=run_id, log_system_metrics=False):
        shutil.copytree(ours, Path(code, ours.name), ignore=shutil.ignore_patterns("__pycache__", "*.schema.json"))
        return mlflow.pyfunc.log_model(
            name=name, python_model=str(Path(served.__file__)), artifacts={"model": str(folder)}, code_paths=[str(Path(code, ours.name))],
            pip_requirements=needed, signature=served.SIGNATURE, **more,
        )  # fmt: skip


LONGEST = 6000
"""Characters of a parameter that MLflow keeps."""


def shortened(value: str) -> str:
    """A parameter that MLflow takes: of a longer one the beginning and a digest, so that two values stay two."""
    if len(value) <= LONGEST:
        return value
    return f"{value[: LONGEST - 100]}... ({len(value):,} characters, md5 {hashlib.md5(value.encode()).hexdigest()})"


class Run:
    """One run of the ledger. With `run_id` None it records nothing."""

    def __init__(self, run_id: str | None):
        self.id = run_id

    def log(self, metrics: dict, step: int | None = None) -> None:
        """Log the numbers of a nested dictionary: final figures, or with a step a point of the curves `curves/<name>`.

        What is not a number is left out. Of several points under one name MLflow shows that of the highest step, which
        would be the last validation's and not the report's figure: hence two names.
        """
        if self.id is None:
            return
        from mlflow.entities import Metric

        now, prefix = int(time.time() * 1000), "" if step is None else CURVES
        points = [
            Metric(prefix + key, float(value), now, step or 0) for key, value in flatten(metrics).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]  # fmt: skip
        for i in range(0, len(points), 1000):  # the most one call takes
            self.attempt(lambda ledger, batch=points[i : i + 1000]: ledger.log_batch(self.id, metrics=batch))

    def params(self, params: dict) -> None:
        """Log a nested dictionary as flattened parameters."""
        from mlflow.entities import Param

        shown = [(key, shortened(without_secrets(str(value)))) for key, value in flatten(params).items()]
        for i in range(0, len(shown), 100):  # the most one call takes
            batch = shown[i : i + 100]
            self.attempt(lambda ledger, batch=batch: ledger.log_batch(self.id, params=[Param(key, value) for key, value in batch]))

    def inputs(self) -> None:
        """Log the data that DVC has this stage read, whoever started DVC: name, hash and place in the project."""
        if "DVC_STAGE" in os.environ:
            self.attempt(lambda ledger: ledger.log_inputs(self.id, _read_by_dvc(os.environ["DVC_STAGE"])))

    def tag(self, **tags: str) -> None:
        """Set tags."""
        for key, value in tags.items():
            self.attempt(lambda ledger, key=key, value=value: ledger.set_tag(self.id, key, value))

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a file or the files of a folder to the run."""
        if path.is_dir():
            self.attempt(lambda ledger: ledger.log_artifacts(self.id, str(path), folder))
        else:
            self.attempt(lambda ledger: ledger.log_artifact(self.id, str(path), folder))

    def figure(self, figure, name: str) -> None:
        """Keep a matplotlib figure as `name`."""
        self.attempt(lambda ledger: ledger.log_figure(self.id, figure, name))

    def model(self, folder: Path, name: str) -> None:
        """Keep a model of data/models so that `mlflow.pyfunc.load_model("runs:/<id>/<name>")` gives it back anywhere."""
        self.attempt(lambda _: log_model(self.id, folder, name))

    @contextmanager
    def child(self, name: str, tags: dict[str, str], params: dict) -> Iterator["Run"]:
        """A run below this one, e.g. one seed."""
        with _open(name, tags, params, parent=self.id, enabled=self.id is not None) as run:
            yield run

    def attempt(self, action: Callable) -> None:
        """Do it if there is a ledger; if that fails, say so once and go on without."""
        if self.id is None:
            return
        try:
            action(client())
        except Exception as error:  # any failure of the ledger: the work goes on
            _lost(error)
            self.id = None


def _left(ledger, run_id: str):
    """The run of a killed attempt; None where somebody has deleted it, or the ledger is another one by now."""
    from mlflow.exceptions import MlflowException

    try:
        run = ledger.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return run if run.info.lifecycle_stage == "active" else None


def _last_sign(ledger, run) -> int:
    """When an attempt ended, in milliseconds; of one that was killed hard, when it last logged a figure, or began."""
    points = (point for key in run.data.metrics for point in ledger.get_metric_history(run.info.run_id, key))
    return run.info.end_time or max((point.timestamp for point in points), default=run.info.start_time)


def _lost(error: Exception) -> None:
    print(f"warning: {unusable(error)} (this run is not recorded there; results are in data/)", file=sys.stderr, flush=True)


@contextmanager
def _open(name: str, tags: dict[str, str], params: dict, parent: str | None, enabled: bool, run_id: str | None = None) -> Iterator[Run]:
    run = Run(None)
    flow = {FLOW: os.environ[PARENT]} if os.environ.get(PARENT) else {}
    if enabled:
        try:
            ledger = client()
            if run_id is None or (left := _left(ledger, run_id)) is None:
                tags = (
                    tags | {"git_commit": git_commit(), "mlflow.user": user()} | ({"mlflow.parentRunId": parent} if parent else {}) | flow
                )
                experiment = ledger.get_experiment_by_name(EXPERIMENT)
                run_id = ledger.create_run(experiment.experiment_id, run_name=name, tags=tags).info.run_id
                run = Run(run_id)
                run.params(params)
            else:  # the run of a killed attempt goes on, below the flow that brought about this one
                ledger.update_run(run_id, status="RUNNING")
                run = Run(run_id)
                idle = float(left.data.tags.get(IDLE, 0)) + time.time() - _last_sign(ledger, left) / 1000
                run.tag(**{IDLE: f"{idle:.3f}"})
                if parent:
                    run.tag(**{"mlflow.parentRunId": parent} | flow)
        except Exception as error:  # any failure of the ledger: the work goes on
            _lost(error)
            run = Run(None)
    status = "FAILED"  # unless the work comes to its end
    try:
        yield run
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        run.attempt(lambda ledger: ledger.set_terminated(run.id, status))


@contextmanager
def start(name: str, tags: dict[str, str], params: dict, enabled: bool = True, run_id: str | None = None) -> Iterator[Run]:
    """The run of a stage, below the flow's run where there is one; `run_id` continues the run of a killed attempt."""
    with _open(name, tags, params, os.environ.get(PARENT), enabled and os.environ.get(OFF) != "off", run_id) as run:
        yield run
