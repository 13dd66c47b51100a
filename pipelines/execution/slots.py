"""Slots: the GPUs and cores of this machine, shared out among all flows and worktree runs on it.

A stage whose resource is `gpu` or `cpu` takes as many slots as its training asks for, and sees only those GPUs. A slot is a lock on an
open file, which the system drops when the last process that has it open ends, however it ends: nothing expires, nothing is left over.
"""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.stages import registry
from pipelines.execution import graph

GPU, CPU = KINDS = "gpu", "cpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
FOLDER = "SESAME_SLOTS"
"""Environment variable: the folder of the locks. Default: one folder for all flows of a user, whatever TMPDIR is."""


@dataclass(frozen=True)
class Slots:
    """What a stage holds while it runs."""

    kind: str
    names: Sequence[str]
    files: Sequence[int]
    """Open files that are locked; DVC's process, which waits for the stage, has them open, too, and keeps them should its flow die."""

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that limit the stage to its slots."""
        return {VISIBLE: ",".join(self.names)} if self.kind == GPU and self.names[0] else {}

    def release(self) -> None:
        for file in self.files:
            os.close(file)


@cache
def names(kind: str) -> tuple[str, ...]:
    """The slots of a kind: the GPUs that may be seen, or all; the cores. One without a name where there is no GPU."""
    if kind == CPU:
        return tuple(str(core) for core in range(os.cpu_count() or 1))
    if (visible := os.environ.get(VISIBLE)) is not None:
        return tuple(dict.fromkeys(takewhile(_seen, map(str.strip, visible.split(","))))) or ("",)
    with suppress(OSError):
        listed = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True)
        if listed.returncode == 0 and listed.stdout.strip():
            return tuple(listed.stdout.split())
    return ("",)


def _seen(name: str) -> bool:
    """Whether CUDA takes a name for a GPU; at the first that it does not it stops, and sees none of those behind."""
    return bool(name) and not name.startswith("-")


def capacity(resource: str | None) -> int:
    """How many slots a resource has; one that is neither GPUs nor cores is one thing, which a flow gives to one stage at a time."""
    return len(names(resource)) if resource in (GPU, CPU) else 1


def demand(all_params: params.Params, stage: graph.Stage) -> int:
    """How many of its resource a stage takes: a training on text its devices or threads, one on a task one GPU or its threads, any other
    one GPU or all cores."""
    resource = stage.meta.resource
    if resource not in KINDS:
        return 1
    training = _training(stage.name, all_params)
    if resource == GPU:
        wanted = training.run.devices if training else 1
    elif training:
        wanted = training.trainer.threads
    else:
        tunes = registry.declared(stage.name.partition("@")[0]).trains == "tasks"
        wanted = all_params.finetune.threads if tunes else None
    return min(wanted, capacity(resource)) if isinstance(wanted, int) else capacity(resource)  # `auto` and null take all


def _training(stage: str, all_params: params.Params) -> params.Training | None:
    """The settings by which a stage trains on text, if it does."""
    kind, _, name = stage.partition("@")
    if kind == "pretrain":
        return all_params.models.get(name)
    if kind == "derive" and name in all_params.derived and isinstance(by := all_params.derived[name].by, params.Training):
        return by
    return params.trained_on_text(all_params.models, all_params.studies, kind, name)


def take(kind: str, count: int) -> Slots | None:
    """Hold so many slots, all of them or none; None where too few are free."""
    folder = Path(os.environ.get(FOLDER) or f"/tmp/sesame-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SesameError(f"{folder} belongs to another user; set {FOLDER} to another folder for the locks")
    with open(folder / "turn", "a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # or two that want two of two might hold one each
        held: dict[str, int] = {}
        for name in names(kind):
            file = os.open(folder / f"{kind}-{name}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            os.utime(file)  # what cleans /tmp goes by it
            held[name] = file
            if len(held) == count:
                return Slots(kind, tuple(held), tuple(held.values()))
        for file in held.values():
            os.close(file)
    return None
