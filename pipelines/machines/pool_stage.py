"""The other end of a pool: the flow `stage`, which a worker starts for each stage that is sent.

A stage runs in a git worktree under .sesame/pool, at the commit that was sent and with the changes that were; the clone itself is left
alone. What it reads comes from DVC's remote, what it writes goes there; what git keeps of it, and its entry for the lock file, go back to
the flow, which alone writes them down.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import httpx
from dvc.repo import Repo
from filelock import FileLock, Timeout
from prefect import flow, get_run_logger
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError, TerminationSignal
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed, State

from components import params
from components.core.errors import SesameError, one_line
from components.core.storage import STATE, output
from pipelines.execution import graph, lockfile, processes, repository, runner, slots
from pipelines.execution.cancellation import when_cancelled
from pipelines.machines import parcel, services
from pipelines.worktrees import worktree
from pipelines.worktrees.checkout import git

T = TypeVar("T")
CHECKOUT = "SESAME_CHECKOUT"
"""In a worker's environment: its clone of the project."""
ANSWER = "answer"
"""The kind of artifact that a stage's answer is in."""
ENVIRONMENT = ("constraints.txt", "pyproject.toml")
"""What a worker's libraries were installed from."""


FIGURES = {"data/metrics", "data/study_metrics"}
"""What the flow's own machine shows at the end, and estimates from, though DVC's cache has it, too."""


def answer_key(run_id: object) -> str:
    """The name of the artifact with the answer of a run."""
    return f"stage-{run_id}"


@flow(name="stage", flow_run_name="{name}", persist_result=False)
def stage(name: str, order: str) -> State:
    """Run one stage that a flow elsewhere has sent, and leave its answer as an artifact. `order` is a packed `parcel.Order`."""
    log = get_run_logger()
    _signed()
    with _while_worker_lives():
        try:
            with _stopped_when_cancelled():
                sent = parcel.Order.unpacked(order)
                os.chdir(os.environ.get(CHECKOUT, "."))
                with _worktree() as folder:
                    answer = _run(sent, folder, log)
        except Stopped:
            answer = parcel.Answer(1, 0.0, problem="stopped", stopped=True)
        except SesameError as error:
            answer = parcel.Answer(SesameError.status, 0.0, problem=f"{_here()}: {error}", permanent=True)
        except Remote as error:
            answer = parcel.Answer(1, 0.0, problem=f"{_here()}: {error}")
        APILogHandler().flush()  # the flow shows the lines that are there when this run has ended
        # of a run that ends without a word nobody would ever hear
        until_it_answers(partial(Artifact(type=ANSWER, key=answer_key(flow_run.id), data=answer.packed()).create), threading.Event())
    if answer.stopped:
        return Cancelled(message=answer.problem)
    return Failed(message=answer.problem) if answer.returncode else Completed(message="unchanged" if answer.skipped else "done")


class Remote(Exception):
    """DVC's remote has not done what it was asked: another try may find it well."""


@contextmanager
def _remote() -> Iterator[Repo]:
    """DVC's repository, to pull and to push."""
    try:
        with repository.opened() as repo:
            yield repo
    except SesameError as error:
        raise Remote(str(error)) from None
    except Exception as error:  # botocore's, the system's
        raise Remote(f"DVC's remote: {one_line(error)}") from None


def until_it_answers(ask: Callable[[], T], stopping: threading.Event) -> T | None:
    """What Prefect's server says, however long it is away; None when all is stopped meanwhile. Raises SesameError where it refuses."""
    while not stopping.is_set():
        try:
            return ask()
        except (httpx.TransportError, PrefectHTTPStatusError) as error:
            if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                raise SesameError(f"Prefect's server refuses: {one_line(error)}") from None
            stopping.wait(1)
    return None


def _here() -> str:
    return os.environ.get("PREFECT__WORKER_NAME", "the worker")


def _signed() -> None:
    """Note at this run which worker has it: by that name the flow sees whether it still lives."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, tags=[*flow_run.tags, f"worker:{_here()}"])


@contextmanager
def _while_worker_lives() -> Iterator[None]:
    """Ends this process and its stage when the worker that started it is gone: somebody else has the stage by then."""
    over, forked_by, parent = threading.Event(), parent_process(), os.getppid()

    def watch() -> None:
        while not over.wait(1):
            if not forked_by.is_alive() if forked_by else os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        with processes.guarded(runner.MARK, str(os.getpid())):
            yield
    finally:
        runner.stop_all()
        over.set()


class Stopped(Exception):
    """The run was cancelled."""


@contextmanager
def _stopped_when_cancelled() -> Iterator[None]:
    """Raises Stopped when the run is cancelled meanwhile: its stage is stopped, and so is what brings and sends its data."""
    over = threading.Event()

    def stop() -> None:
        runner.stop_all()
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # as Prefect's own worker would

    with when_cancelled(stop) as cancelled:
        try:
            yield
        except TerminationSignal:
            if not cancelled.is_set():
                raise
            raise Stopped from None
        finally:
            over.set()


@contextmanager
def _worktree() -> Iterator[Path]:
    """A worktree of this clone that no other stage works in. Its files of before are there: what is the same need not come again."""
    for number in range(10_000):
        folder = (STATE / "pool" / str(number)).resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder.with_suffix(".lock")).acquire(timeout=0):
                yield folder
                return
        except Timeout:
            continue


def _run(sent: parcel.Order, folder: Path, log) -> parcel.Answer:
    """Bring a worktree to what was sent, run the stage there, and send its data to the remote."""
    begun = time.monotonic()
    _prepare(sent, folder)
    os.chdir(folder)
    with _remote() as repo:
        repository.free_lock(repo)
        if sent.upstream:
            repo.pull(targets=sent.upstream)
    ready = time.monotonic()
    held = _slots(sent)
    with ExitStack() as stack:
        if held:
            stack.callback(held.release)
        env = sent.env | (held.env if held else {})
        if os.environ.get(services.MLFLOW.variable, "").startswith("http"):  # this machine's way to it, maybe with a password
            env.pop(services.MLFLOW.variable, None)
        outcome = runner.run(sent.address, lambda line: log.info("%s", line), sent.force, sent.timeout, env, held.files if held else ())
    done = time.monotonic()
    said = asdict(outcome)
    if outcome.returncode:
        return parcel.Answer(**said | {"problem": f"{_here()}: {outcome.problem}"})
    with _remote() as repo:
        repo.push(targets=[sent.address])
        [dvc_stage] = repo.stage.from_target(sent.address)
        written = {Path(os.path.relpath(out.fs_path, repo.root_dir)): out for out in dvc_stage.outs}
        files = parcel.read(path for path, out in written.items() if not out.use_cache or FIGURES & set(map(str, path.parents)))
        entry = lockfile.plain(Path(dvc_stage.path).with_name("dvc.lock"))[sent.name]
    log.info("pulled in %.1f s, ran %.1f s, pushed in %.1f s", ready - begun, done - ready, time.monotonic() - done)
    return parcel.Answer(**said, entry=entry, files=files)


def _prepare(sent: parcel.Order, folder: Path) -> None:
    """The commit, the changes and the lock entries that were sent, and nothing else but checkpoints, downloads and DVC's own state.

    Raises SesameError where the commit can't be had, or needs other libraries than are installed here.
    """
    if subprocess.run(["git", "cat-file", "-e", f"{sent.commit}^{{commit}}"], capture_output=True).returncode:
        with suppress(SesameError), FileLock(STATE / "pool/fetch.lock"):
            git("fetch", "--quiet", "--all")
        if subprocess.run(["git", "cat-file", "-e", f"{sent.commit}^{{commit}}"], capture_output=True).returncode:
            raise SesameError(
                f"commit {sent.commit[:10]} can't be fetched from {_origin()}: `git push` it, and run again"
            )
    try:
        _check_out(sent, folder)
    except SesameError:  # what a power cut has left of it
        with FileLock(STATE / "pool/fetch.lock"), suppress(SesameError):
            git("worktree", "remove", "--force", "--force", folder)
        rmtree(folder, ignore_errors=True)
        _check_out(sent, folder)
    _same_libraries(Path.cwd(), folder)
    with Repo() as repo:
        worktree.share(folder, repo.config.load_one("local"), repo.cache.local_cache_dir)
    for path, text in sent.resolved.items():
        with output(folder / path) as temporary:
            temporary.write_bytes(parcel.content(text))
    for path, entries in sent.entries.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if entries:
            lockfile.write(folder / path, entries)
        else:
            (folder / path).unlink(missing_ok=True)


def _check_out(sent: parcel.Order, folder: Path) -> None:
    """Have a worktree with the commit and the changes that were sent."""
    if not (folder / ".git").exists():
        with FileLock(STATE / "pool/fetch.lock"):
            git("worktree", "prune")
            git("worktree", "add", "--quiet", "--force", "--detach", folder, sent.commit)
    git("clean", "-ffdxq", "-e", ".dvc", "-e", ".sesame", cwd=folder)  # a folder that a stage reads has what this pipeline puts there only
    git("checkout", "--quiet", "--force", "--detach", sent.commit, cwd=folder)
    if sent.patch:
        git("apply", "--whitespace=nowarn", "-", cwd=folder, feed=sent.patch.encode("utf-8", "surrogateescape"))


def _origin() -> str:
    with suppress(SesameError):
        return git("remote", "get-url", "origin").decode().strip()
    return "any remote of this clone"


def _same_libraries(clone: Path, folder: Path) -> None:
    """Raises SesameError when the commit asks for other libraries than this clone's environment was made from."""
    for name in ENVIRONMENT:
        wanted, installed = folder / name, clone / name
        if wanted.exists() and (not installed.exists() or wanted.read_bytes() != installed.read_bytes()):
            cure = "run `git pull && make install` there"
            raise SesameError(f"{name} of the sent commit differs from that in {clone}: {cure}")


def _slots(sent: parcel.Order) -> slots.Slots | None:
    """The GPUs or cores of this machine that the stage takes, waited for."""
    stage_ = graph.one(sent.address)
    if stage_.meta.resource not in slots.KINDS:
        return None
    wanted = slots.demand(params.load(), stage_)
    while not (held := slots.take(stage_.meta.resource, wanted)):
        time.sleep(1)
    return held
