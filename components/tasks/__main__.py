"""`python -m components.tasks NAME`: the sources of a task -> data/tasks/<name>/<split>.jsonl and card.json."""

import hashlib
import math
import re
from collections import Counter
from pathlib import Path
from unicodedata import normalize

from components import params
from components.core import storage
from components.core.errors import SesameError, one_line
from components.core.tracking import Run
from components.core.words import WORD
from components.params.tasks import GROUPED
from components.stages import stage
from components.tasks import Example, readers
from components.tasks.readers.fields import Examples, unknown_label
from components.text.sources import tables

WORDS = re.compile(WORD)


def examples(task: params.Task, split: str, dropped: Counter) -> Examples:
    """`(place, group, example)` of every row of a split's own source. Raises SesameError that names file and line."""
    declared = task.splits[split]
    if table := declared.table or task.table:
        return rows(task, declared, table, split, dropped)
    return structured(task, declared, split)


def structured(task: params.Task, declared: params.TaskSplit, split: str) -> Examples:
    """The examples of a file that is no plain table. Raises SesameError with the last place that could be read."""
    read = readers.load(task.reader)
    place = f"{split}, before the first example"
    try:
        for row in read(task, declared.source, split, declared.labelled):
            place = f"after {row[0]}"
            yield row
    except (TypeError, AttributeError, LookupError, ValueError) as error:  # a list where the format has an object, a text for a number
        raise SesameError(f"{place}: not the form that reader {task.reader} reads: {type(error).__name__}: {one_line(error)}") from None


def rows(task: params.Task, declared: params.TaskSplit, table: params.TaskTable, split: str, dropped: Counter) -> Examples:
    """The examples of a plain table. A group is kept where a metric judges it as one."""
    judged = set(GROUPED) & set(declared.metrics or task.metrics)
    for number, (place, row) in enumerate(tables.rows(declared.source, table)):
        raw = tables.text(place, row, table.label) if declared.labelled else None
        if raw in table.drop_labels:
            dropped[f"{split}: label {raw}"] += 1
            continue
        name = tables.text(place, row, table.id) if table.id is not None else f"{split}-{number}"
        text_a = tables.text(place, row, table.text_a).strip()
        text_b = tables.text(place, row, table.text_b).strip() if table.text_b is not None else None
        # What stays on one side of a split: rows that say so, else rows of the same texts in either order, which would
        # else be learned and asked.
        first, second = (text_a, text_b) if text_b is None else sorted((text_a, text_b))
        group = f"{first}\t{second}"
        if table.group is not None:
            group = tables.text(place, row, table.group)
        elif table.group_rows is not None:
            group = f"{split}-{number // table.group_rows}"
        named = label(task, table, raw, place) if declared.labelled else None
        yield place, group, Example(name, text_a, text_b, named, group=group if judged else None)


def label(task: params.Task, table: params.TaskTable, raw: str, place: str) -> str | float | list[str]:
    """A label name, a number for regression, or the one right text. Raises SesameError that names place and allowed labels."""
    if task.kind == "text":
        return [raw.strip()]
    if task.kind == "classification" and not table.thresholds:
        name = table.label_names.get(raw, raw)
        if name not in task.labels:
            raise unknown_label(place, raw, [*task.labels, *table.label_names])
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
    """Read, divide and write the task `name`; its counts. Raises SesameError with the place of whatever is wrong with the files."""
    task, dropped = all_params.tasks[name], Counter()
    divided = divide(task, all_params.seed, dropped)
    check(name, task, divided, dropped)
    with storage.output(Path("data/tasks", name)) as folder:
        folder.mkdir()
        seen = {split: in_train(divided["train"], there) for split, there in divided.items() if split != "train"}
        write(folder, task, divided, dropped, seen)
    for split, counts in seen.items():
        if counts["normalised"]:
            print(
                f"{split}: {counts['normalised']:,} of {len(divided[split]):,} examples are in train, too, {counts['exact']:,} of them to "
                "the letter: their scores say what was remembered"
            )
        if counts["other_order"]:
            print(f"{split}: {counts['other_order']:,} of {len(divided[split]):,} pairs are in train the other way round")
    sizes = {split: len(there) for split, there in divided.items()}
    print(", ".join(f"{split} {size:,}" for split, size in sizes.items()) + told(dropped))
    texts = (text for there in divided.values() for example in there for text in (example.text_a, example.text_b or ""))
    return {"examples": sizes, "words": sum(len(text.split()) for text in texts), "dropped": sum(dropped.values())}


def divide(task: params.Task, seed: int, dropped: Counter) -> dict[str, list[Example]]:
    """The examples by split, in the files' order; `dropped` counts what is left out, by reason.

    Raises SesameError with the place of what can't be read, and of an id that occurs twice.
    """
    shares = {split: declared.share for split, declared in task.splits.items() if declared.share is not None}
    divided: dict[str, list[Example]] = {split: [] for split in task.splits}
    groups = Counter()  # of train
    for split, declared in task.splits.items():
        places: dict[str, str] = {}
        for place, group, example in examples(task, split, dropped) if declared.source else ():
            if split == "train" and empty(example):  # nothing to learn from; other splits are judged whole, as they were published
                dropped["train: empty text"] += 1
                continue
            if example.id in places:
                raise SesameError(f"{place}: the id {example.id!r} is taken by {places[example.id]}")
            places[example.id] = place
            groups[group] += split == "train"
            # Splits without a file of their own are shares of train's.
            divided[side(group, seed, shares) if split == "train" else split].append(example)
    if shares and len(groups := +groups) == 1 and groups.total() > 1:
        raise SesameError(
            f"all rows of {task.train.source.shown} are one group (of the same texts, or by `group`), which no share divides; "
            f"give {' and '.join(shares)} a source, or the rows other groups"
        )
    return divided


def check(name: str, task: params.Task, divided: dict[str, list[Example]], dropped: Counter) -> None:
    """Raises SesameError where a split is empty, or there is but one label to learn: every training on the task would fail on it."""
    for split in task.splits:
        if not divided[split]:
            source = (task.splits[split].source or task.train.source).shown
            raise SesameError(f"tasks.{name}.{split}: no examples in {source}{told(dropped)}; give it a source with rows or a larger share")
    train = divided["train"]
    if task.kind == "classification" and len(labels := {example.label for example in train}) == 1:
        raise SesameError(
            f"tasks.{name}.train: all {len(train):,} examples are {labels.pop()!r}; to classify, another label must be among them"
        )
    if task.kind == "classification":
        met = {example.label for there in divided.values() for example in there}
        if never := [label for label in task.labels if label not in met]:
            raise SesameError(f"tasks.{name}.labels: no example of any split is {never[0]!r}; leave it out, or mend its name")


def in_train(train: list[Example], examples: list[Example]) -> dict[str, int]:
    """How many examples have the texts of one to learn from: to the letter; but for case, forms of letters and what
    is no word; so, but the other way round and no other way (pairs)."""

    def exact(example: Example) -> tuple[str, ...]:
        return example.text_a, example.text_b or "", *(example.choices or {}).values()

    def normalised(example: Example) -> tuple[str, ...]:
        return tuple(" ".join(WORDS.findall(normalize("NFKC", text).casefold())) or text for text in exact(example))

    counts = {form.__name__: sum(form(example) in known for example in examples)
              for form in (exact, normalised) for known in [set(map(form, train))]}  # fmt: skip
    known = set(map(normalised, train))
    pairs = [normalised(example) for example in examples if example.text_b]
    counts["other_order"] = sum((b, a, *rest) in known and (a, b, *rest) not in known for a, b, *rest in pairs)
    return counts


def write(
    folder: Path, task: params.Task, divided: dict[str, list[Example]], dropped: Counter, in_train: dict[str, dict[str, int]]
) -> None:  # fmt: skip
    """`<split>.jsonl` and `card.json`."""
    card = {key: getattr(task, key) for key in ("language", "kind", "metrics")} | {"dropped": dict(dropped)}
    card["sources"] = [declared.source.model_dump(mode="json") for declared in task.splits.values() if declared.source]
    for split in task.splits:
        file = folder / f"{split}.jsonl"
        file.write_text("".join(example.line() for example in divided[split]), encoding="utf-8")
        card[split] = describe(task, divided[split]) | ({"in_train": in_train[split]} if split in in_train else {})
        card[split]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    storage.write_json(folder / "card.json", card)


def empty(example: Example) -> bool:
    """Whether one of its texts is, or that which is to be written."""
    return "" in (example.text_a, example.text_b) or example.label == [""]


def told(dropped: Counter) -> str:
    """What was left out, for a message; nothing where nothing was."""
    return f"; dropped {', '.join(f'{count:,} of {reason}' for reason, count in dropped.items())}" if dropped else ""


def describe(task: params.Task, examples: list[Example]) -> dict:
    """Rows, those with an empty text, and each label's share or the range of the scores."""
    facts: dict = {"rows": len(examples)} | ({"empty": count} if (count := sum(map(empty, examples))) else {})
    labels = [example.label for example in examples if example.label is not None]
    if not labels:
        return facts | {"labelled": False}
    if task.kind == "regression":
        return facts | {"mean": sum(labels) / len(labels), "min": min(labels), "max": max(labels)}
    if task.kind == "choice":
        return facts | {"choices_mean": sum(len(example.choices) for example in examples) / len(examples)}
    if task.kind == "extraction":
        return facts | {"answers_mean": sum(map(len, labels)) / len(examples)}
    if task.kind == "text":
        return facts | {"words_mean": sum(len(right[0].split()) for right in labels) / len(labels)}
    if task.kind == "tagging":
        labels = [tag for tags in labels for tag in tags]
        facts["words"] = len(labels)
    counts = Counter(labels)
    return facts | {"labels": {name: counts[name] / len(labels) for name in task.labels}}


if __name__ == "__main__":
    stage.main("task", prepare)
