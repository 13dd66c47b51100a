"""Where a result comes from: the stages behind it back to the sources, what each has read, and the commit that recorded
it.

Everything is read from what git keeps: `dvc.lock` has the hashes of what a stage read and wrote, its history has the
commit, `params.yaml` pins the sources, and `data/resolved` has the settings.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from components import params
from components.core.config import inside
from components.core.errors import SesameError
from components.params.sources import SOURCES
from components.stages import closure, registry, resolve
from pipelines.execution import graph, lockfile, repository

NOT_COMMITTED = "not committed"
CURRENT, CHANGED, NEVER = "current", "changed since", "never run"


@dataclass(frozen=True)
class Recorded:
    """What the lock file has of a stage."""

    name: str
    state: str
    """`current`: it was run with the params and the code as they are, on what the stages before it wrote; else
    `changed since`."""
    commit: str
    """The commit that recorded it, with its date."""
    read: dict[str, str]
    """Path -> md5."""
    written: dict[str, str]
    sources: list[str]
    """What it fetched, with its hash where params pin one."""


def behind(target: str) -> list[Recorded]:
    """What the lock files have of a stage and of all that it depends on, the stage first. Raises SesameError for a stage
    that never ran."""
    with repository.at_once():
        plan = [each for each in graph.plan([target]) if each.name != repository.RESOLVE]
    if not plan or plan[-1].name != target:
        cure = f"name it whole, as in `evaluate@gpt-pairs` (`sesame plan {target}` lists them)"
        raise SesameError(f"{target} is not one stage: {cure}")
    locks: dict[Path, list[str]] = {}
    for stage in plan:
        locks.setdefault(Path(stage.file).with_name("dvc.lock"), []).append(stage.name)
    entries, commits = {}, {}
    for lock, names in locks.items():
        entries |= lockfile.entries(lock, names)
        commits |= _commits(lock, names)
    if target not in entries:
        raise SesameError(f"{target} was never run: no lock file has it; run `sesame run {target}`")

    all_params = params.load()
    written = {path: md5 for entry in entries.values() for path, md5 in lockfile.hashes(entry, "outs").items()}

    def recorded(name: str) -> Recorded:
        entry, (kind, _, of) = entries.get(name, {}), name.partition("@")
        read, settings = lockfile.hashes(entry, "deps"), resolve.file_of(kind, of or "all")
        watched, users = read.pop(str(settings), None), kind not in registry.stages()  # `resolve` writes nothing of a user's stage

        def now(path: str) -> str:
            """The md5 of a path that was read: of a user's stage also that of a script that no stage writes."""
            edited = users and path not in written and Path(path).is_file()
            return md5(Path(path).read_bytes()).hexdigest() if edited else written.get(path, read[path])

        same = users or (settings.exists() and watched == md5(settings.read_bytes()).hexdigest())
        same &= all(now(path) == read[path] for path in read)
        declared = registry.declared(kind)
        block = getattr(all_params, declared.section).get(of) if declared.fetches else None
        state = NEVER if not entry else CURRENT if same else CHANGED
        origins = dict.fromkeys(_pinned(each) for each in inside(block) if isinstance(each, SOURCES))
        return Recorded(name, state, commits.get(name, "–"), read, lockfile.hashes(entry, "outs"), list(origins))

    return [recorded(stage.name) for stage in reversed(plan)]


def code(target: str) -> list[Path]:
    """The files that a stage runs, that of its own module first; none of a user's stage, which no module declares."""
    kind, _, name = target.partition("@")
    entries = registry.entries(params.load())
    modules = next((each.modules for each in entries if (each.stage, each.name) == (kind, name or "all")), ())
    if not modules:
        return []
    own = closure.file_of(modules[0])
    return [own, *(path for path in closure.files(modules) if path != own)]


def _pinned(source: params.Source | params.HubModelSource) -> str:
    """A source, with its hash where params pin one."""
    digest = getattr(source, "sha256", None) or getattr(source, "revision", None)
    return f"{source.shown} ({digest[:16]})" if digest else source.shown


def _commits(lock: Path, names: Sequence[str]) -> dict[str, str]:
    """Stage -> the commit since which the lock file has its entry as it is: the versions are read from the newest one
    on, until all of these stages had another entry."""
    now = lockfile.read(lock) or {}
    waiting = now.keys() & set(names)
    found = dict.fromkeys(waiting, NOT_COMMITTED)
    for full, short, date in map(str.split, _git("log", "--format=%H %h %as", "--", str(lock)).splitlines()):
        then = lockfile.parse(_git("show", f"{full}:./{lock}")) or {}
        waiting = {name for name in waiting if then.get(name) == now[name]}
        found |= dict.fromkeys(waiting, f"{short} {date}")
        if not waiting:
            break
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout
