"""What every stage does around its work: read params, write outputs whole, record cost and metrics, fail in one line.

A stage is a function of (its params block, its input paths) to its output paths. `main` is its frame.
"""

import errno
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from components import params as params_file
from components import tracking
from components.errors import SesameError

STATE = Path(".sesame")
"""Git-ignored working state: downloads, checkpoints, servers' files. Safe to delete when nothing runs."""


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` to write a file or a folder to; renamed to `path` at the end, removed on failure."""
    temporary = path.with_name(f".{path.name}.tmp")
    _remove(temporary)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        if path.is_dir():
            _remove(path)
        temporary.replace(path)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused: an undefined figure is null."""
    with output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    """Read a JSON file that another stage wrote. Raises SesameError that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file; run the stage that writes it first (`sesame run`)") from None


def metrics_path(stage: str, name: str) -> Path:
    """Where the metrics of a stage stand: a small JSON file that DVC shows, MLflow logs and the report reads."""
    return Path("data/metrics", stage, f"{name}.json")


def energy_kwh(energy: params_file.Energy, seconds: float, cpu_seconds: float, gib: float, gpus: int) -> float:
    """Estimated energy (Strubell et al. 2019, section 2): busy cores, resident memory and GPUs, times PUE.

    Not measured: the watts are those of `energy` in params.yaml.
    """
    joules = cpu_seconds * energy.watts_per_core + seconds * (gib * energy.watts_per_gib + gpus * energy.watts_per_gpu)
    return energy.pue * joules / 3.6e6


def _cost(params: params_file.Params, started: float, own: dict) -> dict:
    """seconds, tokens, flops, kwh, memory_mib. `own` is what the stage counted itself: tokens, flops, gpus, earlier_seconds (before a resume)."""
    times, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = times.ru_utime + times.ru_stime + children.ru_utime + children.ru_stime
    seconds = time.time() - started
    gib = times.ru_maxrss / 2**20  # kibibytes on Linux
    kwh = energy_kwh(params.energy, seconds, cpu_seconds, gib, own.get("gpus", 0))
    earlier = own.get("earlier_seconds", 0.0)
    if earlier:
        kwh *= (seconds + earlier) / seconds
    return {"seconds": round(seconds + earlier, 2), "tokens": own.get("tokens", 0), "flops": own.get("flops", 0), "kwh": float(f"{kwh:.4g}"), "memory_mib": round(gib * 2**10)}


def rank_zero() -> bool:
    """Whether this process is the one that writes: under DDP every rank runs the script."""
    return all(os.environ.get(key, "0") == "0" for key in ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))


def main(
    stage: str,
    body: Callable[[params_file.Params, str, tracking.Run], dict],
    section: str | None = None,
    resumes: Callable[[params_file.Params, str], str | None] = lambda params, name: None,
    metrics_file: Callable[[params_file.Params, str], Path] | None = None,
) -> None:
    """Run one stage as `python -m components.<stage> [NAME]`.

    `body(params, name, run)` does the work and returns the metrics, a nested dictionary of figures (None = undefined);
    what it counted of its cost stands under `cost`. `section` is the part of params.yaml that NAME must be declared in;
    `resumes` gives the ledger's run that a killed attempt of the same work has left, to be continued; `metrics_file`
    says where the metrics go if not to `metrics_path`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else "all"
    label = f"{stage}@{name}" if len(sys.argv) > 1 else stage
    try:
        started = psutil.Process().create_time()
        params = params_file.load()
        if section and name not in getattr(params, section):
            raise SesameError(f"no {name!r} under {section} in params.yaml (there are: {', '.join(getattr(params, section))})")
        logged = params.model_dump(mode="json")
        block = logged[section][name] if section else logged.get(stage, {})
        with tracking.start(label, {"stage": stage, "name": name}, block, enabled=rank_zero(), run_id=resumes(params, name)) as run:
            metrics = body(params, name, run)
            metrics["cost"] = _cost(params, started, metrics.get("cost", {}))
            if rank_zero():
                written = metrics_file(params, name) if metrics_file else metrics_path(stage, name)
                write_json(written, metrics)
                run.log(metrics)
                run.artifact(written)
    except SesameError as error:
        sys.exit(f"{label}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{label}: stopped; nothing half-written, the next run continues")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            free = shutil.disk_usage(".").free / 2**20
            sys.exit(f"{label}: the disk is full ({free:.0f} MiB free) at {error.filename or 'an output'}; free some space and run again")
        raise
    print(f"{label}: done in {metrics['cost']['seconds']:.1f} s", flush=True)
