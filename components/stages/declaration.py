"""What a stage is, declared once: in the `stages.py` of the folder that has its body. `registry` has all of them.

What it depends on (`data/resolved/`), the stage that an error names for a missing file, and what results, prices, `--recheck` and the
slots for GPUs and cores know of it follow from the declaration. Order, commands and outputs are in dvc.yaml, which a test compares with it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from components.params import Params
from components.stages.closure import fingerprint


@dataclass(frozen=True)
class Entry:
    """One stage of the pipeline, or one of a group (`pretrain`, `bert`)."""

    stage: str
    name: str
    """`all` for a stage that is no group."""
    modules: tuple[str, ...]
    """What it runs: its own module, and those it finds by name."""
    settings: dict[str, Any]
    """All that its result depends on, as JSON, defaults filled in."""
    model: str = ""
    """The model of params that it judges, where there is one."""

    @cached_property
    def code(self) -> str:
        """A fingerprint of what the modules run."""
        return fingerprint(self.modules)

    @property
    def key(self) -> str:
        """Of settings and code together, for work that is resumed; what is read is to be added."""
        return hashlib.sha256(f"{self.code} {json.dumps(self.settings, sort_keys=True)}".encode()).hexdigest()[:16]


class Table(NamedTuple):
    """What `sesame run` shows of some stages at its end."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Inputs(NamedTuple):
    """What a stage reads of a folder that other stages write to as well (`components.stages.inputs`)."""

    name: str
    """Of the stage within its group."""
    paths: Iterable[str]
    """Below data/: `tasks/snli`."""


@dataclass(frozen=True)
class Stage:
    """A group of stages, as `pretrain`: all that is known of it beside its body."""

    name: str
    entries: Callable[[Params], Iterator[Entry]]
    """Those that params declare."""
    writes: str
    """Its output below data/, with the parts of the stage's name: `scores/{0}/{1}`."""
    section: str = ""
    """The section of params that declares its names; empty where a name stands for several things, as a model and a task."""
    fetches: bool = False
    """Whether its block of params may have sources: `--recheck` runs it again where these are not pinned."""
    trains: Literal["nothing", "text", "tasks"] = "nothing"
    """What it trains on, and so by which settings it uses cores and GPUs. `tasks`: on as many threads as `finetune` says."""
    scores: bool = False
    """Whether it gives a model a score on a task: the end of what `sesame price MODEL` adds up."""
    inputs: Callable[[Params], Iterator[Inputs]] | None = None
    """What it reads of shared folders. dvc.yaml has a stage `<name>_inputs` for it."""
    table: Callable[[Mapping[tuple[str, str], dict]], Table] | None = None
    """(stage, name) -> metrics of some of its stages, to what is shown of them; stages of one function are shown together."""

    @property
    def makes_model(self) -> bool:
        """Whether it writes to data/models."""
        return self.writes == "models/{0}"
