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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from components import params as params_file
from components import tracking
from components.errors import SesameError, one_line

STATE = Path(".sesame")
"""Git-ignored working state: downloads, checkpoints, servers' files. Safe to delete when nothing runs."""


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` to write a file or a folder to; renamed to `path` at the end, removed on failure.

    What stands at `path` is replaced, but never a folder by a file. A path that a user names goes through `unused` first.
    Raises SesameError where nothing can be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with writing(path):
            _remove(temporary)
            temporary.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if path.is_dir():
                if not temporary.is_dir():
                    raise SesameError(f"{path} is a folder; name a file")
                _remove(path)
            temporary.replace(path)
    finally:
        _remove(temporary)


def unused(path: Path) -> Path:
    """A place for a command's output that a user has named. Raises SesameError where something stands: no command removes what another
    one wrote."""
    if path.is_dir() and (path.is_symlink() or any(path.iterdir())):
        raise SesameError(f"{path} is not empty; name a new folder")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise SesameError(f"{path} is there already; name a new file, or remove it first")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes one line that names `path` of a full disk, whatever a library made of it, and of a place where nothing can be written."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:  # of which two cases are taken, and the others go on
        if isinstance(error, OSError) and error.errno in DENIED:
            raise SesameError(f"{error.filename or path}: {error.strerror}; nothing can be written there") from None
        there = next(folder for folder in (path.parent, *path.parent.parents) if folder.is_dir()).resolve()
        total, _, free = shutil.disk_usage(there)
        if not total:  # /proc and its like
            raise SesameError(f"{path}: nothing can be written in {there}") from None
        if free < ROOM or "No space left on device" in str(error):
            raise SesameError(f"{path}: the disk of {there} is full ({free / 2**20:.0f} MiB free); free some space and run again") from None
        raise


DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)
ROOM = 2**16
"""Bytes; with less the disk is why a write failed, even where a library does not say so."""


FULL = ("out of memory", "not enough memory", "can't allocate memory")
"""What torch says on a GPU and on CPUs."""


@contextmanager
def remembering() -> Iterator[None]:
    """Makes one line of more memory asked for than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in FULL):
            raise
        raise SesameError(
            f"out of memory ({one_line(error)}); make model, batch_size or max_length smaller (`sesame plan` says what it takes)"
        ) from None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():  # a disk that is only read refuses to remove what is not there, too
        path.unlink()


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused: an undefined figure is null."""
    with output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes one line of whatever is wrong with a file that another stage wrote: it names the file and the stage to run again."""
    try:
        yield
    except FileNotFoundError:
        command = " ".join(["sesame run", *writer(path)])
        raise SesameError(f"{path}: no such file; run the stage that writes it first (`{command}`)") from None
    except MALFORMED as error:
        said = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        cure = [f"`sesame run --force {stage}` writes it anew" for stage in writer(path)] or ["run the stage that writes it with --force"]
        raise SesameError(f"{path} can't be read ({said}); {cure[0]}") from None


MALFORMED = (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, RuntimeError, SafetensorError)
"""What parsers and libraries make of a file that is cut off, empty, or of another form."""

WRITERS = {
    "corpora": ("corpus@{0}", "mix@{0}"), "tasks": ("task@{0}",), "tokenizers": ("tokenizer@{0}",), "encoded": ("encode@{0}",),
    "models": ("pretrain@{0}", "checkpoint@{0}", "derive@{0}"), "samples": ("sample@{0}",), "curves": ("pretrain@{0}",),
    "scores": ("finetune@{0}-{1}",), "baselines": ("baseline@{0}",), "adapted": ("adapt@{0}-{1}-{2}",),
    "learning_curves": ("learning_curve@{0}-{1}",), "vectors": ("vectors@{0}", "published_vectors@{0}", "contextual_vectors@{0}"),
    "align": ("align@{0}", "history@{0}", "group@{0}"), "generated": ("generate@{0}",), "metrics": ("{0}@{1}",),
}  # fmt: skip
"""Folder of data/ -> the stages that write to it, by the names below."""


def writer(path: Path) -> list[str]:
    """The stage that wrote a file under data/; none where that is not known."""
    above, _, inside = str(path.with_suffix("")).rpartition("data/")
    folder, *names = inside.split("/")
    stages = [stage.format(*names, "", "") for stage in WRITERS.get(folder, ())]
    ran = [stage for stage in stages if (Path(above) / metrics_path(*stage.split("@"))).exists()]
    return (ran or stages) if len(ran or stages) == 1 else []


def read_json(path: Path) -> Any:
    """Read a JSON file that another stage wrote. Raises SesameError that names the file."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> Iterator[dict]:
    """The JSON objects, one a line, of a file that another stage wrote. Raises SesameError that names the file."""
    with reading(path), path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: {error.msg}") from None
            yield row


METRICS = Path("data/report/metrics.json")
"""Stage -> its metrics, of all that params.yaml declares: what the report has of them, and git keeps."""


def metrics_path(stage: str, name: str, of_studies: bool = False) -> Path:
    """Where the metrics of a stage are: a small JSON file that MLflow logs and the report reads.

    `of_studies`: the studies' file declares it. The report depends on data/metrics as a whole, so studies write elsewhere.
    """
    return Path("data/study_metrics" if of_studies else "data/metrics", stage, f"{name}.json")


def committed_metrics() -> dict[str, dict]:
    """Stage -> its metrics as the last report has them, which git keeps; empty where they can't be read."""
    with suppress(SesameError, AttributeError):
        return {name: measured for name, measured in read_json(METRICS).items() if isinstance(measured, dict)}
    return {}


def last_metrics(stage: str, name: str, of_studies: bool = False, committed: dict[str, dict] | None = None) -> dict:
    """The metrics of a stage's last run: its file, else what git has; empty where neither can be read. Who asks for
    many stages reads `committed_metrics` once.

    For estimates alone: a damaged file must not keep the stage that writes it from running.
    """
    with suppress(SesameError):
        return read_json(metrics_path(stage, name, of_studies))
    return (committed_metrics() if committed is None else committed).get(f"{stage}@{name}", {})


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
    from components import resolve

    path = resolve.file_of(stage, name)
    return json.dumps(read_json(path), sort_keys=True) if path.exists() else ""


def _as_watched(params: params_file.Params, stage: str, name: str) -> str:
    """That entry; raises SesameError where params and code are other ones by now, since DVC would note the result as theirs."""
    watched = _watched(stage, name)
    if watched:
        from components import resolve

        own = resolve.entry(params, stage, name)
        if watched != json.dumps({"code": own.code, "settings": own.settings}, sort_keys=True):
            raise SesameError(
                "params or code were changed after `resolve` ran: run `dvc repro resolve` first, or without --single-item; "
                "what this stage had written is in DVC's cache, and `dvc checkout` brings it back"
            )
    return watched


def _settings(params: params_file.Params, stage: str, name: str) -> dict[str, Any]:
    """All that a stage's result depends on of params.yaml, defaults filled in; empty of a stage that `resolve` does not know."""
    from components import resolve

    return next((each.settings for each in resolve.entries(params) if (each.stage, each.name) == (stage, name)), {})


def rank_zero() -> bool:
    """Whether this process is the one that writes: under DDP every rank runs the script."""
    return all(os.environ.get(key, "0") == "0" for key in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"))


LAUNCHED = "SESAME_LAUNCHED"
"""In the environment of a training's process: the launcher that started it. In any other's there is none, whatever that one runs in."""


def _forget_slurm() -> None:
    """A stage of one process that somebody's `srun` or `sbatch` is around, as around a worker of a pool, is no task of theirs.

    Where Slurm's settings are its commands still need to know, as in a stage that submits jobs of its own.
    """
    if os.environ.get(LAUNCHED) != "slurm":
        for key in [key for key in os.environ if key.startswith("SLURM_") and key != "SLURM_CONF"]:
            del os.environ[key]


def main(
    stage: str,
    body: Callable[[params_file.Params, str, tracking.Run], dict],
    section: str | None = None,
    resumes: Callable[[params_file.Params, str], str | None] = lambda params, name: None,
    metrics_file: Callable[[params_file.Params, str], Path] | None = None,
    reads: Callable[[params_file.Params, str], list[Path]] | None = None,
) -> None:
    """Run one stage as `python -m components.<stage> [NAME]`.

    `body(params, name, run)` does the work and returns the metrics, a nested dictionary of figures (None = undefined);
    what it counted of its cost stands under `cost`. `section` is the part of params.yaml that NAME must be declared in;
    `resumes` gives the ledger's run that a killed attempt of the same work has left, to be continued; `metrics_file`
    says where the metrics go if not to `metrics_path`; `reads`, of a stage that can be launched on several machines
    (`components.launch`), what must be the same on all of them.
    Exits with 2 for what can't pass by itself (a SesameError), 75 for what may (Unreachable), 1 otherwise.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else "all"
    label = f"{stage}@{name}" if len(sys.argv) > 1 else stage
    try:
        if more := sys.argv[2:]:
            raise SesameError(f"a stage reads one name, and {' '.join(more)} is more than that")
        params = params_file.load()
        if section and name not in getattr(params, section):
            raise SesameError(f"no {name!r} under {section} in params.yaml (there are: {', '.join(getattr(params, section))})")
        watched = _as_watched(params, stage, name)
        if reads and getattr(params, section)[name].run.launcher != "none":
            from components import launch

            launch.processes(params, stage, section, name, reads(params, name))  # returns in a process that trains
        _forget_slurm()
        logged = params.model_dump(mode="json")
        block = logged[section][name] if section else logged.get(stage, {})
        with (
            writing(STATE),
            remembering(),
            tracking.start(label, {"stage": stage, "name": name}, block, enabled=rank_zero(), run_id=resumes(params, name)) as run,
        ):
            run.inputs()
            metrics = body(params, name, run)
            if _watched(stage, name) != watched:
                raise SesameError("its params or code were changed while it ran, so that DVC would note this result as theirs; run again")
            metrics["cost"] = _cost(params, metrics.get("cost", {}))
            if rank_zero():
                of_studies = section is not None and name in params.of_studies(section)
                written = metrics_file(params, name) if metrics_file else metrics_path(stage, name, of_studies)
                # with what it was made by, so that a later estimate can tell whether it is of the same work
                write_json(written, metrics | {"settings": _settings(params, stage, name)})
                run.log({"seconds": metrics["cost"]["seconds"]} | metrics)  # every run has seconds by this name
                run.artifact(written)
                if f"{stage}@{{0}}" in WRITERS["models"]:
                    run.model(Path("data/models", name), name)
    except SesameError as error:
        print(f"{label}: {error}", file=sys.stderr, flush=True)
        if LAUNCHED in os.environ:
            from components import launch

            launch.tell(error)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(f"{label}: stopped; nothing half-written, the next run continues")
    if rank_zero():
        if LAUNCHED in os.environ:
            from components import launch

            launch.tell(None)
        print(f"{label}: done in {metrics['cost']['seconds']:.1f} s", flush=True)
