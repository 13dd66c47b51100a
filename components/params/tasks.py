"""Tasks and fine-tuning."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from components.params.block import Block, Name, Share
from components.params.models import Accelerator, Precision
from components.params.text import Source


class TaskTable(Block):
    """How the rows of a task's files become examples."""

    format: Literal["tsv", "csv", "jsonl", "parquet"]
    header: bool = False
    fields: PositiveInt | None = None
    """TSV and CSV: the number of fields a line must have; by default the first line's."""
    max_fields: PositiveInt | None = None
    """TSV and CSV: where lines carry optional further fields, the largest number allowed."""
    text_a: str | int
    text_b: str | int | None = None
    label: str | int
    drop_labels: list[str] = []
    """Rows with these labels are left out and counted (SNLI's `-`: no majority)."""
    thresholds: list[float] = []
    """Cut points that turn a numeric label into `labels`, in ascending order."""
    group: str | int | None = None
    """Rows with the same value stay on the same side of a split."""


class TaskSplit(Block):
    """Where a split comes from: its own file, or a share of `train` by a hash of the row."""

    source: Source | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def one_of(self):
        if (self.source is None) == (self.share is None):
            raise ValueError("give either a source or a share of train")
        return self


class Task(Block):
    """A fine-tuning task, declared whole: no code."""

    language: str = "en"
    licence: str
    kind: Literal["classification", "regression"]
    labels: list[str] = []
    """Classification: the label names in their order."""
    range: tuple[float, float] | None = None
    """Regression: predictions are clipped to it."""
    metric: Literal["accuracy", "f1", "matthews_correlation", "pearson", "spearman"]
    """The headline; every fitting metric is computed beside it."""
    table: TaskTable
    train: TaskSplit
    dev: TaskSplit
    test: TaskSplit

    @model_validator(mode="after")
    def labels_fit(self):
        if self.kind == "classification" and len(self.labels) < 2:
            raise ValueError("a classification task names at least two labels")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("a label name occurs twice")
        if self.range and self.range[0] >= self.range[1]:
            raise ValueError("range goes from the lowest to the highest score")
        if self.kind == "regression" and self.labels:
            raise ValueError("a regression task has no labels")
        if self.kind == "regression" and self.metric not in ("pearson", "spearman"):
            raise ValueError(f"metric {self.metric} does not fit a regression task")
        if self.kind == "classification" and self.metric in ("pearson", "spearman"):
            raise ValueError(f"metric {self.metric} does not fit a classification task")
        if self.table.thresholds and len(self.table.thresholds) != len(self.labels) - 1:
            raise ValueError(f"{len(self.labels)} labels need {len(self.labels) - 1} thresholds")
        if self.train.source is None:
            raise ValueError("train has no source")
        return self


class Recipe(Block):
    """How a model is adapted to a task."""

    method: Literal["full", "features"]
    """`full`: all weights are tuned. `features`: weights frozen, layers mixed (Peters et al. 2018), biLSTM + attention head."""
    learning_rate: PositiveFloat
    epochs: PositiveInt
    batch_size: PositiveInt
    warmup: Share = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    dropout: Share = 0.1
    max_length: PositiveInt = 64
    """Tokens; longer inputs are cut and counted."""
    hidden_size: PositiveInt = 128
    """`features`: width of the head."""


class Finetune(Block):
    """Every model on every task, from pre-trained and from random weights."""

    models: Annotated[list[Name], Field(min_length=1)]
    tasks: Annotated[list[Name], Field(min_length=1)]
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    """Each draws the head's and the random model's weights, the order of examples and dropout."""
    train_examples: PositiveInt | None = None
    """Labelled examples used, a seeded subset, the same for every model; null takes all."""
    eval_examples: PositiveInt | None = None
    """Of dev and of test, a seeded subset; null takes all."""
    accelerator: Accelerator = "auto"
    precision: Precision = "auto"
    threads: PositiveInt | None = None
    recipes: dict[Name, Recipe]
    """By model."""
