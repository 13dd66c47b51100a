"""Worktree runs (`WorktreeRun`): variants of the pipeline side by side, each in its own git worktree with the shared DVC
cache.

A worktree run has the user's last commit, the uncommitted changes of tracked files, and its own params.yaml. `sesame
run` works in it as in any checkout. The result is an ordinary DVC experiment and a run in MLflow; then the worktree is
removed. The user's files are only read.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

from configobj import ConfigObj
from dvc.config import Config, _pack_named
from filelock import FileLock, Timeout

from components import params
from components.core.errors import SesameError
from components.core.storage import STATE, output, write_json
from components.stages.outputs import read_json, rows
from pipelines.execution import graph, processes
from pipelines.worktrees import checkout
from pipelines.worktrees.checkout import call, git

WORKTREES = STATE / "worktrees"
MARK = "SESAME_WORKTREE"
"""Environment variable of all processes of a worktree run: its folder."""
DVC = (sys.executable, "-m", "dvc")
LINKS = ["reflink", "hardlink", "symlink", "copy"]
"""How DVC brings data from the cache into a worktree: without a second copy on the disk if the file system allows
it."""


def _turn() -> FileLock:
    """Lock for adding and removing worktrees and for saving experiments: git's and DVC's scratch refs are shared by all
    worktrees."""
    WORKTREES.mkdir(parents=True, exist_ok=True)
    return FileLock(STATE / "worktrees.lock")


class _Config(Config):
    """DVC's config files. It reads them as UTF-8, and writes ASCII alone: /home/josé would end in a traceback."""

    def _save_config(self, level: str, conf_dict: dict) -> None:
        with open(self.files[level], "wb") as file:
            ConfigObj(_pack_named(conf_dict), encoding="utf-8").write(file)


def share(worktree: Path, config: Mapping[str, Any], cache: str, links: Iterable[str] = ()) -> None:
    """Have a worktree work with this checkout's local settings of DVC, cache and downloads, and with the files under these paths."""
    (STATE / "downloads").mkdir(exist_ok=True)
    for link in (STATE / "downloads", *links):
        place = worktree / link
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(link).resolve())
    with _Config(worktree / ".dvc").edit("local") as settings:
        settings.clear()  # a pool's worktree is there for long: what was dropped here goes there, too
        settings.update(deepcopy(dict(config)))
        settings.setdefault("cache", {}).update(dir=cache, type=LINKS)
        settings.setdefault("core", {}).update(site_cache_dir=str(worktree / ".dvc/tmp/site"))  # goes with the worktree


def disk(folder: Path) -> int:
    """Bytes that removing a folder would free: not those of links to the cache."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in [".", *names]:
            with suppress(FileNotFoundError):  # a running stage's
                stat = os.lstat(os.path.join(place, name))
                total += stat.st_blocks * 512 * (name == "." or stat.st_nlink == 1)
    return total


def headline(path: Path) -> str:
    """The mean score over tasks of each pre-trained model, from a report's scores.csv."""
    scores: dict[str, list[float]] = {}
    for row in rows(path) if path.exists() else ():
        if row["init"] == "pretrained" and row["mean"]:
            scores.setdefault(row["model"], []).append(float(row["mean"]))
    return " ".join(f"{model} {sum(means) / len(means):.3f}" for model, means in scores.items())


@dataclass
class WorktreeRun:
    """One variant, and the state of its run."""

    name: str
    overrides: dict[str, str] = field(default_factory=dict)
    state: str = "waiting"
    """waiting, running, done, failed (the flow reported an error), crashed (the flow died without a report) or
    stopped."""
    problem: str = ""
    seconds: float = 0.0
    added: dict[str, int] = field(default_factory=dict)
    """md5 -> bytes of the data that the user's dvc.lock does not have."""
    scores: str = ""

    @property
    def folder(self) -> Path:
        return (WORKTREES / self.name).resolve()

    @property
    def changes(self) -> str:
        """The params that differ: `seed=2 energy.pue=1.0`."""
        return " ".join(f"{key}={value}" for key, value in self.overrides.items())

    @property
    def page(self) -> Path:
        """The file in which its report is kept."""
        return STATE / "experiments" / f"{self.name}.html"

    @property
    def log(self) -> Path:
        """The output of its flow."""
        return WORKTREES / self.name / STATE / "run.log"

    def prepare(self, start: checkout.Checkout, text: str) -> FileLock:
        """Make the worktree with the user's files, the variant's params and data from the cache. Returns its lock,
        held.

        If this fails, the worktree is removed.
        """
        with _turn():
            if self.folder.exists():
                raise SesameError(f"a worktree run {self.name} exists already; choose another name")
            try:
                git("worktree", "add", "--quiet", "--force", "--detach", self.folder, start.commit)
                (self.folder / STATE).mkdir()
                lock = FileLock(self.folder / STATE / "run.lock")
                lock.acquire()
                self.state = "running"
                self.write()
            except BaseException:
                self.remove()
                raise
        try:
            if start.patch:
                git("apply", "--index", "--whitespace=nowarn", "-", cwd=self.folder, feed=start.patch)
            (self.folder / "params.yaml").write_text(text, encoding="utf-8")
            if start.lock is not None:
                (self.folder / "dvc.lock").write_bytes(start.lock)
            share(self.folder, start.config, start.cache, start.links)
            call(*DVC, "checkout", "--force", "--allow-missing", cwd=self.folder)
            return lock
        except BaseException:
            self.remove()
            raise

    def save(self, start: checkout.Checkout, targets: Sequence[str]) -> None:
        """Save the results as a DVC experiment, and remove the worktree.

        DVC gets only the stages that were built: it requires the outputs of all stages that it gets.
        """
        built = [stage.address for stage in graph.plan(targets)] if targets else ["dvc.yaml"]
        if params.load(self.folder / "params.yaml").away:
            call(*DVC, "pull", *built, cwd=self.folder)  # an experiment has its data here
        # small results that DVC leaves to git
        files = [path for path in checkout.untracked(self.folder) if path not in start.links]
        with _turn():
            if files:
                git("add", "--pathspec-from-file=-", "--pathspec-file-nul", cwd=self.folder, feed="\0".join(files).encode())
            call(*DVC, "exp", "save", "--force", "--name", self.name, *built, cwd=self.folder)
            self.added = {md5: size for md5, size in checkout.output_sizes(self.folder).items() if md5 not in start.known}
            self.scores = headline(self.folder / "data/report/scores.csv")
            page = self.folder / "data/report/index.html"
            if page.exists():
                with output(self.page) as kept:
                    copyfile(page, kept)  # git does not have it, and the worktree goes
            self.remove()

    def write(self) -> None:
        """Write the state for `sesame exp list`."""
        note = {"overrides": self.overrides, "state": self.state, "problem": self.problem, "seconds": round(self.seconds, 1)}
        write_json(self.folder / STATE / "run.json", note)

    def remove(self) -> int:
        """Stop all processes of the worktree, and remove it. Returns the bytes that were freed."""
        processes.stop(processes.marked(MARK, str(self.folder)), processes.FIRM)
        size = disk(self.folder)
        with suppress(SesameError):  # not a worktree when a crash left half of one
            git("worktree", "remove", "--force", "--force", self.folder)
        rmtree(self.folder, ignore_errors=True)
        return size


def read(folder: Path) -> WorktreeRun:
    """A worktree run that is on the disk. One whose lock is free and that recorded no end has crashed."""
    run = WorktreeRun(folder.name)
    try:
        note = read_json(folder / STATE / "run.json")
        run.overrides, run.state, run.problem, run.seconds = (note[key] for key in ("overrides", "state", "problem", "seconds"))
    except (SesameError, ValueError):
        run.state, run.problem = "crashed", "ended while its worktree was prepared"
        return run
    try:
        with FileLock(folder / STATE / "run.lock").acquire(timeout=0):
            if run.state == "running":
                run.state, run.problem = "crashed", "its `sesame exp` process no longer exists"
    except Timeout:
        run.state = "running"
    return run


def present() -> list[WorktreeRun]:
    """The worktree runs on the disk: active ones, and those that failed or crashed."""
    with _turn():
        return [read(folder) for folder in sorted(WORKTREES.iterdir()) if folder.is_dir()]


def clean(names: Sequence[str]) -> dict[str, int]:
    """Remove failed and crashed worktree runs, those named or, if none is, all. Returns name -> bytes freed.

    Raises SesameError for one that is active or does not exist.
    """
    runs = {run.name: run for run in present()}
    for name in names:
        if name not in runs:
            raise SesameError(f"no worktree run {name!r} (there are: {', '.join(runs) or 'none'})")
        if runs[name].state == "running":
            raise SesameError(f"worktree run {name} is running: stop its `sesame exp` first (Ctrl-C there)")
    freed = {}
    for run in runs.values():
        if run.state != "running" and (not names or run.name in names):
            with _turn():
                freed[run.name] = run.remove()
    return freed
