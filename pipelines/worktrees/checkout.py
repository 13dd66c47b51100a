"""The starting point of worktree runs: the user's checkout as it is, which is read and never written."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dvc.repo import Repo
from ruamel.yaml import YAML

from components.core import tracking
from components.core.errors import SesameError
from components.stages import resolve
from components.text.sources import files
from pipelines import terminal
from pipelines.execution import graph
from pipelines.worktrees.overrides import Variant

DIFF = ("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")


def call(*command: str | Path, cwd: Path = Path("."), feed: bytes | None = None, **env: str) -> bytes:
    """Run a command out of Ctrl-C's reach; its output. Raises SesameError with the last line that it printed."""
    done = subprocess.run(command, cwd=cwd, input=feed, capture_output=True, start_new_session=True, env=os.environ | env)
    if done.returncode:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()] or ["(no message)"]
        raise SesameError(f"{' '.join(map(str, command[:4]))}: {said[-1].strip()}")
    return done.stdout


def git(*args: str | Path, **kwargs) -> bytes:
    return call("git", "-c", "core.hooksPath=/dev/null", *args, GIT_OPTIONAL_LOCKS="0", **kwargs)


def head(what: str) -> str:
    """The checkout's commit, which `what` needs. Raises SesameError where there is none."""
    try:
        return git("rev-parse", "--verify", "HEAD").decode().strip()
    except SesameError:
        raise SesameError(f"{what} need a git repository with at least one commit: `git commit` first") from None


def untracked(folder: Path = Path(".")) -> list[str]:
    """Files of a checkout that git neither has nor ignores. With -z, or git writes `é` as \\303\\251."""
    listed = git("ls-files", "--others", "--exclude-standard", "-z", cwd=folder).decode()
    return [path for path in listed.split("\0") if path]


@dataclass(frozen=True)
class Checkout:
    """The user's checkout at the start of worktree runs. Later edits do not affect them."""

    commit: str
    patch: bytes
    lock: bytes | None
    """dvc.lock, where git does not have it yet."""
    links: tuple[str, ...]
    """Local text that a source in params.yaml names and git does not have."""
    cache: str
    config: dict
    """DVC's local settings."""
    known: frozenset[str]
    """md5 of the data in dvc.lock."""


def read(variants: Sequence[Variant]) -> Checkout:
    """Read the user's checkout, and print which changes the worktree runs get.

    Raises SesameError if a needed file can't be carried over, or a name is taken.
    """
    commit, top = head("worktree runs"), git("rev-parse", "--show-toplevel").decode().strip()
    if Path(top).resolve() != Path.cwd():
        raise SesameError(f"this folder is not the top of the git repository; run from {top}")
    if above := git("rev-parse", "--show-superproject-working-tree").decode().strip():
        # DVC there treats the files of such a worktree as files of another repository
        raise SesameError(
            f"this is a git submodule of {above}, and DVC can't work in its worktrees: clone it "
            "separately to run experiments"
        )
    _names([variant.name for variant in variants])
    unknown = untracked()
    patterns = {pattern for variant in variants for pattern in _patterns(YAML(typ="safe").load(variant.text))}
    links = {path for pattern in patterns for path in files.matches(pattern)}
    _check([path for path in unknown if path not in links])
    patch, lock = git("diff", *DIFF, "HEAD"), Path("dvc.lock").read_bytes() if "dvc.lock" in unknown else None
    # with -z, or git writes `é` as \303\251
    if changed := [path for path in git("diff", "--name-only", "-z", "HEAD").decode().split("\0") if path]:
        terminal.say(f"uncommitted changes that are included: {terminal.some(changed)}")
    with Repo() as repo:
        config = repo.config.load_one("local")
        return Checkout(commit, patch, lock, tuple(sorted(links)), repo.cache.local_cache_dir, config, frozenset(output_sizes(Path())))


def commit_and_patch() -> tuple[str, str]:
    """The checkout's commit, and its uncommitted changes of files that git has but for what a run writes, as `git diff` says them.

    Raises SesameError where stages need files that git does not have.
    """
    commit = head("workers of a pool")
    _check(untracked())
    if resolve.TRAININGS.exists() and not git("ls-files", "--", resolve.TRAININGS):
        raise SesameError(f"workers get {resolve.TRAININGS} from git, which does not have it: `git add` and commit")
    patch = git("diff", *DIFF, "HEAD", "--", ".", *tracking.WRITTEN) + git("diff", *DIFF, "HEAD", "--", resolve.TRAININGS)
    return commit, patch.decode("utf-8", "surrogateescape")


def experiments() -> dict[str, str]:
    """Name of each experiment that DVC has -> its git ref, the newest of a name; the newest first."""
    refs = git("for-each-ref", "--sort=committerdate", "--format=%(refname)", "refs/exps").decode().split()
    named = {ref.rpartition("/")[2]: ref for ref in refs if ref.count("/") == 4}  # others are DVC's own
    return dict(reversed(named.items()))


def _names(names: list[str]) -> None:
    """Refuse a name that an experiment has, or that `dvc exp apply` would take for something else."""
    there = experiments()
    if taken := [name for name in names if name in there]:
        raise SesameError(f"experiment {', '.join(taken)} exists: `dvc exp remove {' '.join(taken)}` first, or choose another name")
    if revision := next(filter(_is_revision, names), None):
        raise SesameError(f"{revision} is a branch, a tag or a commit: choose another name")


def _is_revision(name: str) -> bool:
    try:
        return bool(git("rev-parse", "--verify", "--quiet", name))
    except SesameError:
        return False


def _check(unknown: list[str]) -> None:
    """Refuse when stages need files that git does not have: the experiment could not be applied or repeated without them."""
    if not unknown:
        return
    needed, others = graph.sources(unknown)
    needed += [path for path in others if path == "dvc.yaml" or path.endswith(".dvc") or path.startswith(".dvc/")]
    if needed:
        raise SesameError(f"stages need files that git does not have ({terminal.some(needed)}): `git add` them")
    if others := [path for path in others if path != "dvc.lock"]:
        terminal.say(
            f"not included, as git does not have them: {terminal.some(others)}; `git add` files that stages need"
        )


def _patterns(value: object) -> Iterator[str]:
    """Relative paths of `kind: files` sources, anywhere in params.yaml."""
    if isinstance(value, dict):
        if value.get("kind") == "files":
            yield from (path for path in value.get("paths", ()) if not os.path.isabs(path))
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _patterns(item)


def output_sizes(folder: Path) -> dict[str, int]:
    """What dvc.lock says of the data: md5 -> bytes."""
    path = folder / "dvc.lock"
    stages = (YAML(typ="safe").load(path) or {}).get("stages", {}) if path.exists() else {}
    return {out["md5"]: out.get("size", 0) for stage in stages.values() for out in stage.get("outs", ()) if "md5" in out}
