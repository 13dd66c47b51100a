"""What every stage does around its work: read params, write outputs whole, record cost and metrics, fail in one line.

A stage is a function of (its params block, its input paths) to its output paths. `main` is its frame.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components import params as params_file
from components.core import processes, storage, tracking
from components.core.errors import OUT_OF_MEMORY, SesameError, one_line
from components.stages import registry, resolve


@contextmanager
def remembering() -> Iterator[None]:
    """Makes one line of more memory asked for than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise SesameError(
            f"out of memory ({one_line(error)}); make model, batch_size or max_length smaller (`sesame plan` says what it takes)"
        ) from None


def energy_kwh(energy: params_file.Energy, seconds: float, cpu_seconds: float, gib: float, gpus: int) -> float:
    """Estimated energy (Strubell et al. 2019, section 2): busy cores, resident memory and GPUs, times PUE.

    Not measured: the watts are those of `energy` in params.yaml.
    """
    joules = cpu_seconds * energy.watts_per_core + seconds * (gib * energy.watts_per_gib + gpus * energy.watts_per_gpu)
    return energy.pue * joules / 3.6e6


def began(pid: int | str = "self") -> float:
    """When a process began, in seconds since the machine's boot: a clock that, unlike the time of day, nobody sets."""
    # field 22 of proc(5); the process's name, in parentheses before, may hold blanks
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def _suspended() -> float:
    """Seconds since the machine's boot that it slept: one of the two clocks goes on meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


SLEPT = _suspended()
"""Before this process began to work: what is more at its end is no time of the work's, and cost it no energy."""


def _cost(params: params_file.Params, own: dict) -> dict:
    """seconds, tokens, flops, kwh, memory_mib.

    `own` is what the stage counted itself: tokens, flops, gpus, earlier_seconds (before a resume).
    """
    times, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = times.ru_utime + times.ru_stime + children.ru_utime + children.ru_stime
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - began() - (_suspended() - SLEPT)
    gib = times.ru_maxrss / 2**20  # kibibytes on Linux
    kwh = energy_kwh(params.energy, seconds, cpu_seconds, gib, own.get("gpus", 0))
    earlier = own.get("earlier_seconds", 0.0)
    if earlier:
        kwh *= (seconds + earlier) / seconds
    return {
        "seconds": round(seconds + earlier, 2), "tokens": own.get("tokens", 0), "flops": own.get("flops", 0),
        "kwh": float(f"{kwh:.4g}"), "memory_mib": round(gib * 2**10),
    }  # fmt: skip


def _watched(stage: str, name: str) -> str:
    """What DVC watches of a stage that it runs: its entry among the resolved ones. Empty where nobody watches."""
    if "DVC_STAGE" not in os.environ:
        return ""
    path = resolve.file_of(stage, name)
    return json.dumps(storage.read_json(path), sort_keys=True) if path.exists() else ""


def _as_watched(params: params_file.Params, stage: str, name: str) -> str:
    """That entry; raises SesameError where params and code are other ones by now, since DVC would note the result as theirs."""
    watched = _watched(stage, name)
    if watched:
        own = registry.entry(params, stage, name)
        if own is None or watched != json.dumps({"code": own.code, "settings": own.settings}, sort_keys=True):
            raise SesameError(
                "params or code have changed since `resolve` ran: run `dvc repro resolve` first, or "
                "leave --single-item out; "
                "the old output of this stage is in DVC's cache, and `dvc checkout` brings it back"
            )
    return watched


def _forget_slurm() -> None:
    """A stage of one process that somebody's `srun` or `sbatch` is around, as around a worker of a pool, is no task of theirs.

    Where Slurm's settings are its commands still need to know, as in a stage that submits jobs of its own.
    """
    if os.environ.get(processes.LAUNCHED) != "slurm":
        for key in [key for key in os.environ if key.startswith("SLURM_") and key != "SLURM_CONF"]:
            del os.environ[key]


def main(
    stage: str,
    body: Callable[[params_file.Params, str, tracking.Run], dict],
    resumes: Callable[[params_file.Params, str], str | None] = lambda params, name: None,
    metrics_file: Callable[[params_file.Params, str], Path] | None = None,
    reads: Callable[[params_file.Params, str], list[Path]] | None = None,
) -> None:
    """Run one stage as `python -m components.<stage> [NAME]`.

    `body(params, name, run)` does the work and returns the metrics, a nested dictionary of figures (None = undefined);
    what it counted of its cost stands under `cost`. `resumes` gives the ledger's run that a killed attempt of the same
    work has left, to be continued; `metrics_file` says where the metrics go if not to `metrics_path`; `reads`, of a stage
    that can be launched on several machines (`components.stages.launch`), what must be the same on all of them.
    Exits with 2 for what can't pass by itself (a SesameError), 75 for what may (Unreachable), 1 otherwise.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else "all"
    label = f"{stage}@{name}" if len(sys.argv) > 1 else stage
    section = registry.stages()[stage].section if stage in registry.stages() else ""  # of a user's own stage nothing is declared
    try:
        if more := sys.argv[2:]:
            raise SesameError(f"unexpected argument {' '.join(more)}; a stage takes one name")
        params = params_file.load()
        if section and name not in getattr(params, section):
            raise SesameError(f"no {name!r} under {section} in params.yaml (there are: {', '.join(getattr(params, section))})")
        watched = _as_watched(params, stage, name)
        if reads and getattr(params, section)[name].run.launcher != "none":
            from components.stages import launch

            launch.processes(params, stage, section, name, reads(params, name))  # returns in a process that trains
        _forget_slurm()
        logged = params.model_dump(mode="json")
        block = logged[section][name] if section else logged.get(stage, {})
        with (
            storage.writing(storage.STATE),
            remembering(),
            tracking.start(
                label, {"stage": stage, "name": name}, block, enabled=processes.rank_zero(), run_id=resumes(params, name)
            ) as run,
        ):
            run.inputs()
            metrics = body(params, name, run)
            if _watched(stage, name) != watched:
                raise SesameError(
                    "params or code were changed while the stage ran, so DVC would record the result "
                    "under the new ones; run again"
                )
            metrics["cost"] = _cost(params, metrics.get("cost", {}))
            if processes.rank_zero():
                of_studies = name in params.of_studies(section)
                written = metrics_file(params, name) if metrics_file else storage.metrics_path(stage, name, of_studies)
                # with what it was made by, so that a later estimate can tell whether it is of the same work
                entry = registry.entry(params, stage, name)
                storage.write_json(written, metrics | {"settings": entry.settings if entry else {}})
                run.log({"seconds": metrics["cost"]["seconds"]} | metrics)  # every run has seconds by this name
                run.artifact(written)
                if registry.makes_model(stage):
                    run.model(Path("data/models", name), name)
    except SesameError as error:
        print(f"{label}: {error}", file=sys.stderr, flush=True)
        if processes.LAUNCHED in os.environ:
            from components.stages import launch

            launch.announce(error)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(f"{label}: stopped; nothing half-written, the next run continues")
    if processes.rank_zero():
        if processes.LAUNCHED in os.environ:
            from components.stages import launch

            launch.announce(None)
        print(f"{label}: done in {metrics['cost']['seconds']:.1f} s", flush=True)
