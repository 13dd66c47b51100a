"""Base class and types of all blocks of `params.yaml`. Free of torch, as are all files called `config.py`.

A part that is chosen by name (an architecture, an objective, a way to adapt) is a folder or a file called so; its settings are
a block there, and `union_of` makes one type of all that a registry in `components.params` names.
"""

import math
import re
from collections.abc import Iterable
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
Count = Annotated[int, Field(gt=0, le=10**15, description="how many")]
Size = Annotated[int, Field(gt=0, le=2**40, description="a dimension of a model or a machine")]
"""The bounds are where a number can only be a slip of the finger; whether there is memory and time for it, `sesame plan` estimates."""
Seed = Annotated[int, Field(ge=0, lt=2**32, description="below 2**32, the most that numpy takes")]
TOP_SEED: ContextVar[int] = ContextVar("seed", default=1)
"""The `seed` at the top of params.yaml, while the file is checked."""
DrawnSeed = Annotated[Seed, Field(default_factory=TOP_SEED.get, description="below 2**32; without one, the top-level seed")]
"""The seed of a block that draws random numbers. Default: the top-level seed, so that a sweep over `seed` trains
again."""
Positive = Annotated[float, Field(ge=1e-20, le=1e20, description="above 0, and such as float32 holds")]
Threads = Annotated[int, Field(gt=0, le=1024)]
Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1, description="below 1, which would leave nothing")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 lower-case hex digits")]


def _of_the_web(address: str) -> str:
    WEB.validate_python(address)
    if not re.match(r"\s*https?://[^/]", address, re.I):  # pydantic mends what requests refuses and `without_secrets` would not find
        raise ValueError("an address begins with http:// or https:// and a host")
    return address  # as it was written


WEB = TypeAdapter(AnyHttpUrl)
Address = Annotated[str, AfterValidator(_of_the_web), PlainSerializer(without_secrets, when_used="json")]
"""An address of the web. Cards and the ledger take blocks as JSON, and so never see a password."""

Place = Annotated[str, PlainSerializer(without_secrets, when_used="json")]
"""A place that may be an address. As `Address`, it is JSON without secrets."""


def _each_once(values: list) -> list:
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise ValueError(f"{twice} is listed twice; list it once")
    return values


Once = AfterValidator(_each_once)
"""Validator of a list: nothing is in it twice."""
Globs = Annotated[list[Place], Field(min_length=1)]


def named(*parts: Iterable[Any]) -> dict[str, tuple]:
    """Every combination of some choices by the name of its stage: `bert-snli-1` -> (bert, snli, 1)."""
    return {"-".join(map(str, chosen)): chosen for chosen in product(*parts)}


@dataclass(frozen=True)
class Refers:
    """Marks a setting that names an entry of one of these sections of params.

    `folder/name` is a path below data/ that names the output of a stage: `folders` has the sections of each folder.
    """

    sections: tuple[str, ...] = ()
    folders: tuple[tuple[str, tuple[str, ...]], ...] = ()


CorpusName = Annotated[Name, Refers(("corpora", "mixes"))]
TaskName = Annotated[Name, Refers(("tasks",))]
TokenizerName = Annotated[Name, Refers(("tokenizers",))]
EncodingName = Annotated[Name, Refers(("encodings",))]
ModelName = Annotated[Name, Refers(("models", "checkpoints", "derived"))]
"""A model, whatever made it."""
VectorsName = Annotated[Name, Refers(("vectors", "published_vectors", "contextual_vectors"))]
EvaluationName = Annotated[Name, Refers(("evaluations",))]


@dataclass(frozen=True)
class RunOnly:
    """Marks a setting of where and how something runs: no result depends on it, apart from the last bits of
    floating-point sums."""


@dataclass(frozen=True)
class Label:
    """Marks a setting that only people read, as a licence or what a model is to be shown on: no data and no weight depends on it."""


@dataclass(frozen=True)
class Added:
    """Marks a setting that came when there were results already: at `neutral` everything is as it was without it.

    So a new setting makes no result stale, and a later change of its default makes those stale that use it.
    """

    neutral: Any


class Block(BaseModel):
    """A block of `params.yaml`: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def nothing_is_taken_for_another(cls, given: Any) -> Any:
        """pydantic takes true for 1 and false for 0: `patience: false` would stop a training at the first chance, not never. It takes the
        texts '8' and 'off', too, which the schemas refuse."""
        for key, value in given.items() if isinstance(given, dict) else ():
            taken = _leaves(cls.model_fields[key].annotation) if key in cls.model_fields else frozenset([Any])
            for said in () if Any in taken else _plain(value):
                if type(said) in taken:
                    continue
                if taken & {int, float} and isinstance(said, bool):
                    none = ", or null for none" if NoneType in taken else ""
                    raise ValueError(f"{key}: {str(said).lower()} is not a number; give a number{none}")
                if taken & {int, float} and isinstance(said, str) and _number(said):
                    raise ValueError(f"{key}: {said!r} is a text; write the number without quotes")
                if bool in taken and not taken & {int, float}:
                    raise ValueError(f"{key}: {said!r} is neither true nor false; write one of them")
        return given

    def settings(self) -> dict[str, Any]:
        """What results depend on, as JSON, defaults filled in: without RunOnly and Label settings, and Added ones that are neutral."""
        return _lasting(self, self.model_dump(mode="json"))


@cache
def _leaves(annotation: Any) -> frozenset[Any]:
    """The types that an annotation is made of."""
    if get_origin(annotation) is Literal:
        return frozenset(map(type, get_args(annotation)))
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    elif get_origin(annotation) is dict:  # whose keys are texts in any case
        parts = parts[1:]
    return frozenset().union(*map(_leaves, parts)) if parts else frozenset([annotation])


def _plain(value: Any) -> list[bool | str | int]:
    """A value that may be taken for another, or such in a list or a table of plain values."""
    parts = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
    return [part for part in parts if isinstance(part, bool | str | int)]


def _number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text))
    return False


def _lasting(value: Any, dumped: Any) -> Any:
    """`dumped` without what no result depends on; `value` is what it was dumped from."""
    if isinstance(value, Block):
        marks = _marks(type(value))
        return {
            name: _lasting(getattr(value, name), shown) for name, shown in dumped.items()
            if name not in marks or not _left_out(marks[name], getattr(value, name))
        }  # fmt: skip
    if isinstance(value, dict):
        return {key: _lasting(part, dumped[key]) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_lasting(part, shown) for part, shown in zip(value, dumped, strict=True)]
    return dumped


@cache
def _marks(kind: type[Block]) -> dict[str, RunOnly | Label | Added]:
    """The marked settings of a block."""
    known = RunOnly | Label | Added
    fields = {name: [mark for mark in field.metadata if isinstance(mark, known)] for name, field in kind.model_fields.items()}
    return {name: marks[0] for name, marks in fields.items() if marks}


def _left_out(mark: RunOnly | Label | Added, value: Any) -> bool:
    return isinstance(mark, RunOnly | Label) or value == mark.neutral


def union_of(package: str, names: Iterable[str], kind: str, default: str | None = None, tag: str = "name") -> Any:
    """The blocks called `kind` of the folders `names` in a package, as one type that `tag` tells apart; a block without it is the
    `default` one."""
    blocks = tuple(getattr(import_module(f"{package}.{name}.config"), kind) for name in names)
    union = Annotated[Union[blocks], Field(discriminator=tag)] if len(blocks) > 1 else blocks[0]  # noqa: UP007  (of a tuple made at run time)
    return Annotated[union, BeforeValidator(partial(_named, default))] if default else union


def _named(default: str, given: Any) -> Any:
    return {"name": default, **given} if isinstance(given, dict) else given


def blocks_of(union: Any) -> tuple[type[Block], ...]:
    """The blocks that `union_of` made a type of."""
    kinds = get_args(union)[0]
    return get_args(kinds) or (kinds,)
