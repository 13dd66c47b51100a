"""The flow's run in MLflow: the parent of its stages' runs, and the hashes of the data each of them read and wrote."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from components.core import tracking
from components.core.storage import STATE
from pipelines.execution import graph, mlflow_view

LOCKFILE = Path("dvc.lock")
TAGS = "SESAME_TAGS"
"""More tags of the flow's run, as JSON: a worktree run gives its experiment and its overrides here."""


MEASURED = "measured"
"""Prefix of a flow's metrics that are the machine's counters."""


def tags() -> dict[str, str]:
    """The tags that the environment adds to the flow's run."""
    return json.loads(os.environ.get(TAGS) or "{}")


class Ledger:
    """One flow's run in MLflow. When MLflow can't be reached it records nothing, and tells the stages not to try."""

    def __init__(self, run: tracking.Run):
        self._run = run
        self.stages: dict[str, str] = {}
        """Stage -> id of its run."""

    @property
    def env(self) -> dict[str, str]:
        """What the stages' processes get to know."""
        return {tracking.PARENT: self._run.id} if self._run.id else {tracking.OFF: "off"}

    @property
    def experiment(self) -> str | None:
        """The experiment's id; None without MLflow."""
        return tracking.client().get_experiment_by_name(tracking.EXPERIMENT).experiment_id if self._run.id else None

    def measured(self, kwh: Mapping[str, float]) -> None:
        """Keep what the machine's counters have of the flow, by kind; nothing where it has none."""
        self._run.log({MEASURED: {f"{kind}_kwh": energy for kind, energy in kwh.items()}})

    def record(self, stage: graph.Stage) -> None:
        """Tag the run that a stage left with the hashes of its data. The run itself is the stage's own work."""
        if self._run.id is None:
            return
        from mlflow.entities import RunTag
        from mlflow.exceptions import MlflowException

        tags = [RunTag(f"data.{path}", md5) for path, md5 in graph.hashes(stage).items()]
        mine = f"tags.mlflow.parentRunId = '{self._run.id}' and attributes.run_name = '{stage.name}' and attributes.status = 'FINISHED'"
        with suppress(MlflowException):  # a ledger lost on the way costs no stage its success; the parent's own writes say so
            for run in tracking.client().search_runs([self.experiment], mine, order_by=["attributes.start_time DESC"], max_results=1):
                self.stages[stage.name] = run.info.run_id  # the try of several that made the data
                tracking.client().log_batch(run.info.run_id, tags=tags)


@contextmanager
def opened(name: str, flow_run_id: str, targets: list[str]) -> Iterator[Ledger]:
    """The ledger of a flow. Its database is in place before any stage runs: processes that create it at once crash each other."""
    flow_tags = {"prefect_flow_run": flow_run_id, "dvc_lock_before": _md5()}
    with tracking.start(name, tags() | flow_tags, {"targets": " ".join(targets) or "all"}) as run:
        run.attempt(_close_left)
        run.attempt(lambda _: mlflow_view.save(targets, run.id))
        begun = run.id
        if begun:
            OPEN.write_text(begun)
        try:
            yield Ledger(run)
        finally:
            run.tag(dvc_lock=_md5())
            if LOCKFILE.exists():
                run.artifact(LOCKFILE)
            mlflow_view.recorded = run.id is not None
    if begun and run.id:
        OPEN.unlink(missing_ok=True)


OPEN = STATE / "mlflow_run"
"""Has the id of the flow's run while it is open; a checkout has one flow at a time."""


def _close_left(client) -> None:
    """Close the run of a flow that was killed, and those of its stages: nobody else does. When they ended nobody knows,
    and now, which may be days later, is no end."""
    if not OPEN.exists():
        return
    from mlflow.exceptions import MlflowException

    left = OPEN.read_text()
    OPEN.unlink()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    open_below = f"tags.{tracking.FLOW} = '{left}' and attributes.status = 'RUNNING'"
    below = client.search_runs([experiment.experiment_id], open_below)
    for run_id in (*(run.info.run_id for run in below), left):
        with suppress(MlflowException):  # one that somebody has deleted
            if client.get_run(run_id).info.status == "RUNNING":
                client.update_run(run_id, status="KILLED")


def _md5() -> str:
    return hashlib.md5(LOCKFILE.read_bytes()).hexdigest() if LOCKFILE.exists() else ""
