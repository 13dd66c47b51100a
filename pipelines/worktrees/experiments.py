"""Comparison of two experiments: the params that differ, the scores with their intervals, the cost."""

import io
import json
import os
import statistics
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dvc.repo import Repo
from ruamel.yaml import YAML

from components import params
from components.core.config import named_blocks
from components.core.errors import SesameError
from components.core.tracking import flatten
from components.finetune.stages import spread
from components.stages import registry
from components.stages.outputs import METRICS
from pipelines import terminal
from pipelines.execution import graph
from pipelines.worktrees import checkout

WORKSPACE = "workspace"
READ = (str(params.FILE), str(params.STUDIES), str(params.STUDY_FOLDER), "dvc.lock", str(METRICS))
"""What is read of a commit: files, and a folder of files."""
Key = tuple[str, str, str, str, str, str]
"""model, task, method (a recipe of `adapt`, or a baseline), start, split, metric"""
ABSENT = object()
"""In place of a value that is not written: another thing than a written `null`."""
LOSSES = ("loss", "perplexity")
CELL = 60
"""Characters of a value in a table."""


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

    def examples_of(self, task: str, split: str, settings: dict) -> tuple | None:
        """What a score is asked of: the examples of a split, and how many of them are taken; None where it is not known."""
        folders = (out for stage in self.locked.values() for out in stage.get("outs", ()) if out["path"] == f"data/tasks/{task}")
        if (folder := next(folders, None)) is None or "eval_examples" not in settings:
            return None
        md5 = folder["md5"]
        with suppress(FileNotFoundError, ValueError):  # a folder in DVC's cache is a list of its files: train may differ
            md5 = next((one["md5"] for one in json.loads(_cached(md5).read_bytes()) if one["relpath"] == f"{split}.jsonl"), md5)
        taken = settings["eval_examples"]
        return md5, taken.get(split) if isinstance(taken, dict) else taken

    @property
    def examples(self) -> dict[Key, tuple | None]:
        """Of each score what it is asked of."""
        from components.report import tables

        return {
            _key(about, about["split"], about["metric"]): self.examples_of(about["task"], about["split"], about.get("settings", {}))
            for about, _ in tables.parts(self.metrics)
        }

    def losses_of(self, model: str) -> tuple | None:
        """What the losses of a pre-training are asked of: text and tokenizer, objective, length of rows; None where it is
        not known."""
        settings = self.metrics.get(("pretrain", model), {}).get("settings")
        inputs = self.locked.get(f"pretrain@{model}", {}).get("deps", ())
        read = [one.get("md5") for one in inputs if one["path"].startswith("data/encoded/")]
        return (read, settings["objective"], settings["architecture"]["max_length"]) if settings and read else None

    def bits_of(self, model: str) -> tuple | None:
        """What the bits per byte of a pre-training are asked of. From left to right they compare across tokenizers: text, whether capitals
        are in it, and the way of reading. Of other models they are those of their targets, and compare as losses do; None where it is not
        known."""
        settings = self.metrics.get(("pretrain", model), {}).get("settings")
        family = named_blocks(params.Architecture).get(settings["architecture"]["name"]) if settings else None  # of another version: None
        reads = family and family.reads
        if reads not in ("left_to_right", "recurrent"):
            return self.losses_of(model)
        inputs = self.locked.get(f"encode@{settings['encoding']}", {}).get("deps", ())
        text = [one.get("md5") for one in inputs if one["path"].startswith("data/corpora/")]
        tokenizer = next((one["path"].split("/")[2] for one in inputs if one["path"].startswith("data/tokenizers/")), None)
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
    raw = {Path(path): params.parse(text, f"{path} of {name}") for path, text in files.items() if path.endswith(".yaml")}
    # each file apart, since both have sections of the same name
    written = {f"{path}  {key}": value for path, part in raw.items() if isinstance(part, dict) for key, value in flatten(part).items()}
    try:
        kept = json.loads(files.get(str(METRICS), b"{}"))
    except ValueError:
        raise SesameError(
            f"{METRICS} of {name} is not valid JSON (a merge conflict, or cut off): run `sesame run "
            "report` to write it again"
        ) from None
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
    return Side(name, written, locked, {key: measured for key, measured in figures.items() if measured})


def _figures(entry: dict, kept: dict | None, side: str) -> dict | None:
    """The metrics of a stage: its file here, or what dvc.lock of a commit names in DVC's cache; else the copy of the report."""
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


def interval(a: list[float | None], b: list[float | None]) -> tuple[float, float] | None:
    """The 95 % interval of the difference of means over seeds (Welch's t); None where a side has one seed, or no deviation at all."""
    from scipy import stats

    if None in (*a, *b) or min(len(a), len(b)) < 2 or not statistics.pvariance(a) + statistics.pvariance(b):
        return None
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return float(low), float(high)


def show(name: str, other: str) -> None:
    """Print how an experiment differs from another; every difference is the first minus the second."""
    a, b = read(name), read(other)
    if WORKSPACE in (name, other):
        _say_if_stale(a if name == WORKSPACE else b)
    keys = sorted(a.params.keys() | b.params.keys())
    values = [(key, a.params.get(key, ABSENT), b.params.get(key, ABSENT)) for key in keys]
    rows = [[key, *_cells(ours, theirs)] for key, ours, theirs in values if ours != theirs]
    if rows:
        terminal.table(["param", name, other], rows)
    else:
        terminal.say("the params are the same")
    if not (a.metrics and b.metrics):
        terminal.say(f"{name if not a.metrics else other} has no figures to compare: neither DVC's cache nor {METRICS} has any")
        return
    _scores(a, b)
    _pretraining(a, b)
    cost = {key: (a.cost(key), b.cost(key)) for key in ("seconds", "tokens", "flops", "kwh")}
    costs = [[key, _figure(ours), _figure(theirs), f"{ours / theirs:.2f}" if theirs else "–"] for key, (ours, theirs) in cost.items()]
    terminal.say("")
    terminal.table(["cost of all stages", name, other, f"{name} / {other}"], costs)
    if elsewhere := sorted(stage for stage in a.locked.keys() & b.locked.keys() if _elsewhere(a.locked[stage], b.locked[stage])):
        terminal.say(
            f"same inputs but different outputs: {terminal.some(elsewhere)}; "
            f"one side was computed on another machine. Run here, then compare with `{WORKSPACE}`",
            "yellow",
        )


def _say_if_stale(workspace: Side) -> None:
    """Edited params stand beside the figures of the last run."""
    try:
        graph.say_stale(["@".join(key) for key in workspace.metrics], "figures of the workspace are of earlier ones")
    except SesameError as error:
        terminal.say(f"figures of the workspace may be of earlier params: {error}", "yellow")


def _scores(a: Side, b: Side) -> None:
    rows, same, left, right, unlike = [], 0, a.scores, b.scores, []
    asked, asked_there = a.examples, b.examples
    for key in dict.fromkeys((*a.reported, *b.reported)):
        ours, theirs = left.get(key, []), right.get(key, [])
        if ours == theirs:
            same += 1
            continue
        difference = ""
        examples = asked.get(key), asked_there.get(key)
        if None not in examples and examples[0] != examples[1]:
            unlike.append(key[1])
        elif ours and theirs and None not in (*ours, *theirs):
            bounds = interval(ours, theirs)
            difference = f"{statistics.fmean(ours) - statistics.fmean(theirs):+.3f}"
            difference += f" [{bounds[0]:+.3f}, {bounds[1]:+.3f}]" if bounds else ""
        rows.append([*key, _spread(ours), _spread(theirs), difference])
    terminal.say("")
    if rows:
        difference = f"{a.name} minus {b.name} [95 %]"
        terminal.table(["model", "task", "method", "init", "split", "metric", a.name, b.name, difference], rows)
    terminal.say(f"scores that are the same: {same}")
    if unlike:
        names = ", ".join(dict.fromkeys(unlike))
        terminal.say(f"scores on {names} don't compare: the two sides ask other examples (the data, or eval_examples)")
    if rows:
        terminal.say(
            "intervals are over seeds of fine-tuning (Welch's t); of a model with one of `pretrainings` they do not cover the variation "
            "between pre-trainings"
        )


def _pretraining(a: Side, b: Side) -> None:
    rows, unlike, unlike_bits = [], [], []
    for key in dict.fromkeys((*a.metrics, *b.metrics)):
        if key[0] != "pretrain":
            continue
        ours, theirs = a.metrics.get(key, {}), b.metrics.get(key, {})
        same_losses = None in (targets := (a.losses_of(key[1]), b.losses_of(key[1]))) or targets[0] == targets[1]
        same_bits = None in (targets := (a.bits_of(key[1]), b.bits_of(key[1]))) or targets[0] == targets[1]
        unlike += [] if same_losses else [key[1]]
        unlike_bits += [] if same_bits else [key[1]]
        comparable = {**dict.fromkeys(LOSSES, same_losses), "bits_per_byte": same_bits, "tokens": True}
        for figure, compares in comparable.items():
            if ours.get(figure) != theirs.get(figure):
                both = figure in ours and figure in theirs and compares
                difference = f"{ours[figure] - theirs[figure]:+.4g}" if both else ""
                rows.append([key[1], figure.replace("_", " "), *(_figure(side.get(figure)) for side in (ours, theirs)), difference])
    if rows:
        terminal.say("")
        terminal.table(["pre-training", "", a.name, b.name, f"{a.name} minus {b.name}"], rows)
    if unlike:
        terminal.say(
            f"losses and perplexities of {', '.join(unlike)} don't compare: the two sides have another text, tokenizer, "
            "objective or length of rows"
        )
    if unlike_bits:
        terminal.say(
            f"bits per byte of {', '.join(unlike_bits)} don't compare: the two sides have another text, letter case or way of reading. "
            "They compare across tokenizers, from left to right"
        )


TIMED = ("data/metrics/", "data/curves/", "data/report/")
"""Outputs with seconds in them, which differ from run to run on the same machine, too."""


def _elsewhere(ours: dict, theirs: dict) -> bool:
    def side(stage: dict, key: str) -> dict[str, str]:
        return {item["path"]: item.get("md5") for item in stage.get(key, ())}

    def outputs(stage: dict) -> dict[str, str]:
        return {path: md5 for path, md5 in side(stage, "outs").items() if not path.startswith(TIMED)}

    same_inputs = all(ours.get(key) == theirs.get(key) for key in ("cmd", "params")) and side(ours, "deps") == side(theirs, "deps")
    return same_inputs and outputs(ours) != outputs(theirs)


def _spread(values: list[float | None]) -> str:
    if not values or None in values:
        return "undefined" if values else "–"
    return spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if value and not 0.001 <= abs(value) < 1e9 else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _text(value: Any) -> str:
    if value is ABSENT:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _cells(*values: Any) -> list[str]:
    """The values as text; where they are long, from shortly before the first difference on."""
    texts = [_text(value) for value in values]
    same = len(os.path.commonprefix(texts)) - CELL // 3
    if same > 0 and max(map(len, texts)) > CELL:
        texts = [f"...{text[same:]}" for text in texts]
    return [text if len(text) <= CELL else f"{text[: CELL - 3]}..." for text in texts]
