"""`python -m components.tasks NAME`: the sources of a task -> data/tasks/<name>/<split>.jsonl and card.json."""

import hashlib
import math
from collections import Counter
from pathlib import Path

from components import params, stage
from components.errors import SesameError, one_line
from components.params.tasks import GROUPED
from components.sources import tables
from components.tasks import Example
from components.tasks.readers import READERS, Found, unknown
from components.tracking import Run


def examples(task: params.Task, split: str, dropped: Counter) -> Found:
    """`(place, group, example)` of every row of a split's own source. Raises SesameError that names file and line."""
    block = task.splits[split]
    if table := block.table or task.table:
        return rows(task, block, table, split, dropped)
    return structured(task, block, split)


def structured(task: params.Task, block: params.TaskSplit, split: str) -> Found:
    """The examples of a file that is no plain table."""
    place = f"{split}, before the first example"
    try:
        for found in READERS[task.reader](task, block.source, split, block.labelled):
            place = f"after {found[0]}"
            yield found
    except (TypeError, AttributeError, LookupError, ValueError) as error:  # a list where the format has an object, a text for a number
        raise SesameError(f"{place}: not the form that reader {task.reader} reads: {type(error).__name__}: {one_line(error)}") from None


def rows(task: params.Task, block: params.TaskSplit, table: params.TaskTable, split: str, dropped: Counter) -> Found:
    """The examples of a plain table. A group is kept where a metric judges it as one."""
    judged = set(GROUPED) & set(block.metrics or task.metrics)
    for number, (place, row) in enumerate(tables.rows(block.source, table)):
        raw = tables.text(place, row, table.label) if block.labelled else None
        if raw in table.drop_labels:
            dropped[f"{split}: label {raw}"] += 1
            continue
        name = tables.text(place, row, table.id) if table.id is not None else f"{split}-{number}"
        text_a = tables.text(place, row, table.text_a).strip()
        text_b = tables.text(place, row, table.text_b).strip() if table.text_b is not None else None
        group = f"{text_a}\t{text_b}"
        if table.group is not None:
            group = tables.text(place, row, table.group)
        elif table.group_rows is not None:
            group = f"{split}-{number // table.group_rows}"
        found = label(task, table, raw, place) if block.labelled else None
        yield place, group, Example(name, text_a, text_b, found, group=group if judged else None)


def label(task: params.Task, table: params.TaskTable, raw: str, place: str) -> str | float:
    """A label name, or a number for regression. Raises SesameError that names place and allowed labels."""
    if task.kind == "classification" and not table.thresholds:
        name = table.label_names.get(raw, raw)
        if name not in task.labels:
            raise unknown(place, raw, [*task.labels, *table.label_names])
        return name
    try:
        number = float(raw)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SesameError(f"{place}: the label is {raw!r}, not a number")
    if task.kind == "regression":
        if task.range and not task.range[0] <= number <= task.range[1]:
            raise SesameError(f"{place}: the label {raw} is outside the task's range {list(task.range)}")
        return number
    return task.labels[sum(number > threshold for threshold in table.thresholds)]


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
    shares = {split: block.share for split, block in task.splits.items() if block.share is not None}
    found: dict[str, list[Example]] = {split: [] for split in task.splits}
    for split, block in task.splits.items():
        places: dict[str, str] = {}
        for place, group, example in examples(task, split, dropped) if block.source else ():
            if split == "train" and empty(example):  # nothing to learn from; other splits are judged whole, as they were published
                dropped["train: empty text"] += 1
                continue
            if example.id in places:
                raise SesameError(f"{place}: the id {example.id!r} is taken by {places[example.id]}")
            places[example.id] = place
            found[side(group, all_params.seed, shares) if split == "train" else split].append(example)
    for split in task.splits:
        if not found[split]:
            source = (task.splits[split].source or task.train.source).shown
            raise SesameError(f"tasks.{name}.{split}: no examples in {source}{told(dropped)}; give it a source with rows or a larger share")
    if task.kind == "classification" and len(labels := {example.label for example in found["train"]}) == 1:
        raise SesameError(f"tasks.{name}.train: all {len(found['train']):,} examples are {labels.pop()!r}; to classify, another label must be among them")
    with stage.output(Path("data/tasks", name)) as folder:
        folder.mkdir()
        card = {key: getattr(task, key) for key in ("licence", "note", "language", "kind", "metrics")} | {"dropped": dict(dropped)}
        card["sources"] = [block.source.model_dump(mode="json") for block in task.splits.values() if block.source]
        for split in task.splits:
            (folder / f"{split}.jsonl").write_text("".join(example.line() for example in found[split]), encoding="utf-8")
            card[split] = describe(task, found[split])
            card[split]["sha256"] = hashlib.sha256((folder / f"{split}.jsonl").read_bytes()).hexdigest()
        stage.write_json(folder / "card.json", card)
    sizes = {split: len(found[split]) for split in task.splits}
    print(", ".join(f"{split} {size:,}" for split, size in sizes.items()) + told(dropped))
    words = sum(len(text.split()) for split in found.values() for example in split for text in (example.text_a, example.text_b or ""))
    return {"examples": sizes, "words": words, "dropped": sum(dropped.values())}


def empty(example: Example) -> bool:
    """Whether one of its texts is."""
    return "" in (example.text_a, example.text_b)


def told(dropped: Counter) -> str:
    return f"; dropped {', '.join(f'{count:,} of {reason}' for reason, count in dropped.items())}" if dropped else ""


def describe(task: params.Task, rows: list[Example]) -> dict:
    """Rows, those with an empty text, and each label's share or the range of the scores."""
    found: dict = {"rows": len(rows)} | ({"empty": count} if (count := sum(map(empty, rows))) else {})
    labels = [row.label for row in rows if row.label is not None]
    if not labels:
        return found | {"labelled": False}
    if task.kind == "regression":
        return found | {"mean": sum(labels) / len(labels), "min": min(labels), "max": max(labels)}
    if task.kind == "choice":
        return found | {"choices_mean": sum(len(row.choices) for row in rows) / len(rows)}
    if task.kind == "extraction":
        return found | {"answers_mean": sum(map(len, labels)) / len(rows)}
    if task.kind == "tagging":
        labels = [tag for tags in labels for tag in tags]
        found["words"] = len(labels)
    counts = Counter(labels)
    return found | {"labels": {name: counts[name] / len(labels) for name in task.labels}}


if __name__ == "__main__":
    stage.main("task", prepare, "tasks")
