"""Submissions to the GLUE and SuperGLUE leaderboards: a zip with a file for each test set, validated after writing.

GLUE: TSV, `index` and `prediction`. SuperGLUE: JSONL, `idx` and `label`, nested for MultiRC. Labels are mapped by name
(`benchmarks.Submission.words`). The formats are those of jiant, the benchmarks' toolkit.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from components import tasks
from components.core import storage
from components.core.errors import SesameError
from components.stages.outputs import read_json, read_lines, reading
from components.tasks.benchmarks import SUBMISSIONS, Submission

HEADER = "index\tprediction"
Ids = tuple[int, ...]
"""The number of an example; of a MultiRC answer (passage, question, answer)."""


@dataclass(frozen=True)
class Written:
    """The result of `write`."""

    path: Path
    files: dict[str, int]
    """Name in the zip -> number of predictions."""
    absent: list[str]
    """Missing files and the reasons."""
    replaced: dict[str, int]
    """Name in the zip -> number of invalid generated labels that were replaced by the first label."""
    tasks: list[str]
    """Whose predictions are in it."""


def write(benchmark: str, model: str, seed: int | None = None, partial: bool = False, folder: str | Path = "data/submissions") -> Written:
    """Write the zip for a leaderboard from `data/scores/<model>`, of pre-trained weights and one seed (by default the first).

    Raise SesameError for missing test sets, unless `partial`, and for invalid predictions.
    """
    submissions = SUBMISSIONS[benchmark]
    rows, absent, seeds = _gather(submissions, model, seed)
    replaced = {file.name: _replace_invalid(file, model, rows[file.name]) for file in submissions if file.name in rows}
    if absent and not (partial and rows):
        advice = "" if partial else "; --partial writes the rest"
        raise SesameError(f"{benchmark} can't be submitted, not at hand: {'; '.join(absent)}{advice}")
    if len(seeds) > 1:
        raise SesameError(f"the first seed differs between tasks ({', '.join(map(str, sorted(seeds)))}); choose one with --seed")

    path = Path(folder) / f"{benchmark}-{model}-seed{seeds.pop()}{'-partial' if absent else ''}.zip"
    files = [file for file in submissions if file.name in rows]  # in the leaderboard's order
    with storage.output(path) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.writestr(member(benchmark, file), "".join(f"{line}\n" for line in content(benchmark, file, rows[file.name])))
        # validated before it is renamed: an invalid zip must not be there
        counts = validate(temporary, benchmark, files)
    used = list(dict.fromkeys(file.task for file in files))
    return Written(path, counts, absent, {name: count for name, count in replaced.items() if count}, used)


def _gather(submissions: tuple[Submission, ...], model: str, seed: int | None) -> tuple[dict[str, dict[Ids, object]], list[str], set[int]]:
    """Return the available predictions by file name, the reasons why others are missing, and the seeds."""
    rows: dict[str, dict[Ids, object]] = {}
    absent, seeds = [], set()
    for task in dict.fromkeys(file.task for file in submissions):  # a task's predictions are read once for all its test sets
        files = [file for file in submissions if file.task == task]
        try:
            used, predictions = read(Path("data/scores", model, task, "predictions.jsonl"), {file.split for file in files}, seed)
        except SesameError as error:
            absent.append(f"{', '.join(file.name for file in files)} ({error})")
            continue
        seeds.add(used)
        for file in files:
            try:
                rows[file.name] = complete(file, predictions[file.split])
            except SesameError as error:
                absent.append(f"{file.name} ({error})")
    return rows, absent, seeds


def read(path: Path, splits: set[str], seed: int | None) -> tuple[int, dict[str, dict[str, object]]]:
    """Return the seed, and split -> id -> prediction of pre-trained weights. Raise SesameError if there are none."""
    predictions: dict[str, dict[str, object]] = {split: {} for split in splits}
    seeds = set()
    if not path.exists():
        raise SesameError(f"no predictions; run finetune@{path.parts[-3]}-{path.parts[-2]}")
    with reading(path):
        for row in read_lines(path):
            if row["init"] == "pretrained":
                seeds.add(row["seed"])
                seed = row["seed"] if seed is None else seed
                if row["seed"] == seed and row["split"] in splits:
                    predictions[row["split"]][row["id"]] = row["prediction"]
    if seed not in seeds:
        raise SesameError(f"{path} has no predictions of pre-trained weights" + (f" with seed {seed}" if seeds else ""))
    return seed, predictions


def complete(file: Submission, predictions: dict[str, object]) -> dict[Ids, object]:
    """Return the prediction for each example of the official test set, in its order. Raise SesameError if one is missing."""
    examples = tasks.read(Path("data/tasks", file.task), file.split)
    if len(examples) != file.rows:
        raise SesameError(f"data/tasks/{file.task}/{file.split}.jsonl has {len(examples):,} examples, the official test set {file.rows:,}")
    if missing := [example.id for example in examples if example.id not in predictions]:
        raise SesameError(
            f"{len(examples) - len(missing):,} of {file.rows:,} examples of {file.task} {file.split} are predicted; "
            "set finetune.eval_examples to null and run finetune again"
        )
    return dict(sorted((numbers(file, example.id), predictions[example.id]) for example in examples))


def _replace_invalid(file: Submission, model: str, rows: dict[Ids, object]) -> int:
    """Replace what a model has written that is no answer: by the leaderboard's first label, or by the example's first choice
    (an entity of ReCoRD's passage). Return their number."""
    path = storage.metrics_path("finetune", f"{model}-{file.task}")
    if not path.exists() or "outside" not in read_json(path):
        return 0
    folder = Path("data/tasks", file.task)
    labels = tasks.card(folder)["train"].get("labels", {})  # a task's label that is not in `words` is an error
    allowed = {*(file.words or ()), *labels}
    invalid = 0
    for example in tasks.read(folder, file.split):
        names = list(example.choices or file.words or ())
        ids = numbers(file, example.id)
        if names and rows[ids] not in names and rows[ids] not in allowed:
            rows[ids] = names[0]
            invalid += 1
    return invalid


def numbers(file: Submission, name: str) -> Ids:
    """`17`, `test-17` -> (17,); `3-40-2` of MultiRC -> (3, 40, 2). Raise SesameError for other ids."""
    parts = name.removeprefix(f"{file.split}-").split("-")
    if not all(part.isdecimal() for part in parts) or len(parts) != (3 if file.name == "MultiRC" else 1):
        raise SesameError(f"the id {name!r} of {file.task} {file.split} is not the number that the leaderboard knows an example by")
    return tuple(map(int, parts))


def member(benchmark: str, file: Submission) -> str:
    """Return the name of a file in the zip."""
    return f"{file.name}.{'tsv' if benchmark == 'glue' else 'jsonl'}"


def content(benchmark: str, file: Submission, rows: dict[Ids, object]) -> Iterator[str]:
    """Yield the lines of a file."""
    labels = {ids: word(file, prediction) for ids, prediction in rows.items()}
    if benchmark == "glue":
        yield HEADER
        yield from (f"{index}\t{label}" for (index,), label in labels.items())
    elif file.name == "MultiRC":
        passages: dict[int, dict[int, list[dict]]] = {}
        for (passage, question, answer), label in labels.items():
            passages.setdefault(passage, {}).setdefault(question, []).append({"idx": answer, "label": label})
        for passage, questions in passages.items():
            answered = [{"idx": question, "answers": answers} for question, answers in questions.items()]
            yield json.dumps({"idx": passage, "passage": {"questions": answered}})
    else:
        yield from (json.dumps({"idx": index, "label": label}, ensure_ascii=False) for (index,), label in labels.items())


def word(file: Submission, prediction: object) -> str | int:
    """Return a prediction as the leaderboard's label. Raise SesameError if it has none."""
    if file.name == "STS-B":
        return f"{min(max(float(prediction), 0.0), 5.0):.3f}"
    if file.words is None:
        return str(prediction)
    if prediction not in file.words:
        known = ", ".join(file.words)
        raise SesameError(f"tasks.{file.task} predicts {prediction!r}, which {file.name} has no word for (its labels: {known})")
    return file.words[prediction]


def validate(path: Path, benchmark: str, files: list[Submission]) -> dict[str, int]:
    """Check names, headers, rows and labels in a zip; return the numbers of predictions. Raise SesameError with file and line."""
    expected = {member(benchmark, file): file for file in files}
    with zipfile.ZipFile(path) as archive:
        if wrong := set(archive.namelist()) ^ set(expected):
            raise SesameError(f"the zip has files missing or too many: {', '.join(sorted(wrong))}")
        for name, file in expected.items():
            ids = _ids(name, file, archive.read(name).decode("utf-8"), benchmark)
            if len(ids) != file.rows:
                raise SesameError(f"{name}: {len(ids):,} predictions, the leaderboard expects {file.rows:,}")
            numbered = file.name not in ("MultiRC", "ReCoRD")  # whose numbers have gaps
            if len(set(ids)) < len(ids) or (numbered and ids != [(i,) for i in range(file.rows)]):
                raise SesameError(f"{name}: an index occurs twice, is missing or out of order")
    return {name: file.rows for name, file in expected.items()}


def _ids(name: str, file: Submission, text: str, benchmark: str) -> list[Ids]:
    """Return the ids in a file of the zip, in its order. Raise SesameError with the line that the leaderboard would refuse."""
    lines = text.removesuffix("\n").split("\n")
    if benchmark == "glue" and lines.pop(0) != HEADER:
        raise SesameError(f"{name}, line 1: the header must be {HEADER!r}")
    parse, first = (_glue, 2) if benchmark == "glue" else (_superglue, 1)
    ids: list[Ids] = []
    for number, line in enumerate(lines, start=first):
        try:
            for example, label in parse(file, line):
                _check_label(file, label)
                ids.append(example)
        except (ValueError, KeyError, TypeError) as error:
            problem = error if isinstance(error, ValueError) else "not the fields it must have"
            raise SesameError(f"{name}, line {number}: {problem}: {line[:80]}") from None
    return ids


def _glue(file: Submission, line: str) -> Iterator[tuple[Ids, str | int]]:
    index, label = line.split("\t")
    yield (int(index),), int(label) if label.isdecimal() else label


def _superglue(file: Submission, line: str) -> Iterator[tuple[Ids, str | int]]:
    row = json.loads(line)
    if file.name == "MultiRC":
        for question in row["passage"]["questions"]:
            for answer in question["answers"]:
                yield (row["idx"], question["idx"], answer["idx"]), answer["label"]
    else:
        yield (row["idx"],), row["label"]


def _check_label(file: Submission, label: str | int) -> None:
    if file.name == "STS-B":
        if not re.fullmatch(r"[0-5]\.\d{3}", str(label)) or float(label) > 5:
            raise ValueError(f"{label!r} is no score from 0.000 to 5.000")
    elif file.words is None:
        if not isinstance(label, str) or not label:
            raise ValueError("no text")
    elif label not in file.words.values() or isinstance(label, bool):
        raise ValueError(f"{label!r} is no label of this file (allowed: {', '.join(map(str, file.words.values()))})")
