"""Tasks and fine-tuning."""

import re
from collections.abc import Collection
from itertools import combinations
from math import ceil
from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from components.core.config import (
    Added,
    Block,
    Count,
    Dropout,
    Label,
    ModelName,
    Name,
    Once,
    Positive,
    RunOnly,
    Seed,
    Share,
    Size,
    TaskName,
    Threads,
    TokenizerName,
)
from components.optimizers.config import check_fall
from components.params.models import Accelerator, Precision
from components.params.text import Source

MetricName = Literal[
    "accuracy", "f1", "macro_f1", "matthews_correlation", "pearson", "spearman", "exact_match", "gender_parity", "bleu", "chrf", "rouge_1",
    "rouge_2", "rouge_l",
]  # fmt: skip
METRICS_OF = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews_correlation", "exact_match", "gender_parity"),
    "regression": ("pearson", "spearman"),
    "choice": ("accuracy", "f1", "exact_match"),
    "extraction": ("f1", "exact_match"),
    "tagging": ("f1", "accuracy"),
    "text": ("rouge_1", "rouge_2", "rouge_l", "f1", "exact_match", "bleu", "chrf"),
}
GROUPED = ("exact_match", "gender_parity")
"""Metrics of classification that judge the examples of a group together."""
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
    label_names: dict[str, str] = {}
    """Maps the labels in the file to the names of `labels`, where they differ."""
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
        if (self.pattern is None) == (self.format == "lines"):
            raise ValueError("pattern has no effect: it needs format: lines; set that, or leave pattern out")
        if self.pattern is not None:
            import regex  # which takes time to import, and few need it

            try:
                names = regex.compile(self.pattern).groupindex
            except regex.error as error:
                raise ValueError(f"pattern is not a valid regular expression: {error}") from None
            for key in ("id", "text_a", "text_b", "label", "group"):
                column = getattr(self, key)
                if column is not None and column not in names:
                    raise ValueError(f"{key}: the pattern has no group named {column!r} (it has: {', '.join(names) or 'none'})")
        if self.group is not None and self.group_rows is not None:
            raise ValueError("give either group or group_rows")
        if self.max_fields is not None and self.max_fields < (self.fields or 1):
            raise ValueError(f"max_fields {self.max_fields} is less than fields {self.fields}")
        columns = {"text_a": self.text_a, "text_b": self.text_b, "label": self.label}
        for (key, column), (other, same) in combinations(columns.items(), 2):
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
        if self.table and self.kind in ("choice", "extraction", "tagging"):
            readers = ", ".join(name for name, kind in READ_AS.items() if kind == self.kind)
            raise ValueError(f"a {self.kind} task has a reader ({readers}), no table")
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
        if table.thresholds and len(table.thresholds) != len(self.labels) - 1:
            raise ValueError(f"{len(self.labels)} labels need {len(self.labels) - 1} thresholds")
        if unknown := sorted(set(table.label_names.values()) - set(self.labels)):
            raise ValueError(f"label_names of {name} give {', '.join(unknown)}, not among labels")

    def _metric_fits(self, metric: str, name: str, split: TaskSplit) -> None:
        if metric not in METRICS_OF[self.kind]:
            raise ValueError(f"metric {metric} does not fit a {self.kind} task (allowed: {', '.join(METRICS_OF[self.kind])})")
        if self.kind == "classification" and metric == "f1" and len(self.labels) != 2:
            raise ValueError(f"metric f1 needs two labels, and there are {len(self.labels)}; take macro_f1")
        if self.kind == "tagging" and metric == "f1" and (other := [label for label in self.labels if not re.match(r"O$|[BI]-.", label)]):
            raise ValueError(f"metric f1 of a tagging task counts entities in O, B-type, I-type; not one of these: {', '.join(other)}")
        if self.kind == "classification" and metric in GROUPED:
            table = split.table or self.table if split.source else self.train.table or self.table
            if table and table.group is None and table.group_rows is None:
                raise ValueError(f"metric {metric} of {name} needs a group in its table")
            if table is None and self.reader != "multirc":
                raise ValueError(
                    f"metric {metric} needs groups, and reader {self.reader} gives none; take another metric"
                )


METHODS = (
    "full", "bitfit", "adapters", "lora", "prompt", "features", "mix", "linear_probe", "sentence_probe", "cosine", "text_to_text",
    "in_context", "early_exit", "decomposable_attention"
)  # fmt: skip
"""Files of `components.finetune.methods`. One more way to adapt is one more file and its name here, and below where that is so."""
ATTACHED = ("adapters", "lora")
"""Those that go into a Transformer's layers."""
FROZEN = ("features", "mix", "decomposable_attention", "linear_probe", "sentence_probe", "cosine")
"""Those that read the texts through the model once, and never backward."""
TUNED = ("full", "bitfit", "adapters", "lora", "prompt")
"""Those that run the model in every step, under the recipe's `head`."""
MIXING = ("features", "mix", "decomposable_attention", "linear_probe")
"""Methods and heads that read layers as `normalise_layers` says."""
ONE_LAYER = ("linear_probe", "sentence_probe", "cosine")
"""Those that read `layer`."""

IN_WORDS = {"text_to_text": ("classification", "regression", "choice", "extraction", "text"), "in_context": ("classification", "choice")}
"""Those that put a task in words, for models that write -> the kinds of tasks that they can put so."""
IDLE = {
    "text_to_text": ("pair", "head", "class_weights", "temperature_scaling"),
    "early_exit": ("head", "temperature_scaling"),
    **dict.fromkeys(FROZEN, ("head", "layer_decay", "gradual_unfreezing")),
    "in_context": (
        "pair", "head", "class_weights", "label_smoothing", "patience", "layer_decay", "gradual_unfreezing", "temperature_scaling",
    ),
}  # fmt: skip
"""Settings that have no effect under a method: all of an example is in one prompt, there is no head, or nothing of the
model learns."""
OF_CLASSES = {
    "label_smoothing": ("classification", "tagging", "text"), "class_weights": ("classification", "tagging"),
    "temperature_scaling": ("classification",),
}  # fmt: skip
"""Settings of a recipe -> the kinds of task on which they have an effect."""


class Start(Block):
    """Settings of the tuning from a start other than the pre-trained weights, in place of the recipe's."""

    learning_rate: Positive | None = None
    """Null: that of the recipe."""
    embedding_scale: Positive = 1.0
    """`random`: the token vectors are multiplied by it. Drawn as small as positions are (deviation .02), they hide which word stands
    where."""


class Recipe(Block):
    """How a model is adapted to a task."""

    method: Literal[METHODS]
    """Which weights learn: all; biases; adapters; low-rank updates; vectors before the text; or none of the model, under a
    biLSTM with attention, the mixed layers' mean, a comparison of them token by token, one layer's mean, one vector of each text, or the
    cosine of two of them; all, and the model writes its answer (T5, Raffel et al. 2020); or none at all, and the model says how likely each
    answer is behind a prompt with some examples (GPT-3, Brown et al. 2020); or all, with a classifier on several layers (Schwartz et al.
    2020)."""
    learning_rate: Positive
    """Highest learning rate of AdamW, reached after the warm-up. BERT's authors try 2e-5 to 5e-5 for all weights
    (Devlin et al. 2019, appendix A.3); small models and heads alone take more, 1e-4 to 1e-3."""
    epochs: Size
    """Passes over the training examples; BERT: 2 to 4."""
    batch_size: Count
    """Examples per step; BERT: 16 or 32."""
    schedule: Literal["linear", "cosine", "constant", "slanted_triangular"] = "linear"
    """`slanted_triangular`: linear to 1/32 of the full rate (Howard and Ruder 2018, equation 3)."""
    warmup: Share = 0.1
    """Share of the steps in which the learning rate rises linearly from 0."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW's, of matrices; biases and norms have none (Loshchilov and Hutter 2019; BERT: 0.01)."""
    dropout: Dropout = 0.1
    """Probability with which a number is set to 0 in training, in the model and below the head (BERT: 0.1)."""
    max_length: Annotated[int, Field(ge=8, le=2**40)] = 64
    """Tokens; longer inputs are cut and counted."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Each layer below the top one learns so many times slower (ULMFiT: 1 / 2.6 = 0.385)."""
    gradual_unfreezing: bool = False
    """The head alone learns in the first epoch, a layer more in each that follows (Howard and Ruder 2018, section 3.3)."""
    patience: NonNegativeInt | None = None
    """Keep the epoch that is best on dev, stop after so many more without a gain; null: the last of `epochs` counts."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target's probability that is spread over all classes (Szegedy et al. 2016)."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: a class weighs by the inverse of its frequency.
    This and smoothing are for classification and tagging; other kinds have no classes."""
    temperature_scaling: Annotated[bool, Added(neutral=False)] = False
    """Classification: logits are divided by what makes dev's labels likeliest, so that probabilities can be believed (Guo et al. 2017); no
    prediction changes. Those of dev itself are each of one half divided by what fits the other."""
    pair: Literal["joined", "apart"] = "joined"
    """The two texts of a pair: one input of two segments, or read one by one and compared by the head as [u, v, |u - v|, u * v].
    Models are compared with each other under the same: apart, it does not matter whether pre-training has met pairs. (Choices,
    answers and tags are always read in one input.)"""
    head: Literal["pooled", "mix", "decomposable_attention", "bilstm", "concat"] = "pooled"
    """On a model that is not frozen: a linear layer on its pooled output; one on the mean over the tokens of its mixed layers, as
    under the method `mix`; or, of texts read apart, a comparison of each token of its mixed layers with what it attends to in the other
    text (Parikh et al. 2016; what is read in one input as under `mix`); or a biLSTM with attention over its top layer, as on the
    left-to-right model of Devlin et al. 2019, table 5; or ULMFiT's block on the pooled output, the maximum and the mean over the tokens
    (Howard and Ruder 2018, section 3.3)."""
    hidden_size: Size = 128
    """Width of the biLSTM, of `features` and of `head: bilstm`; of the comparison of `decomposable_attention`, method and head; of the
    block of `head: concat` (50 in the paper)."""
    normalise_layers: Annotated[bool, Added(neutral=False)] = True
    """Each token's vector of each layer is normalised before layers are mixed or one is read: `features`, `mix`,
    `decomposable_attention`, `linear_probe`, `sentence_probe`, `cosine`, and `head: mix | decomposable_attention` (Peters et al. 2018,
    section 3.2). Without it the scale of first weights decides how models compare."""
    starts: Annotated[dict[Literal["random", "token_vectors"], Start], Added(neutral={})] = {}
    """Settings that replace the recipe's for a start other than the pre-trained weights, so that each start is compared
    at its own best, found with the same effort."""
    layer: int = -1
    """`linear_probe`, and `vector: mean`: 0 is the embedding, -1 the top layer."""
    vector: Annotated[Literal["pooled", "mean"], Added(neutral="pooled")] = "pooled"
    """`sentence_probe`, `cosine`: the model's own vector of a text, or the mean over the tokens of `layer`."""
    bottleneck: Size = 16
    """`adapters`: width."""
    rank: Size = 8
    """`lora`."""
    alpha: Positive = 16.0
    """`lora`: the update is scaled by alpha / rank."""
    prompt_length: Size = 10
    """`prompt`: vectors."""
    target_length: Annotated[Size, Added(neutral=32)] = 32
    """`text_to_text`: tokens of an answer at most, in training and as it is written, the likeliest one each time; longer ones are cut and
    counted as lost."""
    shots: Annotated[Annotated[int, Field(ge=0)], Added(neutral=0)] = 0
    """`in_context`: labelled examples in the prompt, drawn from the training split by the seed."""
    calibrated: Annotated[bool, Added(neutral=False)] = False
    """For `in_context`: subtract the label probabilities of prompts without content (Zhao et al. 2021)."""

    exits: Annotated[list[Annotated[int, Field(ge=1)]], Added(neutral=[])] = []
    """For `early_exit`: the layers that get a classifier, counted from 1; the last always has one. Default: all
    layers."""

    @model_validator(mode="after")
    def parts_fit(self):
        check_fall(self.schedule, self.warmup)
        if self.exits and self.method != "early_exit":
            raise ValueError(f"exits has no effect with method {self.method}: it needs early_exit; leave it out")
        if self.exits != sorted(set(self.exits)):
            raise ValueError(f"exits {self.exits}: list each layer once, in ascending order")
        if self.method in ("sentence_probe", "cosine") and self.vector == "pooled" and self.layer != -1:
            raise ValueError(
                f"layer {self.layer}: vector: pooled is of the last layer; take vector: mean, or leave layer out"
            )
        if self.pair == "joined" and "decomposable_attention" in (self.method, self.head):
            raise ValueError(
                "decomposable_attention needs two separate texts, and pair: joined makes one; set pair: apart"
            )
        if self.head == "concat" and self.method not in FROZEN and self.batch_size == 1:
            raise ValueError("head concat normalises over the batch, which needs more than one example: raise batch_size")
        if idle := [name for name in IDLE.get(self.method, ()) if getattr(self, name) != type(self).model_fields[name].default]:
            raise ValueError(f"{idle[0]} has no effect under method {self.method}: leave it out")
        if not self.normalise_layers and self.method not in MIXING and not (self.head in MIXING and self.method in TUNED):
            raise ValueError(f"normalise_layers has no effect under method {self.method}, head {self.head}: leave it out")
        if "token_vectors" in self.starts and self.starts["token_vectors"].embedding_scale != 1:
            raise ValueError(
                "starts.token_vectors.embedding_scale has no effect: the vectors are trained; leave it out"
            )
        if self.method != "in_context" and (self.shots or self.calibrated):
            raise ValueError(
                f"shots and calibrated have no effect with method {self.method}: they need in_context; leave them out"
            )
        return self

    def of_start(self, init: str) -> "Recipe":
        """The recipe for a start: `pretrained`, `random`, `token_vectors`."""
        own = self.starts.get(init)
        return self.model_copy(update={"learning_rate": own.learning_rate}) if own and own.learning_rate else self

    def embedding_scale(self, init: str) -> float:
        """The factor by which token vectors are multiplied before training."""
        return self.starts[init].embedding_scale if init in self.starts else 1.0

    def idle(self, kinds: Collection[str]) -> str | None:
        """A setting that has no effect on any task of these kinds, and what it needs."""
        if self.method == "text_to_text":
            return None  # learns words, whatever the task
        for name, able in OF_CLASSES.items():
            if getattr(self, name) != type(self).model_fields[name].default and not set(kinds) & set(able):
                return f"{name} has no effect: it needs a task of kind {' or '.join(able)}"
        return None


Init = Literal["pretrained", "random", "token_vectors"]
"""Where a tuning starts."""
STARTED = ("full", "features", "mix", "decomposable_attention")
"""Methods that can start from a model's token vectors alone."""


class Finetune(Block):
    """Every model on every task; what all adaptations have in common: the seeds, the examples, the machine."""

    models: Annotated[list[ModelName], Once]
    """Names of `models`, `checkpoints` or `derived`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    inits: Annotated[list[Init], Field(min_length=1), Once]
    """From the model's weights; from random ones of the same architecture; from the model's own token vectors alone, without positions
    and layers: what these add is what the context brings."""
    seeds: Annotated[list[Seed], Field(min_length=1)]
    """Each draws the training examples, the head's and the random model's weights, their order and dropout."""
    train_examples: Count | None = None
    """Labelled examples used, another subset for each seed, the same for every model; null takes all."""
    eval_examples: Count | dict[Name, Count] | None = None
    """Size of the seeded subset of each evaluation split; null takes all. `{dev: 2000}`: 2000 of dev, all of the
    others."""
    accelerator: Annotated[Accelerator, RunOnly()] = "auto"
    """`auto`: a GPU where there is one."""
    precision: Precision = "auto"
    """`auto`: bf16-mixed where the hardware multiplies bf16, else 32-true."""
    threads: Threads | None = None
    """CPU threads of torch; null leaves torch's own choice."""
    recipes: dict[Name, Recipe]
    """The recipe of each model, by the model's name."""

    def evaluated(self, split: str) -> int | None:
        """How many examples of a split are judged; None for all."""
        return self.eval_examples.get(split) if isinstance(self.eval_examples, dict) else self.eval_examples

    @model_validator(mode="after")
    def begins_pretrained(self):
        if "pretrained" not in self.inits:
            raise ValueError("inits lacks pretrained, with which random weights are compared; add it")
        if "token_vectors" in self.inits:
            for name, recipe in self.recipes.items():
                if recipe.method not in STARTED:
                    raise ValueError(
                        f"recipes.{name}: method {recipe.method} reads layers, and the start "
                        "token_vectors has none; take one of "
                        f"{', '.join(STARTED)}, or leave token_vectors out of inits"
                    )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: one is listed twice and would count as two runs; list each once")
        return self


class Adapt(Block):
    """Ways to adapt, side by side: every model by every recipe on every task, under the seeds and examples of `finetune`."""

    models: Annotated[list[ModelName], Once]
    """Names of `models`, `checkpoints` or `derived`."""
    methods: Annotated[list[Name], Once]
    """Names of `recipes`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    recipes: dict[Name, Recipe]
    """Name of a way to adapt -> its recipe."""


BASELINES = ("majority", "second_text", "logistic_regression", "linear_svm", "averaging", "decomposable_attention", "bilstm")


class LearningCurve(Block):
    """Scores at fewer labelled examples: models of `finetune` under their recipes, from both starts, beside baselines.

    With all that `finetune` uses, the scores are those of `finetune`.
    """

    models: Annotated[list[ModelName], Once]
    """Names of `finetune.models`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    train_examples: Annotated[list[Size], Field(min_length=1), Once] = [100, 500]
    """Sizes of the training set, each a seeded subset of the next."""
    baselines: Annotated[list[Literal[BASELINES]], Once] = ["logistic_regression"]
    """Names of `baselines.methods` to compare with."""
    min_steps: Size = 160
    """Epochs are added until there are so many: few examples need more of them (Mosbach et al. 2021)."""

    def lengthened(self, recipe: Recipe, examples: int) -> Recipe:
        """The recipe with as many epochs as `min_steps` takes."""
        return recipe.model_copy(update={"epochs": max(recipe.epochs, ceil(self.min_steps / ceil(examples / recipe.batch_size)))})


class Baselines(Block):
    """Baselines that need no pre-training, on the same examples."""

    methods: Annotated[list[Literal[BASELINES]], Once]
    """The commonest label (where a text is asked for, the source as it is); bags of words, `second_text` of a pair's second text alone; a
    deep averaging network (Iyyer et al. 2015); decomposable attention, for pairs (Parikh et al. 2016); a biLSTM with attention."""
    tokenizer: TokenizerName
    """The tokenizer of the networks, whose vectors start at random."""
    embedding_size: Size = 100
    """Width of these vectors."""
    embedding_std: Positive = 1.0
    """Deviation that the vectors start with; on few examples they hardly move, and small ones let the head learn faster."""
    recipe: Recipe
    """The recipe of the networks; its `method` has no effect."""

    @model_validator(mode="after")
    def pairs_are_apart(self):
        if "decomposable_attention" in self.methods and self.recipe.pair == "joined":
            raise ValueError("methods: decomposable_attention needs two separate texts; set pair: apart in the recipe")
        return self
