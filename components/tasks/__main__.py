"""`python -m components.tasks NAME`: the sources of a task -> data/tasks/<name>/{train,dev,test}.jsonl and card.json."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from components import params, stage
from components.errors import SesameError
from components.sources import tables
from components.tasks import SPLITS, Example
from components.tracking import Run


def examples(task: params.Task, source: params.Source, split: str, dropped: Counter) -> Iterator[tuple[str, Example]]:
    """`(group, example)` of every row. Raises SesameError that names file and line."""
    table = task.table
    for number, (place, row) in enumerate(tables.rows(source, table)):
        raw = str(tables.value(place, row, table.label))
        if raw in table.drop_labels:
            dropped[f"{split}: label {raw}"] += 1
            continue
        text_a = str(tables.value(place, row, table.text_a)).strip()
        text_b = str(tables.value(place, row, table.text_b)).strip() if table.text_b is not None else None
        group = str(tables.value(place, row, table.group)) if table.group is not None else f"{text_a}\t{text_b}"
        yield group, Example(f"{split}-{number}", text_a, text_b, label(task, raw, place))


def label(task: params.Task, raw: str, place: str) -> str | float:
    """A label name, or a number for regression. Raises SesameError that names place and allowed labels."""
    if task.kind == "classification" and not task.table.thresholds:
        if raw not in task.labels:
            raise SesameError(f"{place}: unknown label {raw!r} (allowed: {', '.join(task.labels)})")
        return raw
    try:
        number = float(raw)
    except ValueError:
        raise SesameError(f"{place}: the label is {raw!r}, not a number") from None
    if task.kind == "regression":
        return number
    return task.labels[sum(number > threshold for threshold in task.table.thresholds)]


def side(group: str, seed: int, shares: dict[str, float]) -> str:
    """The split that a group of rows belongs to, by its hash: stable when rows are added."""
    number = int.from_bytes(hashlib.sha256(f"{seed}\t{group}".encode()).digest()[:8]) / 2**64
    for split, share in shares.items():
        if number < share:
            return split
        number -= share
    return "train"


def prepare(all_params: params.Params, name: str, run: Run) -> dict:
    task, dropped = all_params.tasks[name], Counter()
    declared = {split: getattr(task, split) for split in SPLITS}
    shares = {split: block.share for split, block in declared.items() if block.share}
    found: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for group, example in examples(task, declared["train"].source, "train", dropped):
        found[side(group, all_params.seed, shares)].append(example)
    for split in ("dev", "test"):
        if declared[split].source:
            found[split] = [example for _, example in examples(task, declared[split].source, split, dropped)]
    for split in SPLITS:
        if not found[split]:
            raise SesameError(f"tasks.{name}.{split}: no examples; give it a source with rows or a larger share")
    with stage.output(Path("data/tasks", name)) as folder:
        folder.mkdir()
        card = {"licence": task.licence, "language": task.language, "kind": task.kind, "metric": task.metric, "dropped": dict(dropped)}
        card["sources"] = [block.source.model_dump(mode="json") for block in declared.values() if block.source]
        for split in SPLITS:
            (folder / f"{split}.jsonl").write_text("".join(example.line() for example in found[split]), encoding="utf-8")
            card[split] = describe(task, found[split])
            card[split]["sha256"] = hashlib.sha256((folder / f"{split}.jsonl").read_bytes()).hexdigest()
        stage.write_json(folder / "card.json", card)
    sizes = {split: len(found[split]) for split in SPLITS}
    print(", ".join(f"{split} {size:,}" for split, size in sizes.items()) + (f"; dropped {sum(dropped.values())}" if dropped else ""))
    words = sum(len(text.split()) for example in chain.from_iterable(found.values()) for text in (example.text_a, example.text_b or ""))
    return {"examples": sizes, "words": words, "dropped": sum(dropped.values())}


def describe(task: params.Task, rows: list[Example]) -> dict:
    """Rows, and each label's share or the range of the scores."""
    if task.kind == "regression":
        values = [row.label for row in rows]
        return {"rows": len(rows), "mean": sum(values) / len(values), "min": min(values), "max": max(values)}
    counts = Counter(row.label for row in rows)
    return {"rows": len(rows), "labels": {name: counts[name] / len(rows) for name in task.labels}}


if __name__ == "__main__":
    stage.main("task", prepare, "tasks")
