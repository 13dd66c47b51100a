"""The MLflow run of a stage; only this module writes to MLflow.

Runs are children of the flow's run, if there is one (environment variable `SESAME_PARENT_RUN`). If MLflow can't be reached, a line is
printed and the stage runs on. MLflow is imported only where a run is opened, since that takes 1.5 s.
"""

import getpass
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from components.core.errors import SesameError, without_secrets
from components.core.mlflow_values import CURVES, as_metrics, flatten, named, shortened

EXPERIMENT = "sesame"
PARENT = "SESAME_PARENT_RUN"
"""Environment variable of a stage: the id of its flow's run."""
FLOW = "flow"
"""Tag with that id on all runs of a flow, at any depth: MLflow's page filters by tags, and shows only the direct parent."""
IDLE = "idle_seconds"
"""Tag of a resumed run: how long no process ran between its start and its end."""
USER = "SESAME_USER"
"""Environment variable with the user name of runs, if it is not the system's."""
OFF = "SESAME_TRACKING"
"""`SESAME_TRACKING=off` records nothing (tests, debugging)."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Shows the runs first on MLflow's page of the experiment, not an overview for LLM applications."""
WRITTEN = tuple(f":(exclude){path}" for path in ("data", "dvc.lock", "**/dvc.lock", "studies/trainings.json"))
"""Tracked files that a run changes: results belong to the commit of the code and params that produced them."""


def uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, or `mlflow.db` in the checkout."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _own_database()


def _own_database() -> str:
    return f"sqlite:///{checkout() / 'mlflow.db'}"


def database() -> Path | None:
    """Return the SQLite database that MLflow is in; None if it is a server or another database."""
    return Path(uri().removeprefix("sqlite:///")) if uri().startswith("sqlite:///") else None


def is_off() -> bool:
    """Return whether nothing is recorded."""
    return os.environ.get(OFF) == "off"


def checkout() -> Path:
    """Return the current folder. DVC runs a queued experiment in a copy, which it deletes: then return the folder that was copied."""
    here = Path.cwd()
    root = Path(os.environ.get("DVC_ROOT", here)).resolve()
    return root if here.is_relative_to(root / ".dvc/tmp/exps") else here


def user() -> str:
    """Return the user who started the flow, on whatever machine its stages run."""
    with suppress(OSError, KeyError):  # a container's user may have no name
        return os.environ.get(USER) or getpass.getuser()
    return ""


def unusable(error: Exception) -> str:
    """Return an error line, without secrets, that says why MLflow can't be used."""
    lines = without_secrets(str(error)).strip().splitlines() or [type(error).__name__]
    lines = [line for line in lines if not line.startswith("(raised as a result of")] or lines  # SQLAlchemy's, before the error itself
    # MLflow itself sets the variable, too
    advice = "; start it, or unset MLFLOW_TRACKING_URI" if uri() != _own_database() else ""
    if not advice and re.search("not a database|malformed", lines[0]):
        advice = "; move mlflow.db away, and a new one is made, or restore a copy"
    return without_secrets(f"MLflow at {uri()} is not usable: {lines[0][:200]}{advice}")


def connected():
    """Return the MLflow client for a command that needs it. Raise SesameError if MLflow can't be reached."""
    try:
        return client()
    except Exception as error:  # of MLflow or the driver of its database
        raise SesameError(unusable(error)) from None


@cache
def client():
    """Return the MLflow client, with database and experiment created. Raise MLflow's error if it is not reachable."""
    # Set before MLflow is imported, which imports git: a stage must not wait for a missing server, nor send telemetry.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import logging

    import mlflow

    from components.core import databases  # SQLAlchemy, only where a run is opened

    ours = uri() == _own_database()
    if ours and "?" in uri():  # SQLAlchemy would write to a file whose name ends there, outside the checkout
        raise SesameError("SQLAlchemy reads a path up to its `?`; rename the folder, or set MLFLOW_TRACKING_URI")

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it logs each error with its traceback, and raises it
    private = checkout() / ".sesame"
    private.mkdir(exist_ok=True)
    local = not uri().startswith("http")
    if local:
        databases.check(uri())
    with FileLock(private / "mlflow.lock"):  # processes that create the tables at the same time make each other fail
        mlflow.set_tracking_uri(uri())
        created = mlflow.MlflowClient()
        experiment = created.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            try:  # a server has its own folder for artifacts
                created.create_experiment(EXPERIMENT, (checkout() / "mlartifacts").as_uri() if local else None, tags=KIND)
            except mlflow.MlflowException as error:
                # Another checkout was first, or MLflow sent the request again when a slow server had already followed it.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
        elif not KIND.items() <= experiment.tags.items():  # created by an older version
            for key, value in KIND.items():
                created.set_experiment_tag(experiment.experiment_id, key, value)
        if experiment and ours:
            databases.update_addresses(uri(), experiment.artifact_location, checkout() / "mlartifacts")
    return created


def git_commit() -> str:
    """Return the commit of the checkout, with `-dirty` if tracked files other than those of `WRITTEN` differ; empty outside git."""
    commit = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True, text=True).stdout.strip()
    if not commit:
        return ""
    differs = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", *WRITTEN], capture_output=True).returncode
    return commit + "-dirty" * bool(differs)


def _dvc_inputs(address: str) -> list:
    """Return the data that a stage depends on, for `log_inputs`; its settings are the run's params."""
    from dvc.repo import Repo
    from mlflow.entities import Dataset, DatasetInput, InputTag

    file, _, name = address.rpartition(":")
    with Repo() as repo:  # that of the current folder: DVC_ROOT of a queued experiment is another one
        # paths are relative to the project's folder, so that they hold wherever it is
        deps = repo.stage.load_one(file or "dvc.yaml", name).deps
        files = [dep for dep in deps if dep.protocol == "local" and not dep.def_path.startswith("data/resolved/")]
        hashes = {Path(dep.fs_path).relative_to(repo.root_dir).as_posix(): dep.get_hash().value for dep in files}
    tags = [InputTag("mlflow.data.context", "input")]
    datasets = [Dataset(path.removeprefix("data/"), md5, "local", json.dumps({"uri": path})) for path, md5 in hashes.items()]
    return [DatasetInput(dataset, tags) for dataset in datasets]


class Run:
    """A run in MLflow. With `run_id` None it records nothing."""

    def __init__(self, run_id: str | None, resumed: bool = False):
        self.id = run_id
        self.resumed = resumed
        """Whether it continues the run of a killed attempt."""

    def log(self, metrics: dict, step: int | None = None) -> None:
        """Log the numbers of a nested dictionary: final metrics, or with a step points of the curves `curves/<name>`.

        Values that are no numbers are left out. Of several points with one name MLflow shows that of the highest step, which would be the
        last validation instead of the final metric: hence the prefix.
        """
        if self.id is not None:
            self._send(as_metrics(metrics, step))

    def curve(self, rows: Iterable[dict[str, float]]) -> None:
        """Log rows, each with its `step`, as points of the curves `curves/<name>`: as `log` does, in few calls."""
        if self.id is not None:
            points = (point for row in rows for point in as_metrics(row, int(row["step"])))
            self._send([point for point in points if point.key != f"{CURVES}step"])

    def _send(self, points: list) -> None:
        for i in range(0, len(points), 1000):  # the most one call takes
            self.attempt(lambda mlflow, batch=points[i : i + 1000]: mlflow.log_batch(self.id, metrics=batch))

    def params(self, params: dict) -> None:
        """Log a nested dictionary as flattened parameters."""
        from mlflow.entities import Param

        shown = [(name, shortened(without_secrets(str(value)))) for name, value in named(flatten(params))]
        for i in range(0, len(shown), 100):  # the most one call takes
            batch = shown[i : i + 100]
            self.attempt(lambda mlflow, batch=batch: mlflow.log_batch(self.id, params=[Param(key, value) for key, value in batch]))

    def inputs(self) -> None:
        """Log name, hash and path of the data that this stage reads according to DVC, whoever started DVC."""
        if "DVC_STAGE" in os.environ:
            self.attempt(lambda mlflow: mlflow.log_inputs(self.id, _dvc_inputs(os.environ["DVC_STAGE"])))

    def tag(self, **tags: str) -> None:
        for key, value in tags.items():
            self.attempt(lambda mlflow, key=key, value=value: mlflow.set_tag(self.id, key, value))

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a file or the files of a folder to the run."""
        if path.is_dir():
            self.attempt(lambda mlflow: mlflow.log_artifacts(self.id, str(path), folder))
        else:
            self.attempt(lambda mlflow: mlflow.log_artifact(self.id, str(path), folder))

    def figure(self, figure, name: str) -> None:
        """Store a matplotlib figure as `name`."""
        self.attempt(lambda mlflow: mlflow.log_figure(self.id, figure, name))

    def model(self, folder: Path, name: str) -> None:
        """Store a model of data/models, which `mlflow.pyfunc.load_model("runs:/<id>/<name>")` loads anywhere."""

        def log(_) -> None:
            from components.notebook.logged import log_model  # takes a second

            log_model(self.id, folder, name)

        self.attempt(log)

    @contextmanager
    def child(self, name: str, tags: dict[str, str], params: dict) -> Iterator["Run"]:
        """Open a run below this one, e.g. of one seed; or continue the one that a killed attempt left unfinished."""
        unfinished = self.attempt(lambda mlflow: _unfinished_child(mlflow, self.id, name)) if self.resumed else None
        with _open(name, tags, params, self.id, self.id is not None, unfinished) as run:
            yield run

    def attempt(self, action: Callable) -> Any:
        """Call `action` with the MLflow client and return what it returns; after a failure print one warning and stop
        recording."""
        if self.id is None:
            return None
        try:
            return action(client())
        except Exception as error:  # whatever fails in MLflow, the stage continues
            _warn(error)
            self.id = None
            return None


def _existing_run(mlflow, run_id: str):
    """Return the run of a killed attempt; None if it was deleted, or belongs to another MLflow."""
    from mlflow.exceptions import MlflowException

    try:
        run = mlflow.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return run if run.info.lifecycle_stage == "active" else None


def _unfinished_child(mlflow, parent: str, name: str) -> str | None:
    """Return the id of the run of this name below another one that did not end as it should."""
    experiment = mlflow.get_experiment_by_name(EXPERIMENT)
    below = f"tags.mlflow.parentRunId = '{parent}' and attributes.run_name = '{name}'"
    runs = mlflow.search_runs([experiment.experiment_id], f"{below} and attributes.status != 'FINISHED'", max_results=1)
    return runs[0].info.run_id if runs else None


def _last_activity(mlflow, run) -> int:
    """Return the end of an attempt in milliseconds; if it was killed, the time of its last metric, else its start."""
    points = (point for key in run.data.metrics for point in mlflow.get_metric_history(run.info.run_id, key))
    return run.info.end_time or max((point.timestamp for point in points), default=run.info.start_time)


def _warn(error: Exception) -> None:
    print(f"warning: {unusable(error)} (this run is not recorded there; results are in data/)", file=sys.stderr, flush=True)


@contextmanager
def _open(name: str, tags: dict[str, str], params: dict, parent: str | None, enabled: bool, run_id: str | None = None) -> Iterator[Run]:
    run = Run(None)
    # a run ends so long after it began as its work took: the time of day may be set back meanwhile
    opened, uptime = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    flow = {FLOW: os.environ[PARENT]} if os.environ.get(PARENT) else {}
    if enabled:
        try:
            mlflow = client()
            existing = _existing_run(mlflow, run_id) if run_id else None
            parents = {"mlflow.parentRunId": parent} | flow if parent else {}
            if existing is None:
                tags = tags | {"git_commit": git_commit(), "mlflow.user": user()} | parents | flow
                experiment = mlflow.get_experiment_by_name(EXPERIMENT)
                began = int(1000 * opened)
                run = Run(mlflow.create_run(experiment.experiment_id, run_name=name, tags=tags, start_time=began).info.run_id)
                run.params(params)
            else:  # continue the run of a killed attempt, below the flow of this one
                mlflow.update_run(run_id, status="RUNNING")
                run = Run(run_id, resumed=True)
                idle = float(existing.data.tags.get(IDLE, 0)) + opened - _last_activity(mlflow, existing) / 1000
                run.tag(**{IDLE: f"{idle:.3f}"}, **parents)
        except Exception as error:  # whatever fails in MLflow, the stage continues
            _warn(error)
            run = Run(None)
    status = "FAILED"  # unless the stage finishes
    try:
        yield run
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        ended = opened + time.clock_gettime(time.CLOCK_BOOTTIME) - uptime
        run.attempt(lambda mlflow: mlflow.set_terminated(run.id, status, end_time=int(1000 * ended)))


@contextmanager
def start(name: str, tags: dict[str, str], params: dict, enabled: bool = True, run_id: str | None = None) -> Iterator[Run]:
    """Open the run of a stage, below the flow's run if there is one; `run_id` continues the run of a killed attempt."""
    with _open(name, tags, params, os.environ.get(PARENT), enabled and not is_off(), run_id) as run:
        yield run
