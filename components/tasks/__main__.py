"""`python -m components.tasks NAME`: the sources of a task -> data/tasks/<name>/<split>.jsonl and card.json."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from components import params
from components.core import storage
from components.core.errors import SesameError, one_line
from components.core.tracking import Run
from components.params.tasks import GROUPED, NO_ANSWER
from components.stages import stage
from components.tasks import Example, metrics, overlaps, readers
from components.tasks.readers.fields import Examples, unknown_label
from components.text.sources import tables


def examples(task: params.Task, split: str, dropped: Counter) -> Examples:
    """Yield `(place, group, example)` for each row of a split's source. Raise SesameError that names file and line."""
    declared = task.splits[split]
    if table := declared.table or task.table:
        return rows(task, declared, table, split, dropped)
    return structured(task, declared, split)


def structured(task: params.Task, declared: params.TaskSplit, split: str) -> Examples:
    """Yield the examples of a file that is not a plain table. Raise SesameError with the last place that could be read."""
    read = readers.load(task.reader)
    place = f"{split}, before the first example"
    try:
        for row in read(task, declared.source, split, declared.labelled):
            place = f"after {row[0]}"
            yield row
    except (TypeError, AttributeError, LookupError, ValueError) as error:  # e.g. a list instead of an object, a text instead of a number
        raise SesameError(f"{place}: not the form that reader {task.reader} reads: {type(error).__name__}: {one_line(error)}") from None


def rows(task: params.Task, declared: params.TaskSplit, table: params.TaskTable, split: str, dropped: Counter) -> Examples:
    """Yield the examples of a plain table. An example has its group only if a metric evaluates groups."""
    needs_group = set(GROUPED.get(task.kind, ())) & set(declared.metrics or task.metrics)
    for number, (place, row) in enumerate(tables.rows(declared.source, table)):
        raw = tables.text(place, row, table.label) if declared.labelled else None
        if raw in table.drop_labels:
            dropped[f"{split}: label {raw}"] += 1
            continue
        name = tables.text(place, row, table.id) if table.id is not None else f"{split}-{number}"
        text_a = tables.text(place, row, table.text_a).strip()
        text_b = tables.text(place, row, table.text_b).strip() if table.text_b is not None else None
        # Rows of a group stay in the same split: by column, by number, or with the same texts in either order, which would otherwise be
        # in training and test.
        first, second = (text_a, text_b) if text_b is None else sorted((text_a, text_b))
        group = f"{first}\t{second}"
        if table.group is not None:
            group = tables.text(place, row, table.group).strip()
            if not group:  # rows without one would be a group of all of them
                raise SesameError(f"{place}: column {table.group!r} is empty, where a group is wanted; fill it, or leave the row out")
        elif table.group_rows is not None:
            group = f"{split}-{number // table.group_rows}"
        offered = choices(place, row, table.choices) if table.choices else None
        parsed = label(task, table, raw, place, offered) if declared.labelled else None
        yield place, group, Example(name, text_a, text_b, parsed, group=group if needs_group else None, choices=offered)


def choices(place: str, row: tables.Row, columns: list[str | int]) -> dict[str, str]:
    """Return name -> text of the choices of a row, without empty ones, of which a row may have fewer than the table has columns. Raise
    SesameError where there are not two, or two are the same."""
    if len(columns) > 1:
        texts = [tables.text(place, row, column) for column in columns]
        names = [str(i) for i in range(len(texts))]
    else:
        names, texts = listed(place, columns[0], tables.value(place, row, columns[0]))
    offered = {name: text.strip() for name, text in zip(names, texts, strict=True) if text.strip()}
    if len(offered) < 2:
        raise SesameError(f"{place}: {len(offered)} choices with a text; an example needs two")
    if len(set(offered.values())) < len(offered):
        raise SesameError(f"{place}: two choices are the same text; leave one out")
    return offered


def listed(place: str, column: str | int, field: Any) -> tuple[list[str], list[str]]:
    """Return names and texts of the choices in one field: a list of texts, or an object of two lists."""
    names, texts = (field.get("label"), field.get("text")) if isinstance(field, dict) else (None, field)
    texts, names = ([*each] if isinstance(each, list | tuple | np.ndarray) else each for each in (texts, names))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        wanted = 'a list of texts, or {"text": [...], "label": [...]}'
        raise SesameError(f"{place}: column {column!r} holds no choices, which are {wanted}")
    names = [str(i) for i in range(len(texts))] if names is None else [str(name) for name in names]
    if len(names) != len(texts) or len(set(names)) < len(names):
        raise SesameError(f"{place}: column {column!r} has {len(texts)} choices and {len(set(names))} different names")
    return names, texts


def label(
    task: params.Task, table: params.TaskTable, raw: str, place: str, offered: Mapping[str, str] | None = None
) -> str | float | list[str]:  # fmt: skip
    """Return a label name, a number for regression, the name of the right choice, or the correct text.

    Raise SesameError that names place and allowed labels."""
    if task.kind == "text":
        return [raw.strip()]
    if offered is not None:
        if (name := table.label_names.get(raw, raw)) not in offered:
            raise unknown_label(place, raw, [*offered, *table.label_names])
        return [name]
    if task.kind == "classification" and not table.thresholds:
        name = table.label_names.get(raw, raw)
        if name not in task.labels:
            raise unknown_label(place, raw, [*task.labels, *table.label_names])
        return name
    named = table.label_names.get(raw, raw)
    try:
        number = math.nan if "_" in named else float(named)  # Python reads `1_5` as 15
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SesameError(f"{place}: the label is {raw!r}, not a number")
    if task.kind == "regression":
        if task.range and not task.range[0] <= number <= task.range[1]:
            raise SesameError(f"{place}: the label {raw} is outside the task's range {list(task.range)}")
        return number
    return task.labels[sum(number > threshold for threshold in table.thresholds)]


def split_of(group: str, seed: int, shares: dict[str, float]) -> str:
    """Return the split of a group of rows by its hash, which is stable when rows are added."""
    number = int.from_bytes(hashlib.sha256(f"{seed}\t{group}".encode()).digest()[:8]) / 2**64
    for split, share in shares.items():
        if number < share:
            return split
        number -= share
    return "train"


def prepare(all_params: params.Params, name: str, run: Run) -> dict:
    """Read, split and write the task `name`; return its counts. Raise SesameError with the place of any problem in the files."""
    task, dropped = all_params.tasks[name], Counter()
    splits = read_splits(task, all_params.seed, dropped)
    check(name, task, splits, dropped)
    with storage.output(Path("data/tasks", name)) as folder:
        folder.mkdir()
        known = {split: overlaps.in_train(splits["train"], examples) for split, examples in splits.items() if split != "train"}
        write(folder, task, splits, dropped, known)
    for split, counts in known.items():
        if counts["normalised"]:
            print(
                f"{split}: {counts['normalised']:,} of {len(splits[split]):,} examples are also in train, {counts['exact']:,} of them "
                "identical: their scores measure memory"
            )
        if counts["other_order"]:
            print(f"{split}: {counts['other_order']:,} of {len(splits[split]):,} pairs are in train in the other order")
        if task.splits[split].share is not None and (shared := overlaps.of_known_first_text(splits["train"], splits[split])):
            cure = "; `table.group` keeps the rows of a column's value on one side"
            able = task.table and task.table.group is None and task.table.group_rows is None
            count = f"{shared:,} of {len(splits[split]):,} pairs"
            print(f"{split}: {count} have a first text that is in train in another pair{cure if able else ''}")
    repeats = {split: overlaps.repeated(examples) for split, examples in splits.items()}
    for split, (again, contrary) in repeats.items():
        if again:
            count = f"{again:,} of {len(splits[split]):,} examples"
            print(f"{split}: {count} repeat the texts of another one, {contrary:,} of them with another label")
    sizes = {split: len(examples) for split, examples in splits.items()}
    none = {split: unanswerable(task, examples) for split, examples in splits.items()}
    shown = (f"{split} {size:,}" + f" ({none[split]:,} without an answer)" * (none[split] > 0) for split, size in sizes.items())
    print(", ".join(shown) + dropped_text(dropped))
    texts = (f"{example.text_a} {example.text_b or ''}" for examples in splits.values() for example in examples)
    return {
        "examples": sizes, "words": sum(len(text.split()) for text in texts), "dropped": sum(dropped.values()),
        "repeated": {split: again for split, (again, _) in repeats.items()},
    }  # fmt: skip


def read_splits(task: params.Task, seed: int, dropped: Counter) -> dict[str, list[Example]]:
    """Return the examples by split, in the order of the files; count left-out rows in `dropped` by reason.

    Raise SesameError with the place of a row that can't be read, or of an id that occurs twice.
    """
    shares = {split: declared.share for split, declared in task.splits.items() if declared.share is not None}
    splits: dict[str, list[Example]] = {split: [] for split in task.splits}
    group_of: dict[str, list[str]] = {split: [] for split in task.splits}
    groups = Counter()  # of train
    for split, declared in task.splits.items():
        places: dict[str, str] = {}
        for place, group, example in examples(task, split, dropped) if declared.source else ():
            if split == "train" and empty(task, example):  # other splits are evaluated completely, as they were published
                dropped["train: empty text"] += 1
                continue
            if example.id in places:
                raise SesameError(f"{place}: the id {example.id!r} is taken by {places[example.id]}")
            places[example.id] = place
            groups[group] += split == "train"
            # splits without a source are shares of train's
            taken = split_of(group, seed, shares) if split == "train" else split
            splits[taken].append(example)
            group_of[taken].append(group)
    if shares and len(groups := +groups) == 1 and groups.total() > 1:
        raise SesameError(
            f"all rows of {task.train.source.shown} are one group (of the same texts, or by `group`), which no share divides; "
            f"give {' and '.join(shares)} a source, or the rows other groups"
        )
    return {split: clustered(examples, group_of[split]) for split, examples in splits.items()}


def clustered(examples: list[Example], groups: list[str]) -> list[Example]:
    """Return the examples of a split, with the group of each as its cluster where others have the same: a passage, a premise."""
    shared = {group for group, count in Counter(groups).items() if count > 1}
    return [
        replace(example, cluster=hashlib.sha256(group.encode()).hexdigest()[:12]) if group in shared else example
        for example, group in zip(examples, groups, strict=True)
    ]


def check(name: str, task: params.Task, splits: dict[str, list[Example]], dropped: Counter) -> None:
    """Raise SesameError if a split is empty, or train has a single label: every training on the task would fail."""
    for split in task.splits:
        if not splits[split]:
            source = (task.splits[split].source or task.train.source).shown
            raise SesameError(
                f"tasks.{name}.{split}: no examples in {source}{dropped_text(dropped)}; give it a source with rows or a larger share"
            )
    train = splits["train"]
    if task.kind == "classification" and len(labels := {example.label for example in train}) == 1:
        raise SesameError(
            f"tasks.{name}.train: all {len(train):,} examples are {labels.pop()!r}; to classify, another label must be among them"
        )
    if task.kind == "regression":
        for split, declared in task.splits.items():
            if declared.labelled:
                check_scores(f"tasks.{name}.{split}", splits[split])
    if task.kind == "classification":
        used = {example.label for examples in splits.values() for example in examples}
        if unused := [label for label in task.labels if label not in used]:
            raise SesameError(f"tasks.{name}.labels: no example of any split is {unused[0]!r}; leave it out, or mend its name")


def check_scores(place: str, examples: list[Example]) -> None:
    """Raise SesameError if no model could be right about the scores of a split."""
    scores = [example.label for example in examples]
    if len(set(scores)) == 1:
        raise SesameError(
            f"{place}: all {len(scores):,} examples have the score {scores[0]:g}; scores must differ, for a model to be right "
            "about them"
        )
    if examples[0].group is not None and not any(map(metrics.has_ranks, metrics.groups(examples, scores))):
        raise SesameError(
            f"{place}: no group has candidates of different relevance, so there is nothing to rank; rows of one query need the "
            "same value in the column of `group`"
        )


def write(
    folder: Path, task: params.Task, splits: dict[str, list[Example]], dropped: Counter, known: dict[str, dict[str, int]]
) -> None:  # fmt: skip
    """Write `<split>.jsonl` and `card.json`."""
    card = {key: getattr(task, key) for key in ("language", "kind", "metrics")} | {"dropped": dict(dropped)}
    card["sources"] = [declared.source.model_dump(mode="json") for declared in task.splits.values() if declared.source]
    for split in task.splits:
        file = folder / f"{split}.jsonl"
        file.write_text("".join(example.line() for example in splits[split]), encoding="utf-8")
        card[split] = describe(task, splits[split]) | ({"in_train": known[split]} if split in known else {})
        card[split]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    storage.write_json(folder / "card.json", card)


def empty(task: params.Task, example: Example) -> bool:
    """Return whether one of its texts, or its target text, is empty. A question that may have no answer has no target text."""
    return "" in (example.text_a, example.text_b) or (example.label == [""] and not task.unanswerable)


def unanswerable(task: params.Task, examples: list[Example]) -> int:
    """Return the number of questions without an answer."""
    return sum(example.label == [NO_ANSWER] for example in examples) if task.unanswerable else 0


def dropped_text(dropped: Counter) -> str:
    """Return the counts of dropped rows for a message; empty if there are none."""
    return f"; dropped {', '.join(f'{count:,} of {reason}' for reason, count in dropped.items())}" if dropped else ""


def describe(task: params.Task, examples: list[Example]) -> dict:
    """Return the number of rows, of those with an empty text, and the share of each label or the range of the scores."""
    facts: dict = {"rows": len(examples)}
    if count := sum(empty(task, example) for example in examples):
        facts["empty"] = count
    labels = [example.label for example in examples if example.label is not None]
    if not labels:
        return facts | {"labelled": False}
    if task.kind == "regression":
        facts |= {"mean": sum(labels) / len(labels), "min": min(labels), "max": max(labels)}
        if examples[0].group is not None:
            of_groups = metrics.groups(examples, labels)
            facts |= {"groups": len(of_groups), "ranked": sum(map(metrics.has_ranks, of_groups))}
        return facts
    if task.kind == "choice":
        return facts | {"choices_mean": sum(len(example.choices) for example in examples) / len(examples)}
    if task.kind == "extraction":
        none = unanswerable(task, examples)
        return facts | {"answers_mean": (sum(map(len, labels)) - none) / len(examples)} | ({"unanswerable": none} if none else {})
    if task.kind == "text":
        return facts | {"words_mean": sum(len(answers[0].split()) for answers in labels) / len(labels)}
    if task.kind == "tagging":
        labels = [tag for tags in labels for tag in tags]
        facts["words"] = len(labels)
    counts = Counter(labels)
    return facts | {"labels": {name: counts[name] / len(labels) for name in task.labels}}


if __name__ == "__main__":
    stage.main("task", prepare)
