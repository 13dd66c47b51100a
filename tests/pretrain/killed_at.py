"""`python -m tests.pretrain.killed_at MODEL [BOUNDARY...]`: train once in peace, then once for each boundary of a training, or those named,
with a kill -9 right there and another attempt after it. Prints what each pair of attempts ended with. Every attempt is forked off this
process, which has the imports."""

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from components import objectives, params
from components.core.tracking import Run
from components.models import store
from components.pretrain import checkpoints, training
from components.pretrain.module import Pretraining
from components.text import tokenizer

MILESTONE = 600


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_if_saved(*_: Any) -> None:
    """So that the next attempt has not to train anew."""
    if not list(Path(".sesame/checkpoints").glob("*/last.ckpt")):
        os._exit(1)
    die()


def at(owner: Any, name: str, call: int, after: Callable | None = None) -> Callable[[], None]:
    """What makes a process die at the nth call of a function: before it, or when `after` has seen what it was given."""

    def arm() -> None:
        real, calls = getattr(owner, name), []

        def wrapped(*args, **kwargs):
            calls.append(1)
            if len(calls) < call:
                return real(*args, **kwargs)
            if after:
                real(*args, **kwargs)
                after(*args)
            return die()

        setattr(owner, name, wrapped)

    return arm


def torn(_: Any, path: Path) -> None:
    """As a save looks when its writer dies in the middle."""
    os.truncate(path, path.stat().st_size // 2)


def boundaries(objective: type) -> dict[str, Callable[[], None]]:
    """A training of 12 steps of two micro-batches each that is validated twice, keeps a model on the way, and saves after every step."""
    return {
        "step": at(Pretraining, "training_step", 6),
        "micro-batch": at(objective, "losses", 14),
        "update": at(Pretraining, "_update", 5, after=die),
        "validation": at(Pretraining, "validation_step", 2),
        "milestone": at(store, "save", 1),
        "milestone written": at(store, "save", 1, after=die),
        "save": at(torch, "save", 7, after=torn),
        "saved": at(checkpoints.PeriodicCheckpoint, "on_train_batch_end", 8, after=die),
        "final validation": at(training, "_metrics", 1),
        "final save": at(store, "save", 2),
        "metrics": at(training, "baseline_metrics", 1, after=die_if_saved),
        "final save written": at(training.shutil, "rmtree", 1),
    }


def attempt(name: str, arm: Callable[[], None] | None) -> str:
    """Train in a child; what it ended with, "" if it was killed."""
    read, write = os.pipe()
    if not (child := os.fork()):
        if arm:
            arm()
        trained = training.pretrain(params.load().models[name], name, Path("data/models/kept"), Run(None), milestones=[MILESTONE])
        digest = hashlib.sha256()
        for folder in (Path("data/models/kept"), Path("data/models/kept", str(MILESTONE))):
            digest.update((folder / "model.safetensors").read_bytes())
        curve = [[row[key] for key in ("step", "tokens", "train_loss", "loss")] for row in trained.curve]
        os.write(write, f"{digest.hexdigest()} {curve}".encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    if arm and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        return f"not killed, but ended with {os.waitstatus_to_exitcode(status)}"
    with open(read) as end:
        return end.read()


def main(name: str, *wanted: str) -> None:
    torch.set_num_threads(1)
    objective = type(objectives.build(params.load().models[name].objective, tokenizer.load(Path("data/encoded/tiny"))))
    print("in peace", attempt(name, None), sep="\t")
    for where, arm in boundaries(objective).items():
        if wanted and where not in wanted:
            continue
        print(where, attempt(name, arm) + attempt(name, None), sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
