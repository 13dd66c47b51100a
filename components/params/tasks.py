"""A fine-tuning task, declared whole: its text, columns, splits and metrics."""

import re
from itertools import combinations
from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from components.core.config import Added, Block, Count, Label, Name, Once, Size
from components.params.sources import Source

MetricName = Literal[
    "accuracy", "f1", "macro_f1", "matthews_correlation", "pearson", "spearman", "exact_match", "gender_parity", "bleu", "chrf", "rouge_1",
    "rouge_2", "rouge_l", "mrr", "ndcg",
]  # fmt: skip
METRICS_OF = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews_correlation", "exact_match", "gender_parity"),
    "regression": ("pearson", "spearman", "mrr", "ndcg"),
    "choice": ("accuracy", "f1", "exact_match"),
    "extraction": ("f1", "exact_match"),
    "tagging": ("f1", "accuracy"),
    "text": ("rouge_1", "rouge_2", "rouge_l", "f1", "exact_match", "bleu", "chrf"),
}
GROUPED = {"classification": ("exact_match", "gender_parity"), "regression": ("mrr", "ndcg")}
"""Kind of task -> its metrics that judge the examples of a group together: answers to a question, candidates of a search."""
READ_AS = {
    "copa": "choice", "multirc": "classification", "record": "choice", "wic": "classification", "wsc": "classification",
    "squad": "extraction", "conll": "tagging", "parallel": "text",
}  # fmt: skip
"""Reader, a file of `components/tasks/readers` -> the kind of task its files are."""
ReaderName = Literal[tuple(READ_AS)]


class TaskTable(Block):
    """Columns of a task's files: how a row becomes an example."""

    format: Literal["tsv", "csv", "jsonl", "parquet", "lines"]
    """`lines`: each line is taken apart by `pattern`."""
    header: bool = False
    """TSV and CSV: the first line names the columns."""
    fields: Size | None = None
    """TSV and CSV: the number of fields a line must have; by default the first line's."""
    max_fields: Size | None = None
    """TSV and CSV: where lines carry optional further fields, the largest number allowed."""
    pattern: str | None = None
    """`lines`: a regular expression whose named groups are the columns, e.g. `(?P<label>\\w+):\\S+ (?P<text>.*)`."""
    id: str | int | None = None
    """The example's own id; without it `<split>-<number of the row>`."""
    text_a: str | int
    """Column of the text, or of the first of two: its name, or the field's number from 0."""
    text_b: str | int | None = None
    """Column of the second text; null: there is one text."""
    label: str | int | None = None
    """None in a split without labels."""
    choices: Annotated[list[str | int], Once, Added(neutral=[])] = []
    """Choice: the columns of the choices, numbered from 0 (SWAG: [ending0, ending1, ending2, ending3]); or one column
    with a list of them, or with `{"text": [...], "label": [...]}`, their texts and names (ARC, CommonsenseQA). `label`
    is the number or the name of the right one."""
    label_names: dict[str, str] = {}
    """Maps the labels in the file, where they differ, to the names of `labels`, or the numbers of `choices` or a regression."""
    drop_labels: list[str] = []
    """Rows with these labels are left out and counted (SNLI's `-`: no majority)."""
    thresholds: list[float] = []
    """Cut points that turn a numeric label into `labels`, in ascending order."""
    group: str | int | None = None
    """Rows with the same value stay on the same side of a split, and are judged together by metrics over groups."""
    group_rows: Count | None = None
    """In place of `group`: every so many rows in a row are one (pairs that differ in a word)."""

    @model_validator(mode="after")
    def columns_fit(self):
        if self.pattern is None and self.format == "lines":
            raise ValueError("format lines needs a pattern, whose named groups are the columns")
        if self.format != "lines":
            self.refuse_idle(["pattern"], f"it is for format: lines, not {self.format}")
        if self.pattern is not None:
            import regex  # which takes time to import, and few need it

            try:
                names = regex.compile(self.pattern).groupindex
            except regex.error as error:
                raise ValueError(f"pattern is not a valid regular expression: {error}") from None
            named = [(key, getattr(self, key)) for key in ("id", "text_a", "text_b", "label", "group")]
            for key, column in [*named, *(("choices", column) for column in self.choices)]:
                if column is not None and column not in names:
                    raise ValueError(f"{key}: the pattern has no group named {column!r} (it has: {', '.join(names) or 'none'})")
        if self.format not in ("tsv", "csv"):
            self.refuse_idle(["header", "fields", "max_fields"], f"format {self.format} has no fields to count")
        if self.thresholds:
            self.refuse_idle(["label_names"], "thresholds make the labels out of numbers")
        if self.group is not None and self.group_rows is not None:
            raise ValueError("give either group or group_rows")
        if self.group is not None and self.group == self.label:
            raise ValueError(f"group and label are both column {self.group!r}; a group is that of the question, not of the answer")
        if self.max_fields is not None and self.max_fields < (self.fields or 1):
            raise ValueError(f"max_fields {self.max_fields} is less than fields {self.fields}")
        columns = [("text_a", self.text_a), ("text_b", self.text_b), ("label", self.label)]
        columns += [("choices", column) for column in self.choices]
        for (key, column), (other, same) in combinations(columns, 2):
            if column is not None and column == same:
                raise ValueError(f"{key} and {other} are both column {column!r}; each is a column of its own")
        return self


class TaskSplit(Block):
    """Where a split comes from: its own file, or a share of `train` by a hash of the row."""

    source: Source | None = None
    """Its own files."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the rows of train that are taken out for this split, by a hash of the row."""
    labelled: bool = True
    """False: the file has no labels, its predictions are for submission only."""
    table: TaskTable | None = None
    """Where this file's columns differ from the task's."""
    metrics: Annotated[list[MetricName], Once] = []
    """Where this split is judged by other metrics than the task's (diagnostic sets)."""

    @model_validator(mode="after")
    def one_of(self):
        if (self.source is None) == (self.share is None):
            raise ValueError("give either a source or a share of train, not both or neither")
        if self.share is not None and (self.table or not self.labelled):
            raise ValueError("a split that is a share of train has train's labels and columns; leave them out")
        return self


class Prompt(Block):
    """A task in words, for the methods under which a model writes its answer or is asked how likely one is."""

    text: str
    """The prompt: `{text_a}`, `{text_b}` and, for a choice, `{choices}` are replaced by those of the example."""
    answers: dict[str, str] = {}
    """For classification: maps a label to the words that the model generates for it. Default: the label's name."""

    @field_validator("text")
    @classmethod
    def names_fields(cls, text: str) -> str:
        try:
            named = [(field, spec, conversion) for _, field, spec, conversion in Formatter().parse(text) if field is not None]
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}; write a literal brace twice") from None
        for field, spec, conversion in named:
            if field not in PROMPTED or spec or conversion:
                raise ValueError(f"{text!r}: unknown field {{{field}}} (there are: {', '.join(f'{{{name}}}' for name in PROMPTED)})")
        if not named:
            raise ValueError(f"{text!r} does not contain the example; put {{text_a}} where its text belongs")
        return text


PROMPTED = ("text_a", "text_b", "choices")


NO_ANSWER = ""
"""The label of a question that its text does not answer, and its right prediction."""


class Task(Block):
    """A fine-tuning task, declared whole: no code."""

    language: str = "en"
    """ISO 639-1, as `en`."""
    licence: Annotated[str, Label()]
    """The licence as stated by the source; goes onto the card."""
    note: Annotated[str | None, Label()] = None
    """A note for the card next to the scores, e.g. that the data are a subset."""
    kind: Literal["classification", "regression", "choice", "extraction", "tagging", "text"]
    """One label of a text or a pair; a score; one of an example's own choices; a piece of text_b; a tag per word; a text, which is
    written (a translation, a summary, an answer): `table.label` is its column."""
    labels: list[str] = []
    """Classification and tagging: the names in their order."""
    range: tuple[float, float] | None = None
    """Regression: predictions are clipped to it."""
    metrics: Annotated[list[MetricName], Field(min_length=1), Once]
    """The metrics that the benchmark reports; the first is the headline."""
    table: TaskTable | None = None
    """How a row of the files becomes an example."""
    reader: ReaderName | None = None
    """For files that are no plain table, in place of `table`."""
    prompt: Annotated[Prompt | None, Added(neutral=None)] = None
    """For the methods `text_to_text` and `in_context`; without it `<name>: <text_a>`, of a pair `<name> first: ... second: ...`."""
    lowercase: Annotated[bool, Added(neutral=False)] = False
    """Text: BLEU and chrF are blind to case, as where a model's pieces have no capitals."""
    unanswerable: Annotated[bool, Added(neutral=False)] = False
    """Extraction: questions may have no answer in their text (SQuAD 2.0); the right prediction for these is an empty text."""
    cut: Literal["longest", "text_a"] = "longest"
    """Which words are cut from a pair that is too long: those of the longer text, or of the first only (a passage)."""
    train: TaskSplit
    """Where the training examples are from."""
    dev: TaskSplit
    """The split for choices: its own files, or a share of train."""
    test: TaskSplit | None = None
    """The split whose scores are reported; null: there is none, and dev is reported."""
    extra: dict[Name, TaskSplit] = {}
    """Further sets to predict: mismatched, diagnostics."""

    @property
    def metric(self) -> str:
        """The headline."""
        return self.metrics[0]

    @property
    def splits(self) -> dict[str, TaskSplit]:
        """Every split that is declared, by name, train first."""
        declared = {"train": self.train, "dev": self.dev} | ({"test": self.test} if self.test else {})
        return declared | self.extra

    @model_validator(mode="after")
    def parts_fit(self):
        if (self.table is None) == (self.reader is None):
            raise ValueError("give either a table or a reader")
        if self.reader and READ_AS[self.reader] != self.kind:
            raise ValueError(f"reader {self.reader} reads a task of kind {READ_AS[self.reader]}")
        if self.table and self.kind in ("extraction", "tagging"):
            readers = ", ".join(name for name, kind in READ_AS.items() if kind == self.kind)
            raise ValueError(f"kind {self.kind} has a reader ({readers}), and no table")
        if self.kind in ("classification", "tagging") and len(self.labels) < 2:
            raise ValueError(f"a {self.kind} task names at least two labels")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("a label name occurs twice")
        if self.kind not in ("classification", "tagging") and self.labels:
            raise ValueError(f"a {self.kind} task has no labels")
        if self.prompt:
            self._prompt_fits(self.prompt)
        if self.reader in ("multirc", "wic", "wsc") and self.labels != ["false", "true"]:
            raise ValueError(f'the labels of reader {self.reader} are ["false", "true"]')
        for name, kind in (("range", "regression"), ("unanswerable", "extraction"), ("lowercase", "text")):
            if self.kind != kind:
                self.refuse_idle([name], f"it is for kind {kind}, and this task is of kind {self.kind}")
        if self.range and self.range[0] >= self.range[1]:
            raise ValueError(f"range {self.range}: give the lowest score first, then the highest")
        for name in ("dev", "test"):
            block = self.splits.get(name)
            if block and block.metrics and self.metric not in block.metrics:
                raise ValueError(f"the metrics of {name} lack the headline {self.metric}")
        if self.train.source is None:
            raise ValueError("train has no source")
        if (taken := sum(split.share or 0 for split in self.splits.values())) >= 1:
            raise ValueError(f"the shares of train sum to {taken:g} and leave nothing to train on; lower them")
        if not self.train.labelled or not self.dev.labelled:
            raise ValueError("train and dev need labels")
        if clash := sorted({"train", "dev", "test"} & self.extra.keys()):
            raise ValueError(f"extra: {', '.join(clash)} is a key next to extra; move it there")
        for name, split in self.splits.items():
            self._table_fits(name, split)
            for metric in split.metrics or self.metrics:
                self._metric_fits(metric, name, split)
        return self

    def _prompt_fits(self, prompt: Prompt) -> None:
        if prompt.answers and self.kind != "classification":
            raise ValueError(f"prompt.answers has no effect: a {self.kind} task has no labels; leave it out")
        if unknown := sorted(prompt.answers.keys() - set(self.labels)):
            raise ValueError(f"prompt.answers has {unknown[0]!r}, which is not a label ({', '.join(self.labels)})")
        words = [prompt.answers.get(label, label.replace("_", " ")).strip() for label in self.labels]
        if "" in words:
            raise ValueError(
                "prompt.answers: an answer is empty, and would always be the most likely one; give it a word"
            )
        if twice := [word for i, word in enumerate(words) if word in words[:i]]:
            raise ValueError(f"prompt.answers: {twice[0]!r} stands for two labels")
        if "{text_b}" in prompt.text and self.table and self.table.text_b is None:
            raise ValueError(
                "prompt.text contains {text_b}, and the table has no column for it; leave it out, or name table.text_b"
            )
        if "{choices}" in prompt.text and self.kind != "choice":
            raise ValueError(f"prompt.text contains {{choices}}, and a {self.kind} task has none; leave it out")

    def _table_fits(self, name: str, split: TaskSplit) -> None:
        table = split.table or self.table
        if table is None or split.source is None:
            return
        if split.labelled and table.label is None:
            raise ValueError(f"{name} is labelled, but its table names no label column")
        if (self.kind == "choice") != bool(table.choices):
            wanted = "needs the columns of its choices" if self.kind == "choice" else "has no choices; leave them out"
            raise ValueError(f"choices of {name}: kind {self.kind} {wanted}")
        if table.choices and table.text_b is not None:
            raise ValueError(f"text_b of {name}: the second texts of a choice task are its choices; leave text_b out")
        if table.thresholds and self.kind != "classification":
            raise ValueError(f"thresholds of {name} make labels out of numbers, and a {self.kind} has none; leave them out")
        if table.thresholds and len(table.thresholds) != len(self.labels) - 1:
            raise ValueError(f"{len(self.labels)} labels need {len(self.labels) - 1} thresholds")
        classes = self.kind not in ("choice", "regression")  # whose names are those of the examples, or numbers
        if classes and (unknown := sorted(set(table.label_names.values()) - set(self.labels))):
            raise ValueError(f"label_names of {name} give {', '.join(unknown)}, not among labels")

    def _metric_fits(self, metric: str, name: str, split: TaskSplit) -> None:
        if metric not in METRICS_OF[self.kind]:
            raise ValueError(f"metric {metric} does not fit a {self.kind} task (allowed: {', '.join(METRICS_OF[self.kind])})")
        if self.kind == "classification" and metric == "f1" and len(self.labels) != 2:
            raise ValueError(f"metric f1 needs two labels, and there are {len(self.labels)}; take macro_f1")
        if self.kind == "tagging" and metric == "f1" and (other := [label for label in self.labels if not re.match(r"O$|[BI]-.", label)]):
            raise ValueError(f"metric f1 of a tagging task counts entities in O, B-type, I-type; not one of these: {', '.join(other)}")
        if metric in GROUPED.get(self.kind, ()):
            if self.kind == "regression" and (not self.range or self.range[0] < 0):
                raise ValueError(f"metric {metric} of {name} ranks by labels of 0 or more; give a range such as [0, 1]")
            if metric == "mrr" and self.range[0] > 0:  # all would be relevant, and the first one always right
                begins = f"range begins at {self.range[0]:g}"
                raise ValueError(f"metric mrr of {name} takes 0 for irrelevant, and {begins}; take ndcg")
            table = split.table or self.table if split.source else self.train.table or self.table
            if table and table.group is None and table.group_rows is None:
                raise ValueError(f"metric {metric} of {name} needs a group in its table")
            if table is None and self.reader != "multirc":
                raise ValueError(
                    f"metric {metric} needs groups, and reader {self.reader} gives none; take another metric"
                )
