"""Base class and types of all sections of `params.yaml`. Without torch, like all files called `config.py`.

A component that is selected by name (an architecture, an objective, a fine-tuning method) is a folder or a file of this name; its
settings are a Block there, and `union_of` joins those that a registry in `components.params` lists into one type.
"""

import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import product
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    model_validator,
)

from components.core.errors import without_secrets

NAME = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=100, description="lower case, digits, underscores")]
RowName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=100, description="lower case, digits, underscores")
]
"""That of a study's variant or of a point: it may begin with a digit."""
Count = Annotated[int, Field(gt=0, le=10**15, description="how many")]
Size = Annotated[int, Field(gt=0, le=2**40, description="a dimension of a model or a machine")]
"""The upper bounds only catch typing errors; `sesame plan` estimates whether memory and time suffice."""
Layers = Annotated[int, Field(gt=0, le=10_000, description="a number of layers")]
"""To build more takes minutes before anything is said."""
Seed = Annotated[int, Field(ge=0, lt=2**32, description="below 2**32, the most that numpy takes")]
TOP_SEED: ContextVar[int] = ContextVar("seed", default=1)
"""The top-level `seed` of params.yaml, while the file is validated."""
DrawnSeed = Annotated[Seed, Field(default_factory=TOP_SEED.get, description="below 2**32; without one, the top-level seed")]
"""The seed of a section that draws random numbers. Default: the top-level seed, so that a sweep over `seed` trains again."""
Positive = Annotated[float, Field(ge=1e-20, le=1e20, description="above 0, and such as float32 holds")]
LearningRate = Annotated[float, Field(ge=1e-20, le=1, description="at most 1: about so much an optimizer like Adam moves a weight a step")]
Threads = Annotated[int, Field(gt=0, le=1024)]
Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1, description="below 1, which would leave nothing")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 lower-case hex digits")]


def _http_address(address: str) -> str:
    HTTP_URL.validate_python(address)
    if not re.match(r"\s*https?://[^/]", address, re.I):  # pydantic repairs addresses that requests refuses and `without_secrets` misses
        raise ValueError("an address begins with http:// or https:// and a host")
    return address  # unchanged


HTTP_URL = TypeAdapter(AnyHttpUrl)
Address = Annotated[str, AfterValidator(_http_address), PlainSerializer(without_secrets, when_used="json")]
"""A web address. Model cards and MLflow get settings as JSON, and so never a password."""

PathOrAddress = Annotated[str, PlainSerializer(without_secrets, when_used="json")]
"""A path or an address. Like `Address`, its JSON has no secrets."""


def _each_once(values: list) -> list:
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise ValueError(f"{twice} is listed twice; list it once")
    return values


Once = AfterValidator(_each_once)
"""Validator of a list without duplicates."""
Globs = Annotated[list[PathOrAddress], Field(min_length=1)]


def named_combinations(*choices: Iterable[Any]) -> dict[str, tuple]:
    """Return all combinations by the name of their stage: `bert-snli-1` -> (bert, snli, 1)."""
    return {"-".join(map(str, combination)): combination for combination in product(*choices)}


@dataclass(frozen=True)
class Refers:
    """Marks a setting that names an entry of one of these sections of params.

    `folder/name` is a path below data/ that names the output of a stage: `folders` has the sections of each folder.
    """

    sections: tuple[str, ...] = ()
    folders: tuple[tuple[str, tuple[str, ...]], ...] = ()


CORPORA = ("corpora", "mixes")
MODELS = ("models", "checkpoints", "derived", "word_models")
VECTORS = ("vectors", "published_vectors", "contextual_vectors")
"""Sections whose entries are used alike, and written to one folder of data/."""
CorpusName = Annotated[Name, Refers(CORPORA)]
TaskName = Annotated[Name, Refers(("tasks",))]
TokenizerName = Annotated[Name, Refers(("tokenizers",))]
EncodingName = Annotated[Name, Refers(("encodings",))]
ModelName = Annotated[Name, Refers(MODELS)]
"""A model, whatever made it."""
VectorsName = Annotated[Name, Refers(VECTORS)]
EvaluationName = Annotated[Name, Refers(("evaluations",))]


@dataclass(frozen=True)
class RunOnly:
    """Marks a setting of where and how something runs; it changes at most the last bits of floating-point sums."""


@dataclass(frozen=True)
class Label:
    """Marks a setting that only people read, such as a licence or prompts to show: no data and no weight depends on it."""


@dataclass(frozen=True)
class Added:
    """Marks a setting that was added when results existed already: `neutral` is the value without an effect.

    So a new setting makes no result stale, and a later change of its default makes only those stale that use it.
    """

    neutral: Any


class Block(BaseModel):
    """A section of `params.yaml`; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def refuse_conversions(cls, given: Any) -> Any:
        """Refuse values that pydantic would convert: true to 1 and false to 0, so that `patience: false` would stop a training at the first
        check instead of never; and the strings '8' and 'off', which the JSON schemas refuse."""
        for key, value in given.items() if isinstance(given, dict) else ():
            types = _types(cls.model_fields[key].annotation) if key in cls.model_fields else frozenset([Any])
            for item in () if Any in types else _convertible(value):
                if type(item) in types:
                    continue
                if types & {int, float} and isinstance(item, bool):
                    none = ", or null for none" if NoneType in types else ""
                    raise ValueError(f"{key}: {str(item).lower()} is not a number; give a number{none}")
                if types & {int, float} and isinstance(item, str) and _is_number(item):
                    raise ValueError(f"{key}: {item!r} is a text; write the number without quotes")
                if bool in types and not types & {int, float}:
                    raise ValueError(f"{key}: {item!r} is neither true nor false; write one of them")
        return given

    def differs(self, name: str) -> bool:
        """Return whether a setting is another than its default."""
        return getattr(self, name) != type(self).model_fields[name].default

    def refuse_idle(self, names: Iterable[str], why: str) -> None:
        """Raise ValueError for the first of these settings, which have no effect here, that is not its default."""
        for name in names:
            if self.differs(name):
                raise ValueError(f"{name} has no effect: {why}; leave it out")

    def settings(self) -> dict[str, Any]:
        """Return the settings that results depend on, as JSON with defaults: without RunOnly and Label ones, and neutral Added ones."""
        return _result_settings(self, self.model_dump(mode="json"))


@cache
def _types(annotation: Any) -> frozenset[Any]:
    """Return the types of the values that an annotation accepts, inside containers too."""
    if get_origin(annotation) is Literal:
        return frozenset(map(type, get_args(annotation)))
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        arguments = arguments[:1]
    elif get_origin(annotation) is dict:  # whose keys are strings anyway
        arguments = arguments[1:]
    return frozenset().union(*map(_types, arguments)) if arguments else frozenset([annotation])


def _convertible(value: Any) -> list[bool | str | int]:
    """Return the values, of a list or a table its items, that pydantic might convert to another type."""
    items = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
    return [item for item in items if isinstance(item, bool | str | int)]


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text))
    return False


def _result_settings(value: Any, dumped: Any) -> Any:
    """Remove from `dumped`, the JSON of `value`, all settings that no result depends on."""
    if isinstance(value, Block):
        marks = _marks(type(value))
        return {
            name: _result_settings(getattr(value, name), item) for name, item in dumped.items()
            if name not in marks or not _has_no_effect(marks[name], getattr(value, name))
        }  # fmt: skip
    if isinstance(value, dict):
        return {key: _result_settings(item, dumped[key]) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_result_settings(item, dumped_item) for item, dumped_item in zip(value, dumped, strict=True)]
    return dumped


@cache
def _marks(kind: type[Block]) -> dict[str, RunOnly | Label | Added]:
    """Return the marks of a section's settings."""
    known = RunOnly | Label | Added
    fields = {name: [mark for mark in field.metadata if isinstance(mark, known)] for name, field in kind.model_fields.items()}
    return {name: marks[0] for name, marks in fields.items() if marks}


def _has_no_effect(mark: RunOnly | Label | Added, value: Any) -> bool:
    return isinstance(mark, RunOnly | Label) or value == mark.neutral


def union_of(package: str, names: Iterable[str], kind: str, default: str | None = None, tag: str = "name") -> Any:
    """Join the classes `kind` in the `config` modules of `names` in a package into one type with the discriminator `tag`.

    A section without `name` has the `default` one.
    """
    blocks = tuple(getattr(import_module(f"{package}.{name}.config"), kind) for name in names)
    union = Annotated[Union[blocks], Field(discriminator=tag)] if len(blocks) > 1 else blocks[0]  # noqa: UP007  (a tuple built at run time)
    return Annotated[union, BeforeValidator(partial(_with_default_name, default))] if default else union


def _with_default_name(default: str, given: Any) -> Any:
    return {"name": default, **given} if isinstance(given, dict) else given


def named_blocks(union: Any) -> dict[str, type[Block]]:
    """Return the classes that `union_of` joined, by the name that selects each."""
    kinds = get_args(union)[0]
    return {block.model_fields["name"].annotation.__args__[0]: block for block in get_args(kinds) or (kinds,)}


def parts(value: object) -> Collection[object]:
    """Return what a block, a dictionary or a list of params is made of; of anything else nothing."""
    if isinstance(value, BaseModel):
        return [part for _, part in value]  # `dict(value)` calls a block's field that is named `keys`
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def inside(value: object) -> Iterator[object]:
    """Yield a value of params and all that is in it, however deep."""
    yield value
    for part in parts(value):
        yield from inside(part)


@cache
def all_blocks() -> dict[str, type[Block]]:
    """All blocks of `params.yaml` that are imported, by their names."""
    kinds = [Block]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # not those that are made for a check, as of a single field
    return {kind.__name__: kind for kind in kinds if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind}
