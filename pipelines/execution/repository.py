"""DVC's repository of this folder: opened with its errors as one line, locked, brought up to date, and its graph."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import networkx
from dvc.exceptions import DvcException
from dvc.lock import LockError, make_lock
from dvc.repo import Repo, lock_repo
from dvc.repo.index import Index
from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from components import params
from components.core.errors import SesameError
from components.stages import resolve
from pipelines import terminal
from pipelines.execution import lockfile

STUDIES = "studies/dvc.yaml"


def free_lock(repo: Repo) -> None:
    """Remove DVC's list of files in use when it can't be read.

    DVC rewrites it in place, so that a stop at the wrong moment leaves it empty, and every later command would refuse to run.
    Entries of processes that are gone are no harm: DVC takes those out itself. Safe to call while stages run.
    """
    path = Path(repo.tmp_dir, RWLOCK_FILE)
    guard = make_lock(os.path.join(repo.tmp_dir, RWLOCK_LOCK), tmp_dir=repo.tmp_dir, hardlink_lock=repo.config["core"]["hardlink_lock"])
    with guard:  # whoever writes it holds this, so that what can't be read now was left by a dead process
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except ValueError:
            path.unlink()
            terminal.say(
                f"{os.path.relpath(path)} could not be read, as DVC was stopped while writing it: removed", "yellow"
            )


RESOLVE = "resolve"
"""The stage that writes the settings and the code's fingerprint of all others."""


def refresh() -> None:
    """Bring those files up to date, as that stage would,
    so that what is asked of the graph is about the params and code as they are now."""
    try:
        there = RESOLVE in YAML(typ="safe").load(Path("dvc.yaml"))["stages"]
    except (FileNotFoundError, YAMLError, TypeError, KeyError):
        return  # DVC tells of it better
    if not there:
        return
    all_params = params.load()
    if Path(resolve.__file__).is_relative_to(Path.cwd()):
        resolve.refresh(all_params)
        return
    # a worktree run has its own code, which may differ from what this process runs
    done = subprocess.run([sys.executable, "-m", "components.stages.resolve"], capture_output=True, text=True)
    if done.returncode:
        raise SesameError((done.stderr.strip().splitlines() or [f"resolve ended with {done.returncode}"])[-1].removeprefix("resolve: "))


_shared: Repo | None = None
_graphs: dict[bool, networkx.DiGraph] = {}
"""What was read of the shared one: with the studies, and without."""


def read_graph(repo: Repo, studies: bool) -> networkx.DiGraph:
    """DVC's graph; an edge points from a stage to what it depends on. Without the studies it takes a sixth of the time to read."""
    if studies in _graphs:
        return _graphs[studies]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "dvc.yaml", "*/dvc.yaml", "*.dvc"],
        cwd=repo.root_dir, capture_output=True, text=True,
    )  # fmt: skip
    files = dict.fromkeys(path for path in listed.stdout.split("\0") if path and Path(repo.root_dir, path).exists())
    if studies or listed.returncode or STUDIES not in files:
        return repo.index.graph
    read = [Index.from_file(repo, os.path.join(repo.root_dir, path)) for path in files if path != STUDIES]
    graph = Index.from_indexes(repo, read).graph
    if _shared:
        _graphs[studies] = graph
    return graph


@contextmanager
def at_once(wait: bool = False) -> Iterator[None]:
    """Inside, DVC's files are read once for all questions (each would take a second); `wait`: until another DVC has
    ended.

    Not while stages run.
    """
    global _shared
    check_folders()
    refresh()
    for path in ("dvc.lock", "studies/dvc.lock"):
        lockfile.check(Path(path))
    with opened(wait) as repo, lock_repo(repo):
        _shared = repo
        try:
            yield
        finally:
            _shared = None
            _graphs.clear()


@contextmanager
def opened(wait: bool = False) -> Iterator[Repo]:
    """DVC's repository of this folder; its errors become one line."""
    if _shared:
        yield _shared
        return
    try:
        with Repo(_wait_for_lock=wait) as repo:
            yield repo
    except LockError:
        raise SesameError("DVC is at work in this checkout (its lock is taken); run again when it has ended") from None
    except DvcException as error:
        if cut := re.search(r"'((?:studies/)?dvc\.lock)'.*corrupted", str(error)):
            raise SesameError(f"{cut[1]} is not valid YAML (a merge conflict, or cut off): {lockfile.cure(cut[1])}") from None
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines and "is not a git repository" in lines[0]:
            raise SesameError(
                f"{lines[0]}, and DVC needs one: `git clone` the project in place of a copy, or `git init` here"
            ) from None
        missing = re.search(r"Could not find '(\w+)'", str(error))
        if missing and missing[1] in params.Params.model_fields:
            file = params.STUDIES if missing[1] in params.OF_STUDIES else params.FILE
            advice = f"; add `{missing[1]}: {{}}` where nothing of it is wanted"
            raise SesameError(f"{file} has no section {missing[1]}, which {file.with_name('dvc.yaml')} reads{advice}") from None
        raise SesameError("DVC: " + " ".join(lines)) from None


def check_folders() -> None:
    """Raises SesameError where data/ or a folder in it is a link: DVC keeps nothing that stands behind one."""
    for folder in (Path("data"), *Path("data").glob("*/")):
        if folder.is_symlink():
            there = os.readlink(folder)
            raise SesameError(
                f"{folder} is a link to {there}, and DVC does not track files behind a link: replace "
                f"the link by the folder (`rm {folder} && mv "
                f"{folder.parent / there} {folder}`); to use another disk, move the whole checkout, "
                "or only DVC's cache by `dvc cache "
                "dir --local FOLDER`"
            )


def name_of(stage) -> str:
    """The name of one of DVC's stages; a .dvc file has its address alone."""
    return getattr(stage, "name", None) or stage.addressing


def overlap(path: str, other: str) -> bool:
    """Whether two paths are one, or one is inside the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
