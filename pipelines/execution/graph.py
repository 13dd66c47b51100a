"""DVC's graph as an ordered plan. All dependencies come from dvc.yaml; nothing is added here. Where many stages write
to one folder, only those are needed whose part of it is read."""

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx
from dvc.dependency import ParamsDependency
from dvc.repo import Repo, lock_repo
from dvc.repo.reproduce import plan_repro
from dvc_data.hashfile.hash_info import HashInfo
from dvc_data.hashfile.meta import Meta as FileMeta
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, ValidationError

from components.core.errors import SesameError
from components.stages import registry, resolve
from components.stages.outputs import committed_metrics, last_metrics, read_json
from pipelines import terminal
from pipelines.execution import lockfile
from pipelines.execution.repository import RESOLVE, STUDIES, at_once, free_lock, opened, read_graph

IN_CACHE = "in the cache"
"""The state of a stage whose results an earlier run has left in DVC's cache."""
LIGHT, HEAVY = 10, 100
"""Seconds of a stage, and of one that claims a resource, where none was run: for the longest chain alone."""


class Meta(BaseModel):
    """A stage's `meta:` in dvc.yaml. It isn't part of the stage's hash, so changing it runs nothing again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retries: NonNegativeInt = 0
    """How often a failed stage is tried again. An exit status of 2 means that another try would fail too, so there is
    none."""
    timeout: PositiveFloat | None = None
    """Seconds."""
    resource: str | None = None
    """Stages that name the same resource never run side by side."""


@dataclass(frozen=True)
class Stage:
    """One stage of DVC's graph: the stages whose outputs it reads, its description, and how it is run."""

    name: str
    upstream: tuple[str, ...]
    desc: str
    meta: Meta
    file: str = "dvc.yaml"
    """Where it is written, from the project's folder."""
    cmd: str | list[str] = ""
    outs: tuple[str, ...] = ()
    """Paths, as the lock file has them."""

    @property
    def is_digest(self) -> bool:
        return is_digest(self.name)

    @property
    def address(self) -> str:
        """What DVC knows it by."""
        return self.name if self.file in ("dvc.yaml", self.name) else f"{self.file}:{self.name}"  # a .dvc file is its own stage


def _name(stage) -> str:
    return getattr(stage, "name", None) or stage.addressing


def _meta(stage) -> Meta:
    try:
        return Meta.model_validate(stage.meta or {})
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(Meta.model_fields)
        raise SesameError(f"{stage.relpath}, stage {_name(stage)}: meta.{first['loc'][0]}: {first['msg']} (there are: {known})") from None


def _stage(stage, graph: networkx.DiGraph) -> Stage:
    upstream = tuple(sorted(map(_name, graph.successors(stage))))
    outs = tuple(out.def_path for out in stage.outs)
    return Stage(_name(stage), upstream, stage.desc or "", _meta(stage), stage.relpath, stage.cmd or "", outs)


def _needed(stage: Stage, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """The stages that a stage needs: all upstream ones; for a digest (`*_inputs`) only those whose outputs it reads, as
    far as its resolved settings are there to say so. So a study of two evaluations needs no third one."""
    if stage.is_digest:
        with suppress(SesameError, LookupError, TypeError):
            read = read_json(resolve.file_of(*stage.name.split("@")))["settings"]["folders"]
            return tuple(each for each in stage.upstream if each == RESOLVE or set(stages[each].outs) & set(read))
    return stage.upstream


def plan(targets: Sequence[str] = ()) -> list[Stage]:
    """The stages to build `targets` and all that they need, each after what it depends on; without targets all of dvc.yaml.

    A target is a stage (`pretrain@bert`) or a group of them (`finetune`), also of another pipeline file (`study@size`).
    Among stages that could come next, the one with the longest chain behind it comes first, so that pre-training starts
    before side branches, and nothing long is left to run alone at the end.
    """
    with opened() as repo:
        graph = read_graph(repo, studies=False)
        if not all(any(selects([target], _name(stage)) for stage in graph) for target in targets):
            graph = read_graph(repo, studies=True)
        declared = [_stage(stage, graph) for stage in graph]
    stages = {stage.name: stage for stage in declared}
    for stage in declared:
        if stages[stage.name] is not stage:
            raise SesameError(f"{stage.file} and {stages[stage.name].file} both have a stage {stage.name}; rename one")
    needs = networkx.DiGraph((u, stage.name) for stage in stages.values() for u in _needed(stage, stages))
    needs.add_nodes_from(stages)
    wanted = _select(stages, targets)
    built = wanted.union(*(networkx.ancestors(needs, name) for name in wanted))
    # a digest waits for whatever of the plan writes to its folders: while one writes there, DVC lets no other read
    stages = {name: replace(stages[name], upstream=tuple(u for u in stages[name].upstream if u in built)) for name in built}
    downstream = networkx.DiGraph((u, stage.name) for stage in stages.values() for u in stage.upstream)
    downstream.add_nodes_from(stages)
    chain: dict[str, int] = {}
    committed = committed_metrics()
    for name in reversed(list(networkx.topological_sort(downstream))):
        chain[name] = _weight(stages[name], committed) + max((chain[other] for other in downstream.successors(name)), default=0)
    order = networkx.lexicographical_topological_sort(downstream, key=lambda name: (-chain[name], name))
    return [stages[name] for name in order]


def _weight(stage: Stage, committed: dict[str, dict]) -> float:
    """Seconds of the last run, here or by the committed metrics; without one, a usual value."""
    with suppress(LookupError, TypeError):
        return float(last_metrics(*stage.name.partition("@")[::2], committed=committed)["cost"]["seconds"])
    return HEAVY if stage.meta.resource else LIGHT


def is_digest(name: str) -> bool:
    """Whether a stage writes what is in some folders, which its readers read themselves (components/stages/inputs.py)."""
    return name.partition("@")[0].endswith("_inputs")


def selects(targets: Sequence[str], name: str) -> bool:
    """Whether a stage is one of the targets, or of a group among them."""
    return any(name == target or name.startswith(f"{target}@") for target in targets)


def _select(stages: dict[str, Stage], targets: Sequence[str]) -> set[str]:
    wanted = set() if targets else {name for name, stage in stages.items() if stage.file == "dvc.yaml"}
    if not targets and not wanted:
        raise SesameError("dvc.yaml: no stages; run from the project's folder")
    if targets and not Path("dvc.yaml").exists():
        raise SesameError("dvc.yaml: no such file; run from the project's folder, or bring it back: git checkout HEAD -- dvc.yaml")
    for target in targets:
        matches = {name for name in stages if selects([target], name)}
        if not matches:
            known = sorted({*stages, *(name.partition("@")[0] for name in stages)})
            close = difflib.get_close_matches(target, known, n=3)
            groups = sorted({name.partition("@")[0] for name in stages})
            if target in registry.stages():
                raise SesameError(f"{target}: nothing to do, as params.yaml names nothing for it; docs/using.md says what it reads")
            cure = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(groups)};"
            raise SesameError(f"no stage {target!r} in dvc.yaml ({cure} `sesame plan` lists all)")
        wanted |= matches
    return wanted


def sources(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide files into those that a stage reads and no stage writes, and those that no stage knows. Paths are relative to the project."""
    with opened() as repo:
        stages = repo.index.stages
        read = {os.path.relpath(dep.fs_path, repo.root_dir) for stage in stages for dep in stage.deps if dep.protocol == "local"}
        written = {os.path.relpath(out.fs_path, repo.root_dir) for stage in stages for out in stage.outs if out.protocol == "local"}
    with_parents = {path: {path, *map(str, Path(path).parents)} for path in paths}
    others = [path for path in paths if not with_parents[path] & written]
    of_stages = [path for path in others if with_parents[path] & read]
    return of_stages, [path for path in others if path not in of_stages]


def one(address: str) -> Stage:
    """One stage by its address in DVC, without `upstream`: the rest of the graph is not read."""
    with opened() as repo:
        [stage] = repo.stage.from_target(address)
        return Stage(_name(stage), (), stage.desc or "", _meta(stage), stage.relpath)


def _overlap(path: str, other: str) -> bool:
    """Whether two paths are one, or one is inside the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def reads_what_git_keeps(plan: Sequence[Stage]) -> set[str]:
    """Names of the stages of a plan that read outputs which are not in DVC's cache: `report`, which reads the metrics of all others."""
    with opened() as repo:
        kept = [out.fs_path for stage in repo.index.stages for out in stage.outs if not out.use_cache]
        names = {stage.name for stage in plan}
        return {
            _name(stage) for stage in repo.index.stages if _name(stage) in names
            for dep in stage.deps if not isinstance(dep, ParamsDependency) and dep.protocol == "local"
            if any(_overlap(path, dep.fs_path) for path in kept)
        }  # fmt: skip


def read_from(repo: Repo, stage: Stage, upstream: Sequence[Stage]) -> list[str]:
    """Paths of the outputs that a stage reads, of all that the stages before it have in DVC's cache."""
    known = {each.addressing: each for each in repo.index.stages}
    digested = [each.address for each in upstream if each.is_digest]
    read = [dep.fs_path for address in (stage.address, *digested) for dep in known[address].deps]
    written = [out.fs_path for each in upstream for out in known[each.address].outs if out.use_cache]
    return [path for path in written if any(_overlap(path, dep) for dep in read)]


def folders(plan: Sequence[Stage]) -> list[str]:
    """Addresses of the stages that write into a folder which a stage of the plan reads entirely, to DVC's cache: whether such a folder has
    changed can only be seen from its files."""
    with opened() as repo:
        names = {stage.name for stage in plan}
        read = [dep.fs_path for stage in repo.index.stages if _name(stage) in names for dep in stage.deps]
        inside = tuple(f"{path}/" for path in read)
        return [
            stage.addressing for stage in repo.index.stages if any(out.use_cache and out.fs_path.startswith(inside) for out in stage.outs)
        ]


def _differs(stage, written: Mapping[str, Any]) -> bool:
    """Whether a stage differs from its entry in the lock file. Data that stages write (`written`, by path) count by the lock file alone,
    since they may be on another machine. DVC's `allow_missing` would call a stage unchanged whose input was built again elsewhere."""
    if stage.changed_stage():
        return True
    for dep in stage.deps:
        if dep.fs_path in written and not isinstance(dep, ParamsDependency):
            if dep.hash_info != written[dep.fs_path].hash_info:
                return True
        elif dep.status() and (dep.exists or isinstance(dep, ParamsDependency)):
            return True
    return any(not out.hash_info if out.use_cache else out.status() for out in stage.outs)


def states(plan: Sequence[Stage], forced: Collection[str] = (), away: bool = False) -> dict[str, str]:
    """What a run would do with each stage of a plan.

    `unchanged`; `in the cache` if an earlier run had the same inputs, and its outputs are still there; `to run` if the stage itself differs
    from its last run (or is `forced`); `may run` if only a stage that it needs will run: it is skipped if the outputs of that one come out
    the same. If stages run `away` (on other machines), the lock file alone says what data exist. Not to be called while stages run.
    """
    states: dict[str, str] = {}
    expected: dict[str, HashInfo] = {}  # path of an output -> what it will be, if that is known
    unknown: list[str] = []  # paths of the outputs of which only a run can tell
    with opened() as repo, lock_repo(repo):
        free_lock(repo)
        stages = {_name(stage): stage for stage in read_graph(repo, studies=any(stage.file == STUDIES for stage in plan))}
        written = {out.fs_path: out for stage in stages.values() for out in stage.outs}
        for stage in plan:
            # `resolve` is up to date already, and each stage depends on its entry alone
            needed = [name for name in stage.upstream if name != RESOLVE]
            declared = stages[stage.name]
            differs = stage.name in forced or (_differs(declared, written) if away else declared.changed())
            if not differs and all(states.get(name) == "unchanged" for name in needed):
                states[stage.name] = "unchanged"
                expected |= {out.fs_path: out.hash_info for out in declared.outs}
            elif not away and stage.name not in forced and (outs := _cached(repo, declared, written, expected, unknown)):
                states[stage.name] = IN_CACHE
                expected |= outs
            else:
                states[stage.name] = "to run" if differs else "may run"
                unknown += [out.fs_path for out in declared.outs if stage.name != RESOLVE]
    return states


def _cached(
    repo: Repo, stage, written: Mapping[str, Any], expected: Mapping[str, HashInfo], unknown: Collection[str]
) -> dict[str, HashInfo]:  # fmt: skip
    """Path -> content of the outputs that DVC will take from its cache: those of the lock file, else those of an earlier run with the
    inputs that the stage will have. Empty if there are none, and where an input is what another stage is yet to write."""
    if any(_overlap(path, dep.fs_path) for path in unknown for dep in stage.deps):
        return {}
    return _in_lock_file(stage, written, expected) or _in_run_cache(repo, stage, expected)


def _in_lock_file(stage, written: Mapping[str, Any], expected: Mapping[str, HashInfo]) -> dict[str, HashInfo]:
    """The outputs of a stage's entry in the lock file, if its inputs will be those of the entry and the outputs are in the cache."""
    others = any(expected.get(dep.fs_path, dep.hash_info) != dep.hash_info for dep in stage.deps)
    if others or _differs(stage, written) or not stage.outs_cached():
        return {}
    return {out.fs_path: out.hash_info for out in stage.outs}


def _in_run_cache(repo: Repo, stage, expected: Mapping[str, HashInfo]) -> dict[str, HashInfo]:
    """The outputs of an earlier run with the inputs that a stage will have; empty without one whose outputs are in the cache, and where an
    input is unknown: a file from elsewhere, or a param."""
    if any(isinstance(dep, ParamsDependency) or dep.protocol != "local" for dep in stage.deps):
        return {}
    for dep in stage.deps:
        if dep.fs_path not in expected and not dep.exists:
            return {}
        dep.hash_info = expected[dep.fs_path] if dep.fs_path in expected else dep.get_hash()
        dep.meta = FileMeta()  # that of the lock file has a hash of its own
    if not (run := lockfile.newest_run(repo.stage_cache, stage)):
        return {}
    kept = repo.stage_cache._create_stage(run, wdir=stage.wdir)
    return {out.fs_path: out.hash_info for out in kept.outs} if kept.outs_cached() else {}


def stale(names: Sequence[str]) -> list[str]:
    """Which of these stages have results of other params, code or inputs than there are now. Not to be called while stages run."""
    if not names:  # a plan of no stages is one of all
        return []
    with at_once():
        now = states(plan(names))
    return [name for name in dict.fromkeys(names) if now[name] != "unchanged"]


def say_stale(names: Sequence[str], so: str) -> None:
    """Say which of these stages have results of other params, code or inputs than there are now; `so` is what that
    means."""
    say_not_run(stale(names), so)


def say_not_run(names: Sequence[str], so: str, of: str = "the current params and code") -> None:
    """Say that these stages have not run with what they should have run with; nothing of no stages."""
    if names:
        have, them = ("has", "it") if len(names) == 1 else ("have", "them")
        terminal.say(f"{terminal.some(names)} {have} not run with {of}, so {so}: run {them} first", "yellow")


def lock_entries() -> dict[str, dict]:
    """The entry of each stage in the lock files: `params`, and `outs` with their sizes."""
    files = [path for pattern in ("dvc.lock", "*/dvc.lock") for path in sorted(Path().glob(pattern))]
    return {name: entry for path in files for name, entry in lockfile.entries(path).items()}


def hashes(stage: Stage) -> dict[str, str]:
    """path -> md5 of the dependencies and outputs of a stage, by the lock file. Empty if it never ran."""
    entry = lockfile.entries(Path(stage.file).with_name("dvc.lock"), [stage.name]).get(stage.name, {})
    return lockfile.hashes(entry, "deps", "outs")


def order_lock() -> None:
    """Write dvc.lock in the order in which `dvc repro` alone would run the stages, not in that in which they happened to finish.

    So git shows what changed and nothing else. Entries of stages that dvc.yaml no longer has stay, behind the others.
    """
    with opened(wait=True) as repo, lock_repo(repo):
        files: dict[Path, list[str]] = {}
        for stage in plan_repro(repo.index.graph):
            files.setdefault(Path(repo.root_dir, stage.relpath).with_name("dvc.lock"), []).append(_name(stage))
        for path, names in files.items():
            entries = lockfile.read(path)
            if entries is None:
                continue  # kept by hand
            ordered = [name for name in names if name in entries]
            ordered += [name for name in entries if name not in ordered]
            if ordered != list(entries):
                lockfile.write(path, {name: entries[name] for name in ordered})
