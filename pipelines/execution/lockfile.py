"""dvc.lock as text, an entry a stage: read and written in milliseconds, whole or not at all.

DVC reads all entries, changes one, and writes all in place. With the 529 of our studies that is 7 s a stage, and a stop in the last 3 of
them leaves the first half of the file, which is good YAML and says that the others were never run.
`python -m pipelines.execution.lockfile` is `dvc` with the lines below in place of that.
"""

import logging
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dvc.utils.serialize import dumps_yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from components.core.errors import CONFLICT, SesameError

HEAD = "schema: '2.0'\nstages:\n"
ENTRY = re.compile(r"^  (?=[\w@.-]+:\n)", re.MULTILINE)
"""Where an entry begins."""
OTHER = re.compile(r"^(?!   |  [\w@.-]+:$|$)", re.MULTILINE)
"""What is neither the name of an entry nor deeper."""

Entries = dict[str, str]
"""Stage -> the lines of its entry."""


def read(path: Path) -> Entries | None:
    """The entries of a lock file in their order, none where there is no file. None when it is not as DVC writes it (comments, other
    sections, a conflict of git's), and DVC itself is to see to it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return parse(text)


def parse(text: str) -> Entries | None:
    """The entries of the text of a lock file; None when it is not as DVC writes it."""
    if not text.startswith(HEAD) or OTHER.search(text, len(HEAD)):
        return None
    lines = (entry for entry in ENTRY.split(text[len(HEAD) :]) if entry)
    return {entry.partition(":")[0]: f"  {entry}" for entry in lines}


def write(path: Path, entries: Mapping[str, str]) -> None:
    """Write a lock file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(HEAD + "".join(entries.values()), encoding="utf-8")
        temporary.replace(path)
    finally:  # a full disk, a stop
        temporary.unlink(missing_ok=True)


def entries(path: Path, names: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
    """What a lock file records of these stages, or of all. A file as DVC writes it is parsed no further than is asked."""
    lines = read(path)
    if lines is None:
        text = path.read_text(encoding="utf-8")
    else:
        text = HEAD + "".join(entry_text for name, entry_text in lines.items() if names is None or name in names)
    recorded = (YAML(typ="safe").load(text) or {}).get("stages") or {}
    return {name: record for name, record in recorded.items() if names is None or name in names}


def hashes(entry: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """path -> md5 of the `deps` or `outs` of a recorded entry."""
    return {item["path"]: item["md5"] for key in keys for item in entry.get(key, []) if "md5" in item}


def plain(path: Path) -> Entries:
    """`read`, of a file that has to be as DVC writes it. Raises SesameError for another."""
    if (entries := read(path)) is None:
        raise SesameError(
            f"{path} is not as DVC writes it (a comment, a merge conflict?): correct it, or remove it and "
            "run `dvc repro`"
        )
    return entries


def check(path: Path) -> None:
    """Raises SesameError where git left a conflict in a lock file, or something cut it off: most of what is left is good YAML, and says
    that the stages behind were never run."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    if CONFLICT.search(text):
        raise SesameError(f"{path} has a merge conflict: {cure(path)}")
    if _cut(path, text):
        raise SesameError(f"{path} is cut off after {len(text):,} characters: {cure(path)}")


def cure(path: Path | str) -> str:
    """How to repair a lock file that can't be read."""
    return (
        f"in a merge take one side by `git checkout --ours {path}`, else restore it by `git checkout "
        f"HEAD -- {path}` (or remove it "
        "if git has none), and run again; stages that differ run, or their outputs come from DVC's cache"
    )


def _cut(path: Path, text: str) -> bool:
    if not text.endswith("\n"):
        return True
    name, entry_text = next(reversed((read(path) or {}).items()), ("", ""))
    if not entry_text:
        return False  # written by hand
    try:
        entry = parsed(entry_text)[name]
        items = [item for key in ("deps", "outs") for item in entry.get(key) or []]
        whole = "cmd" in entry and all(len(item) > 1 and ("hash" not in item or item[item["hash"]]) for item in items)
    except (YAMLError, LookupError, TypeError, AttributeError):
        return True
    if not whole:
        return True
    committed = subprocess.run(["git", "show", f"HEAD:./{path}"], capture_output=True, text=True).stdout
    behind = committed.removeprefix(text)
    return behind != committed and behind.startswith("   ")  # within an entry


def parsed(lines: str) -> dict[str, dict[str, Any]]:
    """The entries that these lines are."""
    return YAML(typ="safe").load(HEAD + lines)["stages"]


def entry(name: str, recorded: Mapping[str, Any]) -> str:
    """The lines of an entry, as DVC writes them."""
    return dumps_yaml({"stages": {name: recorded}}).partition("\n")[2]


def newest_run(cache, stage) -> dict[str, Any] | None:
    """The newest entry of DVC's run cache with the inputs of a stage, as in a lock file; None without one. DVC also takes the file that
    another process is about to write, and removes it as corrupted."""
    from dvc.stage.cache import _get_cache_hash
    from dvc.stage.serialize import to_single_stage_lockfile

    if not (stage.cmd and stage.deps and stage.outs) or stage.always_changed:
        return None
    key = _get_cache_hash(to_single_stage_lockfile(stage), key=True)
    entries = [path for path in Path(cache._get_cache_dir(key)).glob("*") if path.suffix != ".tmp"]
    newest = max(entries, key=lambda path: path.stat().st_mtime, default=None)
    return cache._load_cache(key, newest.name) if newest else None


def _dvc() -> int:
    """DVC's command line, whose lock file is written by `write`, and whose run cache is also asked where a lock file came from another
    machine, and may be read while another process writes it. DVC holds its repository's lock meanwhile, and worktree runs share the cache
    under locks of their own."""
    from dvc.cli import main
    from dvc.dvcfile import Lockfile
    from dvc.stage.cache import RunCacheNotFoundError, StageCache
    from dvc.stage.serialize import to_lockfile
    from dvc_data.hashfile.hash_info import HashInfo

    as_dvc, restored_as_dvc = Lockfile.dump_stages, StageCache.restore

    def dump_stages(self: Lockfile, stages, **options) -> None:
        before = read(Path(self.path))
        if before is None:
            as_dvc(self, stages, **options)
            return
        new = {name: entry(name, recorded) for stage in stages for name, recorded in to_lockfile(stage, **options).items()}
        if any(before.get(name) != lines for name, lines in new.items()):
            write(Path(self.path), before | new)
            self.repo.scm_context.track_file(self.relpath)

    def restore(self: StageCache, stage, **options) -> None:
        """Restore a stage's outputs. Where the lock file names those of another machine, which are not in the cache,
        DVC looks no further and would train again: after `git pull` or `git checkout dvc.lock`. A run of this machine
        with the same inputs may be in the run cache."""
        try:
            restored_as_dvc(self, stage, **options)
        except RunCacheNotFoundError:
            for out in stage.outs:
                out.hash_info = HashInfo()
            restored_as_dvc(self, stage, **options)

    Lockfile.dump_stages = dump_stages
    StageCache._load, StageCache.restore = newest_run, restore
    # its only warning: a run was stopped or killed and left its lock, which DVC has just removed
    logging.getLogger("dvc.rwlock").addFilter(lambda record: record.levelno > logging.WARNING)
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_dvc())
