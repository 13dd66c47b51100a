"""Comparison of two experiments: the params that differ, the scores with their intervals, the cost."""

import json
import os
import statistics
from typing import Any

from components.finetune.stages import spread
from components.stages import registry
from components.stages.outputs import METRICS
from pipelines import terminal
from pipelines.execution import lockfile, staleness
from pipelines.worktrees.sides import ABSENT, WORKSPACE, Side, read

LOSSES = ("loss", "perplexity")
CELL = 60
"""Characters of a value in a table."""


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
    for side in (a, b):
        _say_stale(side)
    left_out = a.stale | b.stale
    a, b = a.without(left_out), b.without(left_out)
    if not (a.metrics or b.metrics):
        return
    _scores(a, b)
    _pretraining(a, b)
    _tables(a, b)
    cost = {key: (a.cost(key), b.cost(key)) for key in ("seconds", "tokens", "flops", "kwh")}
    costs = [[key, _figure(ours), _figure(theirs), f"{ours / theirs:.2f}" if theirs else "–"] for key, (ours, theirs) in cost.items()]
    terminal.say("")
    terminal.table([f"cost of {'the other' if left_out else 'all'} stages", name, other, f"{name} / {other}"], costs)
    if elsewhere := sorted(stage for stage in a.locked.keys() & b.locked.keys() if _elsewhere(a.locked[stage], b.locked[stage])):
        terminal.say(
            f"same inputs but different outputs: {terminal.some(elsewhere)}; "
            f"one side was computed on another machine. Run here, then compare with `{WORKSPACE}`",
            "yellow",
        )


def _say_stale(side: Side) -> None:
    """Edited params stand beside the figures of an earlier run."""
    names, its = sorted("@".join(key) for key in side.stale), "its" if len(side.stale) == 1 else "their"
    of = "the current params and code" if side.name == WORKSPACE else f"the params of {side.name}"
    staleness.say_not_run(names, f"{its} figures are left out", of)


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


SHOWN = ("finetune", "adapt", "baseline", "pretrain")
"""Stages whose figures have rows and differences of their own above."""
TIMES = ("seconds", "tokens/s")
"""Columns that differ from run to run; they are the last ones of a table."""


def _tables(a: Side, b: Side) -> None:
    """Print what the other stages show of their figures (evaluations, alignments, translations ...), where it differs.
    """
    for stage in registry.stages().values():
        if stage.table is None or stage.name in SHOWN:
            continue
        columns, rows = [column for column in stage.table({}).columns if column not in TIMES], []
        for key in dict.fromkeys(key for side in (a, b) for key in side.metrics if key[0] == stage.name):
            measured = ({key: side.metrics[key]} if key in side.metrics else {} for side in (a, b))
            ours, theirs = ([row[: len(columns)] for row in stage.table(each).rows] for each in measured)
            rows += [[a.name, *row] for row in ours if row not in theirs]
            rows += [[b.name, *row] for row in theirs if row not in ours]
        if rows:
            terminal.say("")
            terminal.table([stage.name, *columns], rows)


TIMED = ("data/metrics/", "data/curves/", "data/report/")
"""Outputs with seconds in them, which differ from run to run on the same machine, too."""


def _elsewhere(ours: dict, theirs: dict) -> bool:
    def outputs(stage: dict) -> dict[str, str]:
        return {path: md5 for path, md5 in lockfile.hashes(stage, "outs").items() if not path.startswith(TIMED)}

    same_inputs = all(ours.get(key) == theirs.get(key) for key in ("cmd", "params"))
    same_inputs &= lockfile.hashes(ours, "deps") == lockfile.hashes(theirs, "deps")
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
