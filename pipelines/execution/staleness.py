"""What a run would do with each stage of a plan, and which results are not of the present params, code and inputs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dvc.dependency import ParamsDependency
from dvc.repo import Repo, lock_repo
from dvc_data.hashfile.hash_info import HashInfo
from dvc_data.hashfile.meta import Meta as FileMeta

from pipelines import terminal
from pipelines.execution import graph, lockfile
from pipelines.execution.graph import Stage
from pipelines.execution.repository import RESOLVE, STUDIES, at_once, free_lock, name_of, opened, overlap, read_graph

IN_CACHE = "in the cache"
"""The state of a stage whose results an earlier run has left in DVC's cache."""


def _differs(stage, written: Mapping[str, Any]) -> bool:
    """Whether a stage differs from its entry in the lock file.

    Data that stages write (`written`, by path) count by the lock file alone, since they may be on another machine.
    DVC's `allow_missing` would call a stage unchanged whose input was built again elsewhere.
    """
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

    `unchanged`; `in the cache` if an earlier run had the same inputs, and its outputs are still there; `to run` if the
    stage itself differs from its last run (or is `forced`); `may run` if only a stage that it needs will run: it is
    skipped if the outputs of that one come out the same. If stages run `away` (on other machines), the lock file alone
    says what data exist. Not to be called while stages run.
    """
    states: dict[str, str] = {}
    expected: dict[str, HashInfo] = {}  # path of an output -> what it will be, if that is known
    unknown: list[str] = []  # paths of the outputs of which only a run can tell
    with opened() as repo, lock_repo(repo):
        free_lock(repo)
        with_studies = any(stage.file == STUDIES for stage in plan)
        stages = {name_of(stage): stage for stage in read_graph(repo, with_studies)}
        written = {out.fs_path: out for stage in stages.values() for out in stage.outs}
        for stage in plan:
            # `resolve` is up to date already, and each stage depends on its entry alone
            needed = [name for name in stage.upstream if name != RESOLVE]
            declared = stages[stage.name]
            differs = stage.name in forced or (_differs(declared, written) if away else declared.changed())
            if not differs and all(states.get(name) == "unchanged" for name in needed):
                states[stage.name] = "unchanged"
                expected |= {out.fs_path: out.hash_info for out in declared.outs}
                continue
            in_cache = not away and stage.name not in forced and _cached(repo, declared, written, expected, unknown)
            if in_cache:
                states[stage.name] = IN_CACHE
                expected |= in_cache
            else:
                states[stage.name] = "to run" if differs else "may run"
                unknown += [out.fs_path for out in declared.outs if stage.name != RESOLVE]
    return states


def _cached(
    repo: Repo, stage, written: Mapping[str, Any], expected: Mapping[str, HashInfo], unknown: Collection[str]
) -> dict[str, HashInfo]:  # fmt: skip
    """Path -> content of the outputs that DVC will take from its cache.

    They are those of the lock file, else those of an earlier run with the inputs that the stage will have. Empty if there
    are none, and where an input is what another stage is yet to write.
    """
    if any(overlap(path, dep.fs_path) for path in unknown for dep in stage.deps):
        return {}
    return _in_lock_file(stage, written, expected) or _in_run_cache(repo, stage, expected)


def _in_lock_file(stage, written: Mapping[str, Any], expected: Mapping[str, HashInfo]) -> dict[str, HashInfo]:
    """The outputs of a stage's entry in the lock file, if its inputs will be the same and the outputs are in the cache."""
    others = any(expected.get(dep.fs_path, dep.hash_info) != dep.hash_info for dep in stage.deps)
    if others or _differs(stage, written) or not stage.outs_cached():
        return {}
    return {out.fs_path: out.hash_info for out in stage.outs}


def _in_run_cache(repo: Repo, stage, expected: Mapping[str, HashInfo]) -> dict[str, HashInfo]:
    """The outputs of an earlier run with the inputs that a stage will have.

    Empty without one whose outputs are in the cache, and where an input is unknown: a file from elsewhere, or a param.
    """
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
    """Which of these stages have results of other params, code or inputs than there are now.

    Not to be called while stages run.
    """
    if not names:  # a plan of no stages is one of all
        return []
    with at_once():
        now = states(graph.plan(names))
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
