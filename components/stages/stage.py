"""The frame around the work of every stage: read params, write complete outputs, record cost and metrics, fail in one line.

A stage is a function of (its section of params, its input paths) to its output paths.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components import params as params_file
from components.core import processes, storage, tracking
from components.core.errors import OUT_OF_MEMORY, SesameError, one_line
from components.params import Params
from components.stages import cost, local_files, registry, resolve
from components.stages.outputs import read_json

Body = Callable[[Params, str, tracking.Run], dict[str, Any]]
"""(params, name, MLflow run) -> metrics: a nested dictionary of figures, None if undefined; counted costs under `cost`."""


def main(
    stage: str,
    body: Body,
    resumes: Callable[[Params, str], str | None] = lambda params, name: None,
    metrics_file: Callable[[Params, str], Path] | None = None,
    reads: Callable[[Params, str], list[Path]] | None = None,
) -> None:
    """Run one stage as `python -m components.<stage> [NAME]`.

    Exits with 2 if another try would fail too (SesameError), with 75 if it may not (Unreachable), with 1 otherwise.

    Args:
        resumes: The MLflow run that a killed attempt of the same work has left, to be continued.
        metrics_file: Where the metrics go, if not to `storage.metrics_path`.
        reads: For a stage that may run on several machines (`components.stages.launch`): the inputs that all must share.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else "all"
    label = f"{stage}@{name}" if len(sys.argv) > 1 else stage
    try:
        params, section = _checked(stage, name)
        watched = _check_resolved(params, stage, name)
        if reads and getattr(params, section)[name].run.launcher != "none":
            from components.stages import launch

            launch.processes(params, stage, section, name, reads(params, name))  # returns in a process that trains
        _forget_slurm()
        logged = params.model_dump(mode="json")
        logged = logged[section][name] if section else logged.get(stage, {})
        tags, enabled = {"stage": stage, "name": name}, processes.rank_zero()
        with (
            storage.writing(storage.STATE),
            memory_errors_in_one_line(),
            tracking.start(label, tags, logged, enabled=enabled, run_id=resumes(params, name)) as run,
        ):
            run.inputs()
            read = local_files.of_stage(params, stage, name) if processes.rank_zero() else None
            metrics = body(params, name, run)
            if _resolved(stage, name) != watched:
                raise SesameError(
                    "params or code were changed while the stage ran, so DVC would record the result "
                    "under the new ones; run again"
                )
            metrics["cost"] = cost.measured(params, metrics.get("cost", {}))
            if read:
                metrics["local_files"] = read
            if processes.rank_zero():
                of_studies = name in params.of_studies(section)
                path = metrics_file(params, name) if metrics_file else storage.metrics_path(stage, name, of_studies)
                _record(params, stage, name, run, metrics, path)
    except SesameError as error:
        print(f"{label}: {error}", file=sys.stderr, flush=True)
        _announce(error)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(f"{label}: stopped; nothing half-written, the next run continues")
    if processes.rank_zero():
        _announce(None)
        print(f"{label}: done in {metrics['cost']['seconds']:.1f} s", flush=True)


def _checked(stage: str, name: str) -> tuple[Params, str]:
    """The params, and the section that declares the stage. Raises SesameError for arguments that are wrong."""
    if more := sys.argv[2:]:
        raise SesameError(f"unexpected argument {' '.join(more)}; a stage takes one name")
    params = params_file.load()
    section = registry.declared(stage).section
    if section and name not in getattr(params, section):
        raise SesameError(f"no {name!r} under {section} in params.yaml (there are: {', '.join(getattr(params, section))})")
    return params, section


def _resolved(stage: str, name: str) -> str:
    """The resolved entry of a stage, on which DVC depends. Empty if DVC does not run this process, or there is none."""
    if "DVC_STAGE" not in os.environ:
        return ""
    path = resolve.file_of(stage, name)
    return json.dumps(read_json(path), sort_keys=True) if path.exists() else ""


def _check_resolved(params: Params, stage: str, name: str) -> str:
    """The resolved entry. Raises SesameError if params or code have changed since: DVC would record the result under those."""
    resolved = _resolved(stage, name)
    if resolved:
        entry = registry.entry(params, stage, name)
        if entry is None or resolved != json.dumps({"code": entry.code, "settings": entry.settings}, sort_keys=True):
            raise SesameError(
                "params or code have changed since `resolve` ran: run `dvc repro resolve` first, or leave --single-item out; "
                "the old output of this stage is in DVC's cache, and `dvc checkout` brings it back"
            )
    return resolved


def _forget_slurm() -> None:
    """Remove Slurm's variables unless Slurm launched this process as a task: a stage inside somebody's job is none of its tasks.

    SLURM_CONF stays, for stages that submit jobs.
    """
    if os.environ.get(processes.LAUNCHED) != "slurm":
        for key in [key for key in os.environ if key.startswith("SLURM_") and key != "SLURM_CONF"]:
            del os.environ[key]


def _record(params: Params, stage: str, name: str, run: tracking.Run, metrics: dict[str, Any], path: Path) -> None:
    """Write the metrics of a stage to `path` and to MLflow, and its model to MLflow."""
    # with the settings that made them: a later estimate compares these with its own
    entry = registry.entry(params, stage, name)
    storage.write_json(path, metrics | {"settings": entry.settings if entry else {}})
    run.log({"seconds": metrics["cost"]["seconds"]} | metrics)  # `seconds` is a metric of every run
    run.artifact(path)
    if registry.declared(stage).makes_model:
        run.model(Path("data/models", name), name)


@contextmanager
def memory_errors_in_one_line() -> Iterator[None]:
    """Turn an error of too little memory into a SesameError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise SesameError(
            f"out of memory ({one_line(error)}); make model, batch_size or max_length smaller (`sesame plan` says what it takes)"
        ) from None


def _announce(error: SesameError | None) -> None:
    """Tell the other nodes of a training how it ended."""
    if processes.LAUNCHED in os.environ:
        from components.stages import launch

        launch.announce(error)
