"""One side of a comparison: the params and figures of an experiment, of a commit, or of this folder."""

import io
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from dvc.repo import Repo
from ruamel.yaml import YAML

from components import params
from components.core.config import named_blocks
from components.core.errors import SesameError
from components.core.mlflow_values import flatten
from components.stages import registry
from components.stages.outputs import METRICS
from pipelines import terminal
from pipelines.execution import lockfile, staleness
from pipelines.worktrees import checkout

WORKSPACE = "workspace"
READ = (str(params.FILE), str(params.STUDIES), str(params.STUDY_FOLDER), "dvc.lock", str(METRICS))
"""What is read of a commit: files, and a folder of files."""
Key = tuple[str, str, str, str, str, str]
"""model, task, method (a recipe of `adapt`, or a baseline), start, split, metric"""
ABSENT = object()
"""In place of a value that is not written: another thing than a written `null`."""


@dataclass(frozen=True)
class Side:
    """The files of an experiment, of a commit, or of this folder."""

    name: str
    params: dict[str, Any]
    """By file and path, `params.yaml models.bert.seed`."""
    locked: dict[str, dict]
    """Stage -> what dvc.lock says of it."""
    metrics: dict[tuple[str, str], dict]
    """(stage, name) -> the figures that it wrote."""
    stale: frozenset[tuple[str, str]] = frozenset()
    """Those of them whose figures are not of these params: an edit was committed, or `dvc exp run` had one target."""

    def without(self, stages: Collection[tuple[str, str]]) -> "Side":
        """The side without the figures of some stages."""
        return replace(self, metrics={key: measured for key, measured in self.metrics.items() if key not in stages})

    @property
    def scores(self) -> dict[Key, list[float | None]]:
        """Each seed's value of every metric on every split."""
        from components.report import tables

        return {
            _key(about, split, metric): figures["values"]
            for about, splits in tables.parts(self.metrics)
            for split, metrics in splits.items() if isinstance(metrics, dict)
            for metric, figures in metrics.items() if isinstance(figures, dict) and "values" in figures
        }  # fmt: skip

    @property
    def reported(self) -> list[Key]:
        """The scores that the tables show: of each task's metric, on its split."""
        from components.report import tables

        return [_key(about, about["split"], about["metric"]) for about, _ in tables.parts(self.metrics)]

    def examples_of(self, about: dict) -> tuple | None:
        """What a score is asked of: the examples of a split, and how many of them are taken; None where it is not
        known."""
        split, settings, folder = about["split"], about.get("settings", {}), f"data/tasks/{about['task']}"
        folders = (lockfile.hashes(stage, "outs").get(folder) for stage in self.locked.values())
        if (md5 := next(filter(None, folders), None)) is None or "eval_examples" not in settings:
            return None
        # a folder in DVC's cache is a list of its files: train may differ
        with suppress(FileNotFoundError, ValueError):
            files = json.loads(_cached(md5).read_bytes())
            md5 = next((one["md5"] for one in files if one["relpath"] == f"{split}.jsonl"), md5)
        taken = settings["eval_examples"]
        return md5, taken.get(split) if isinstance(taken, dict) else taken

    @property
    def examples(self) -> dict[Key, tuple | None]:
        """Of each score what it is asked of."""
        from components.report import tables

        return {
            _key(about, about["split"], about["metric"]): self.examples_of(about)
            for about, _ in tables.parts(self.metrics)
        }

    def losses_of(self, model: str) -> tuple | None:
        """What the losses of a pre-training are asked of: text and tokenizer, objective, length of rows; None where it
        is not known."""
        settings = self.metrics.get(("pretrain", model), {}).get("settings")
        inputs = self.locked.get(f"pretrain@{model}", {}).get("deps", ())
        read = [one.get("md5") for one in inputs if one["path"].startswith("data/encoded/")]
        return (read, settings["objective"], settings["architecture"]["max_length"]) if settings and read else None

    def bits_of(self, model: str) -> tuple | None:
        """What the bits per byte of a pre-training are asked of. From left to right they compare across tokenizers:
        text, whether capitals are in it, and the way of reading. Of other models they are those of their targets, and
        compare as losses do; None where it is not known."""
        settings = self.metrics.get(("pretrain", model), {}).get("settings")
        families = named_blocks(params.Architecture)  # without those of another version
        family = families.get(settings["architecture"]["name"]) if settings else None
        reads = family and family.reads
        if reads not in ("left_to_right", "recurrent"):
            return self.losses_of(model)
        inputs = self.locked.get(f"encode@{settings['encoding']}", {}).get("deps", ())
        text = [one.get("md5") for one in inputs if one["path"].startswith("data/corpora/")]
        tokenizers = (one["path"].split("/")[2] for one in inputs if one["path"].startswith("data/tokenizers/"))
        tokenizer = next(tokenizers, None)
        lowercase = self.metrics.get(("tokenizer", tokenizer), {}).get("settings", {}).get("lowercase")
        return (text, lowercase, reads) if text else None

    def cost(self, key: str) -> float:
        """Of all stages together: seconds, tokens, flops or kwh."""
        return sum(figures["cost"][key] for figures in self.metrics.values() if "cost" in figures)


def _key(about: dict, split: str, metric: str) -> Key:
    return about["model"], about["task"], about["method"], about["init"], split, metric


def read(name: str) -> Side:
    """A side by its name. Raises SesameError where there is no such experiment or commit."""
    files = dict(_here() if name == WORKSPACE else _committed(_commit(name)))
    if "params.yaml" not in files:
        raise SesameError(f"{name} has no params.yaml; name an experiment or commit of this project")
    locked = (YAML(typ="safe").load(files.get("dvc.lock", b"")) or {}).get("stages", {})
    yaml = {Path(path): text for path, text in files.items() if path.endswith(".yaml")}
    raw = {path: params.parse(text, f"{path} of {name}") for path, text in yaml.items()}
    # each file apart, since both have sections of the same name
    sections = {path: flatten(section) for path, section in raw.items() if isinstance(section, dict)}
    written = {f"{path}  {key}": value for path, section in sections.items() for key, value in section.items()}
    try:
        kept = json.loads(files.get(str(METRICS), b"{}"))
    except ValueError:
        raise SesameError(
            f"{METRICS} of {name} is not valid JSON (a merge conflict, or cut off): run `sesame run "
            "report` to write it again"
        ) from None
    checked = None  # where params are not valid in this version
    try:
        checked = params.check(raw[params.FILE], f"{params.FILE} of {name}", params.joined(raw))
        declared = registry.reported(checked)
        if name == WORKSPACE:  # params may have been edited since the last report
            kept = registry.declared_now(checked, kept)
    except SesameError:
        terminal.say(
            f"params.yaml of {name} is not valid in this version; all stages with figures there are compared", "yellow"
        )
        declared = [tuple(stage.split("@")) for stage in {**locked, **kept} if "@" in stage]
    figures = {
        (stage, item): _figures(locked.get(f"{stage}@{item}", {}), kept.get(f"{stage}@{item}"), name)
        for stage, item in declared
    }
    measured = {key: each for key, each in figures.items() if each}
    stale = frozenset()
    if checked is not None:
        stale = _stale_here(measured) if name == WORKSPACE else _stale(checked, locked, measured)
    return Side(name, written, locked, measured, stale)


def _stale_here(measured: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Stages of this folder that are to run: DVC knows their params, their code and their inputs."""
    try:
        return frozenset(tuple(name.split("@")) for name in staleness.stale(["@".join(key) for key in measured]))
    except SesameError as error:
        terminal.say(f"figures of the {WORKSPACE} may be of earlier params: {error}", "yellow")
        return frozenset()


def _stale(
    checked: params.Params, locked: Mapping[str, dict], measured: Mapping[tuple[str, str], dict]
) -> frozenset[tuple[str, str]]:
    """Stages of a commit whose figures are not of its params: they ran with other settings, or what they read was
    written again since.

    DVC is not asked: that needs the files of the commit.
    """
    settings = registry.settings(checked, {stage for stage, _ in measured})
    writes = {stage: lockfile.hashes(entry, "outs") for stage, entry in locked.items()}
    written = {path: (stage, md5) for stage, outs in writes.items() for path, md5 in outs.items()}

    @cache
    def stale(stage: str) -> bool:
        if not registry.is_of(measured.get(tuple(stage.split("@")), {}), settings.get(stage)):
            return True
        for path, md5 in lockfile.hashes(locked.get(stage, {}), "deps").items():
            writer, last = written.get(path, (None, None))
            if writer and (last != md5 or stale(writer)):
                return True
        return False

    return frozenset(key for key in measured if stale("@".join(key)))


def _figures(entry: dict, kept: dict | None, side: str) -> dict | None:
    """The metrics of a stage: its file here, or what dvc.lock of a commit names in DVC's cache; else the copy of the
    report."""
    for out in entry.get("outs", ()):
        if out["path"].startswith("data/metrics/"):
            path = Path(out["path"]) if side == WORKSPACE else _cached(out["md5"])
            with suppress(FileNotFoundError, ValueError):
                return json.loads(path.read_bytes())
    return kept


@cache
def _cache_folder() -> Path:
    return Path(Repo().cache.local.path)


def _cached(md5: str) -> Path:
    """Where DVC's cache has a file."""
    return _cache_folder() / md5[:2] / md5[2:]


def _commit(name: str) -> str:
    """Of an experiment the newest commit of this name, else what git makes of it."""
    refs = checkout.experiments()
    try:
        return checkout.git("rev-parse", "--verify", "--quiet", f"{refs.get(name, name)}^{{commit}}").decode().strip()
    except SesameError:
        known = ", ".join(refs) or "none"
        raise SesameError(
            f"no experiment or commit {name!r} (experiments: {known}; `{WORKSPACE}` means the files in this folder)"
        ) from None


def _committed(commit: str) -> Iterator[tuple[str, bytes]]:
    there = checkout.git("ls-tree", "--name-only", commit, "--", *READ).decode().split()
    with tarfile.open(fileobj=io.BytesIO(checkout.git("archive", commit, "--", *there))) as archive:
        yield from ((member.name, archive.extractfile(member).read()) for member in archive if member.isfile())


def _here() -> Iterator[tuple[str, bytes]]:
    for path in (*params.files(), Path("dvc.lock"), METRICS):
        if path.is_file():
            yield str(path), path.read_bytes()
