"""`params.yaml` as typed, documented models: every knob of the pipeline, its unit and its default.

Unknown keys are errors, and every problem of a file is reported at once with its path.
The JSON schema of `Params` (`components/params.schema.json`) is what editors complete from: `python -m components.params` writes it anew.

A default is changed here and nowhere else; DVC does not see that, since it watches the file: `sesame run --force`.

The blocks of all components stand here together and not beside their code, because the command
line, DVC's plan and every light stage read them, and none of those should pay for importing torch.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent

from components.errors import SesameError
from components.params.align import Alignment, IdenticalDictionary, PpmiSvd, SkipGram, Vectors, WordNetDictionary
from components.params.block import Block, Name, Seed
from components.params.models import (
    OBJECTIVES_OF,
    Accelerator,
    Activation,
    Architecture,
    BidirectionalLM,
    BiLMArchitecture,
    Budget,
    CausalLM,
    Checkpoint,
    DecoderArchitecture,
    EncoderArchitecture,
    MaskedLM,
    Model,
    Objective,
    Optimizer,
    Precision,
    Trainer,
    TransformerArchitecture,
)
from components.params.search import Draw, Pruner, Search, SearchBudget
from components.params.studies import KINDS, Ablation, Column, Variant, tuned, varied
from components.params.tasks import METRICS_OF, Adapt, Baselines, Finetune, Intermediate, Recipe, Task, TaskSplit, TaskTable
from components.params.text import (
    Cleaning,
    Corpus,
    CorpusPart,
    Encoding,
    FilesSource,
    HubModelSource,
    HubSource,
    Mix,
    PypiSource,
    Reader,
    Source,
    Splits,
    TableReader,
    TextReader,
    Tokenizer,
    UrlSource,
)

Watts = Annotated[float, Field(gt=0, le=1e6)]


class Energy(Block):
    """Power figures for the *estimated* energy: kWh = pue * hours * watts / 1000 (Strubell et al. 2019, section 2)."""

    pue: Annotated[float, Field(ge=1, le=100)] = 1.58
    watts_per_core: Watts = 10.0
    watts_per_gib: Watts = 0.375
    watts_per_gpu: Watts = 300.0


class Resources(Block):
    """What a stage takes for itself: stages that name the same resource never run side by side in the flow.

    `gpu` where trainings share one; `cpu` where one training takes all cores (`threads: null`); null lets them run
    beside each other, which on a small machine with one thread each is the faster way.
    """

    pretrain: str | None = None
    finetune: str | None = None


def _recipe_fits(place: str, model: str, architecture: Architecture, recipe: Recipe) -> None:
    """Raises ValueError where a recipe, which stands at `place`, can't adapt a model."""
    if architecture.name == "bilm" and recipe.method in ("adapters", "lora"):
        raise ValueError(f"{place}.method {recipe.method} goes into a Transformer's blocks, and {model} has none")
    if recipe.method == "linear_probe" and not -1 <= recipe.layer <= architecture.num_layers:
        raise ValueError(f"{place}.layer {recipe.layer}: {model} has 0 (embedding) to {architecture.num_layers}, -1 is the last")
    if recipe.max_length > architecture.max_length:
        raise ValueError(f"{place}.max_length {recipe.max_length} is more than the model reads, {model}.architecture.max_length {architecture.max_length}")


class Params(Block):
    """The whole of `params.yaml`."""

    seed: Seed
    """Splits and subsets of data; models have seeds of their own."""
    energy: Energy
    resources: Resources
    corpora: dict[Name, Corpus]
    tasks: dict[Name, Task]
    mixes: dict[Name, Mix]
    tokenizers: dict[Name, Tokenizer]
    encodings: dict[Name, Encoding]
    models: dict[Name, Model]
    checkpoints: dict[Name, Checkpoint]
    finetune: Finetune
    intermediate: dict[Name, Intermediate]
    adapt: Adapt
    search: Search
    baselines: Baselines
    vectors: dict[Name, Vectors]
    alignments: dict[Name, Alignment]
    ablations: dict[Name, Ablation]
    variants: dict[Name, Variant]

    @model_validator(mode="after")
    def variants_fit(self):
        for name, variant in self.variants.items():
            study = self.ablations.get(variant.study)
            if study is None or variant.model not in self.models:
                continue  # told as a wrong name
            if not name.startswith(f"{variant.study}_"):
                raise ValueError(f"variants.{name}: a variant of study {variant.study} is named {variant.study}_...")
            try:
                model = varied(self.models, study, variant, 1)
            except ValidationError as error:
                raise ValueError(f"variants.{name}.change{_first(error)}") from None
            try:
                recipe = tuned(study, variant)
            except ValidationError as error:
                raise ValueError(f"variants.{name}.recipe{_first(error)}") from None
            _recipe_fits(f"ablations.{variant.study}.recipe", f"variants.{name}", model.architecture, recipe)
        for name, study in self.ablations.items():
            if study.base not in self.variants or self.variants[study.base].study != name:
                raise ValueError(f"ablations.{name}.base: {study.base!r} is no variant of this study")
            columns = (study.plot.x, *study.plot.y)
            if unknown := [column for column in columns if column not in (*get_args(Column), *study.tasks)]:
                raise ValueError(f"ablations.{name}.plot: {unknown[0]!r} is neither a task of the study nor one of {', '.join(get_args(Column))}")
        return self

    @model_validator(mode="after")
    def blocks_fit_each_other(self):
        used = [(f"finetune.recipes.{name}", name, recipe) for name, recipe in self.finetune.recipes.items()]
        used += [(f"intermediate.{name}.recipe", block.model, block.recipe) for name, block in self.intermediate.items()]
        used += [(f"adapt.recipes.{name}", model, self.adapt.recipes[name]) for name in self.adapt.methods if name in self.adapt.recipes for model in self.adapt.models]
        bases = {name: self.finetune.recipes[name] for name in self.search.models if name in self.finetune.recipes}
        for key, draw in self.search.space.items():
            used += [("search.space", name, recipe.model_copy(update={key: value})) for name, recipe in bases.items() for value in draw.ends]
        for place, name, recipe in used:
            chain = [name]
            while chain[-1] in self.intermediate:
                chain.append(self.intermediate[chain[-1]].model)
                if chain[-1] in chain[:-1]:
                    raise ValueError(f"intermediate.{chain[-1]}: tuned on itself ({' from '.join(chain)})")
            if chain[-1] in self.models:
                _recipe_fits(place, f"models.{chain[-1]}", self.models[chain[-1]].architecture, recipe)
        self._search_fits(bases)
        for name, pair in self.alignments.items():
            sizes = {self.vectors[side].vector_size for side in (pair.source, pair.target) if side in self.vectors}
            if len(sizes) > 1:
                raise ValueError(f"alignments.{name}: {pair.source} and {pair.target} have different vector_size: {sorted(sizes)}")
        return self

    def _search_fits(self, recipes: dict[str, Recipe]) -> None:
        search = self.search
        for name, recipe in recipes.items():
            if search.pruner.name != "none" and search.pruner.min_epochs >= (longest := search.longest(recipe)):
                raise ValueError(f"search.pruner: {name} has at most {longest} epochs, so that nothing can be stopped after {search.pruner.min_epochs}")
        for name in search.tasks:
            task = self.tasks.get(name)
            if task and search.metric and search.metric not in (there := task.dev.metrics or task.metrics):
                raise ValueError(f"search.metric {search.metric} is not among those of the dev split of tasks.{name} ({', '.join(there)})")


def _odd(raw: Any) -> str | None:
    """What YAML can say and no block takes, of which the checks below would make no sense; anchors make the same part stand in many places."""
    seen: set[int] = set()
    parts: list[tuple[str, Any]] = [("", raw)]
    while parts:
        place, part = parts.pop()
        if isinstance(part, dict | list):
            if id(part) in seen:
                continue
            seen.add(id(part))
        if isinstance(part, dict):
            if odd := [key for key in part if not isinstance(key, str)]:
                return f"{place or 'the file'}: the key {odd[0]!r} is no text; write it in quotes"
            parts += [(f"{place}.{key}" if place else key, value) for key, value in part.items()]
        elif isinstance(part, list):
            parts += [(f"{place}[{i}]", value) for i, value in enumerate(part)]
        elif isinstance(part, int) and abs(part) >= 2**63:
            return f"{place}: a number beyond 2**63"
    return None


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
        "models or checkpoints or intermediate": {**_dictionary(raw, "models"), **_dictionary(raw, "checkpoints"), **_dictionary(raw, "intermediate")},
        "vectors": _dictionary(raw, "vectors"), "alignments": _dictionary(raw, "alignments"), "ablations": _dictionary(raw, "ablations"),
    }  # fmt: skip

    missing: dict[tuple[str, str], list[str]] = {}  # (name, table) -> where it stands: a slip in one place is told once, not in forty

    def check(path: str, name: Any, table: str) -> None:
        if isinstance(name, str) and name not in tables[table]:
            missing.setdefault((name, table), []).append(path)

    for section, key, table in (
        ("mixes", "corpus", "corpora"), ("tokenizers", "corpus", "corpora or mixes"), ("encodings", "corpus", "corpora or mixes"),
        ("encodings", "tokenizer", "tokenizers"), ("models", "encoding", "encodings"), ("vectors", "corpus", "corpora or mixes"),
        ("intermediate", "model", "models or checkpoints or intermediate"), ("intermediate", "task", "tasks"),
        ("variants", "study", "ablations"), ("variants", "model", "models"), ("variants", "encoding", "encodings"),
        ("alignments", "source", "vectors"), ("alignments", "target", "vectors"), ("alignments", "control", "alignments"),
    ):  # fmt: skip
        for name, block in _dictionary(raw, section).items():
            check(f"{section}.{name}.{key}", _dictionary({"b": block}, "b").get(key), table)
    for name in sorted(_dictionary(raw, "corpora").keys() & _dictionary(raw, "mixes").keys()):
        problems.append(f"mixes.{name}: corpora.{name} has the same name, and both would be written to data/corpora/{name}")
    for name, mix in _dictionary(raw, "mixes").items():
        for key in ("tasks", "also_held_out"):
            for i, task in enumerate(_list(_dictionary({"m": mix}, "m"), key)):
                check(f"mixes.{name}.{key}[{i}]", task, "tasks")
    for name, study in _dictionary(raw, "ablations").items():
        for i, task in enumerate(_list(_dictionary({"s": study}, "s"), "tasks")):
            check(f"ablations.{name}.tasks[{i}]", task, "tasks")
    finetune, adapt, search = _dictionary(raw, "finetune"), _dictionary(raw, "adapt"), _dictionary(raw, "search")
    for section, block in (("finetune", finetune), ("adapt", adapt), ("search", search)):
        for i, task in enumerate(_list(block, "tasks")):
            check(f"{section}.tasks[{i}]", task, "tasks")
        for i, model in enumerate(_list(block, "models")):
            check(f"{section}.models[{i}]", model, "models or checkpoints or intermediate")
    for model in _list(finetune, "models"):
        if isinstance(model, str) and model not in _dictionary(finetune, "recipes"):
            problems.append(f"finetune.recipes: no recipe for model {model!r}")
    for i, model in enumerate(_list(search, "models")):
        if isinstance(model, str) and model not in _dictionary(finetune, "recipes"):
            problems.append(f"search.models[{i}]: no recipe for model {model!r} in finetune.recipes")
    for i, method in enumerate(_list(adapt, "methods")):
        if isinstance(method, str) and method not in _dictionary(adapt, "recipes"):
            problems.append(f"adapt.methods[{i}]: no {method!r} in adapt.recipes (there are: {', '.join(_dictionary(adapt, 'recipes')) or 'none'})")
    check("baselines.tokenizer", _dictionary(raw, "baselines").get("tokenizer"), "tokenizers")
    for section in ("models", "checkpoints", "intermediate"):
        for other in ("models", "checkpoints", "intermediate"):
            for name in sorted(_dictionary(raw, section).keys() & _dictionary(raw, other).keys()) if section < other else []:
                problems.append(f"{other}.{name}: {section}.{name} has the same name, and both would be written to data/models/{name}")
    for (name, table), places in missing.items():
        others = f"; named so {len(places)} times, the last is {places[-1]}" if len(places) > 1 else ""
        problems.append(f"{places[0]}: no {name!r} in {table} (there are: {', '.join(sorted(tables[table])) or 'none'}){others}")
    return problems


def _where(location: tuple, raw: Any) -> str:
    """`('models', 'bert', 'architecture', 'encoder', 'num_heads')` -> `models.bert.architecture.num_heads`."""
    path, entered = "", True
    for key in location:
        tags = [raw.get(tag) for tag in ("kind", "format", "name")] if isinstance(raw, dict) else []
        if entered and key in tags and isinstance(key, str):
            entered = False
            continue  # pydantic names the member of a union; the file does not
        entered = True
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}" if path else str(key)
        raw = raw[key] if isinstance(raw, dict) and key in raw else raw[key] if isinstance(raw, list) and isinstance(key, int) and key < len(raw) else None
    return path


def _message(problem: Mapping[str, Any]) -> str:
    """What pydantic says of a mistake, in our words."""
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["type"] == "missing":
        return "missing"
    message = re.sub(r"^(Value error|Assertion failed), ", "", problem["msg"])
    if "input" in problem and isinstance(problem["input"], str | int | float | bool):
        value = repr(problem["input"])
        message += f" (it is {value if len(value) < 80 else f'{value[:80]}...'})"
    return message


def _plain(problem: str) -> str:
    """One line, whatever the names in it are."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in problem)


def _first(error: ValidationError) -> str:
    """The first mistake, to be put behind the path of the block: `.objective.name: ...`."""
    problem = error.errors()[0]
    return "".join(f".{key}" for key in problem["loc"] if key not in KINDS) + f": {_message(problem)}"


def check(raw: Any) -> Params:
    """Turn the parsed file into `Params`. Raises SesameError that lists every problem, one a line, each with its path."""
    if not isinstance(raw, dict):
        raise SesameError(f"params.yaml: sections expected, as `seed: 1`, {'nothing' if raw is None else type(raw).__name__} found")
    if (problem := _odd(raw)) is not None:
        raise SesameError(f"params.yaml: {_plain(problem)}")
    problems, params = [], None
    try:
        params = Params.model_validate(raw)
    except ValidationError as error:
        for problem in error.errors():
            problems.append(f"{_where(problem['loc'], raw) or 'the file'}: {_message(problem)}")
    if problems := [_plain(problem) for problem in problems + _references(raw)]:
        more = [f"and {len(problems) - MOST} more"] if len(problems) > MOST else []
        listed = "\n  ".join([f"{len(problems)} problems", *problems[:MOST], *more])
        raise SesameError(f"params.yaml: {problems[0] if len(problems) == 1 else listed}")
    return params


MOST = 30
"""Problems that are told at once."""
DEEPEST = 64
"""Levels of nesting; some tens of thousands would end the process, since the parser calls itself for each."""


def _too_deep(text: str) -> int | None:
    """The line where a file is nested beyond all sense. Raises YAMLError for what is not YAML."""
    depth = 0
    for event in YAML(typ="safe").parse(text):
        depth += isinstance(event, MappingStartEvent | SequenceStartEvent) - isinstance(event, MappingEndEvent | SequenceEndEvent)
        if depth > DEEPEST:
            return event.start_mark.line + 1
    return None


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check a params file. Raises SesameError with every problem in it."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file; run from the project's folder") from None
    except OSError as error:
        raise SesameError(f"{path}: can't be read: {error.strerror}") from None
    return check(parse(content, path))


def parse(content: bytes, path: str | Path) -> Any:
    """What a params file says, unchecked; `path` is for messages. Raises SesameError where it is not YAML."""
    try:
        text = content.decode("utf-8-sig")
        if (line := _too_deep(text)) is not None:
            raise SesameError(f"{path}, line {line}: nested deeper than {DEEPEST} levels")
        return YAML(typ="safe").load(text)
    except UnicodeDecodeError as error:
        raise SesameError(f"{path}, line {error.object[: error.start].count(10) + 1}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
    except (ValueError, TypeError, OverflowError) as error:  # a date like 2026-13-45, a whole number of 5,000 digits, a list as key
        raise SesameError(f"{path}: not valid YAML: {error}") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise SesameError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}") from None


def schema() -> str:
    """The JSON schema of `params.yaml`, as text."""
    return json.dumps(Params.model_json_schema(), indent=1) + "\n"
