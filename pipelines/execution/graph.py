"""DVC's graph as an ordered plan. All dependencies come from dvc.yaml; nothing is added here. Where many stages write
to one folder, only those are needed whose part of it is read."""

import difflib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import networkx
from dvc.dependency import ParamsDependency
from dvc.repo import Repo, lock_repo
from dvc.repo.reproduce import plan_repro
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, ValidationError

from components.core.errors import SesameError
from components.stages import registry, resolve
from components.stages.outputs import committed_metrics, last_metrics, read_json
from pipelines.execution import lockfile
from pipelines.execution.repository import RESOLVE, name_of, opened, overlap, read_graph

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


def _meta(stage) -> Meta:
    try:
        return Meta.model_validate(stage.meta or {})
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(Meta.model_fields)
        raise SesameError(f"{stage.relpath}, stage {name_of(stage)}: meta.{first['loc'][0]}: {first['msg']} (there are: {known})") from None


def _stage(stage, graph: networkx.DiGraph) -> Stage:
    upstream = tuple(sorted(map(name_of, graph.successors(stage))))
    outs = tuple(out.def_path for out in stage.outs)
    return Stage(name_of(stage), upstream, stage.desc or "", _meta(stage), stage.relpath, stage.cmd or "", outs)


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
        if not all(any(selects([target], name_of(stage)) for stage in graph) for target in targets):
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
        return Stage(name_of(stage), (), stage.desc or "", _meta(stage), stage.relpath)


def reads_what_git_keeps(plan: Sequence[Stage]) -> set[str]:
    """Names of the stages of a plan that read outputs which are not in DVC's cache: `report`, which reads the metrics of all others."""
    with opened() as repo:
        kept = [out.fs_path for stage in repo.index.stages for out in stage.outs if not out.use_cache]
        names = {stage.name for stage in plan}
        return {
            name_of(stage) for stage in repo.index.stages if name_of(stage) in names
            for dep in stage.deps if not isinstance(dep, ParamsDependency) and dep.protocol == "local"
            if any(overlap(path, dep.fs_path) for path in kept)
        }  # fmt: skip


def read_from(repo: Repo, stage: Stage, upstream: Sequence[Stage]) -> list[str]:
    """Paths of the outputs that a stage reads, of all that the stages before it have in DVC's cache."""
    known = {each.addressing: each for each in repo.index.stages}
    digested = [each.address for each in upstream if each.is_digest]
    read = [dep.fs_path for address in (stage.address, *digested) for dep in known[address].deps]
    written = [out.fs_path for each in upstream for out in known[each.address].outs if out.use_cache]
    return [path for path in written if any(overlap(path, dep) for dep in read)]


def folders(plan: Sequence[Stage]) -> list[str]:
    """Addresses of the stages that write into a folder which a stage of the plan reads entirely, to DVC's cache: whether such a folder has
    changed can only be seen from its files."""
    with opened() as repo:
        names = {stage.name for stage in plan}
        read = [dep.fs_path for stage in repo.index.stages if name_of(stage) in names for dep in stage.deps]
        inside = tuple(f"{path}/" for path in read)
        return [
            stage.addressing for stage in repo.index.stages if any(out.use_cache and out.fs_path.startswith(inside) for out in stage.outs)
        ]


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
            files.setdefault(Path(repo.root_dir, stage.relpath).with_name("dvc.lock"), []).append(name_of(stage))
        for path, names in files.items():
            entries = lockfile.read(path)
            if entries is None:
                continue  # kept by hand
            ordered = [name for name in names if name in entries]
            ordered += [name for name in entries if name not in ordered]
            if ordered != list(entries):
                lockfile.write(path, {name: entries[name] for name in ordered})
