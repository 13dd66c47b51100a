"""`sesame doctor`: whether this machine has what a run needs, a line a thing, with the cure for what is missing."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import requests

from components import params
from components.core.errors import SesameError, one_line, without_secrets
from components.text.sources import pypi
from pipelines import terminal
from pipelines.machines import services

ROOM, MEMORY = 5 * 2**30, 4 * 2**30
"""Bytes of disk and memory that the default takes, without the environment."""


@dataclass(frozen=True)
class Check:
    """What was looked at."""

    name: str
    value: str
    cure: str = ""
    """How to mend it; empty where nothing is wrong."""
    needed: bool = True
    """Whether runs fail without it."""


def examined() -> list[Check]:
    """All checks. One that cannot be made is a problem of that check, and no error."""
    checks = []
    for check in CHECKS:
        try:
            checks += check()
        except Exception as error:  # whatever is broken here is what is being looked for
            checks.append(Check(check.__name__, one_line(error), "mend this first"))
    return checks


def python() -> Iterator[Check]:
    yield Check("python", f"{platform.python_version()}, {sys.executable}")  # pip refuses an older one than is needed


def packages() -> Iterator[Check]:
    """Against constraints.txt, which says what was tested."""
    constraints = (Path(__file__).parents[1] / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", constraints, re.M))
    others = []
    for name, pinned in pins.items():
        try:
            installed = version(name)
            # a build, as torch's for CPUs, is of the same version
            if installed.partition("+")[0] != pinned.partition("+")[0]:
                others.append(f"{name} {installed} for {pinned}")
        except PackageNotFoundError:
            continue  # of another platform, or an extra
    cure = "`make install` brings the versions that were tested" if others else ""
    shown = f"; not as pinned: {terminal.some(others)}" if others else ""
    yield Check("packages", f"{len(pins)} pinned{shown}", cure, needed=False)


def checkout() -> Iterator[Check]:
    if not (git := shutil.which("git")):
        yield Check("git", "not in PATH", "install git: DVC needs it")
        return
    inside = _said(git, "rev-parse", "--is-inside-work-tree") == "true"
    cure = "" if inside else "clone the repository, or `git init` and commit here"
    yield Check("git", _said(git, "--version").removeprefix("git version "), cure)
    if inside and not (_said(git, "config", "user.name") and _said(git, "config", "user.email")):
        yield Check("git user", "none", "`git config user.name ...` and `user.email ...`: experiments are commits", needed=False)
    writable = os.access(".", os.W_OK)
    yield Check("folder", str(Path.cwd()), "" if writable else "make this folder writable")
    yield Check("dvc", version("dvc"), "" if Path(".dvc").is_dir() else "there is no .dvc here: call sesame in the checkout")


def declared() -> Iterator[Check]:
    try:
        all_params = params.load()
    except SesameError as error:
        yield Check("params.yaml", str(error).splitlines()[0], "correct it")
        return
    yield Check("params.yaml", f"{len(all_params.main('models'))} models, {len(all_params.tasks)} tasks, {len(all_params.studies)} studies")


def memory() -> Iterator[Check]:
    total, free = psutil.virtual_memory().total, psutil.virtual_memory().available
    cure = "" if free > MEMORY else "close other programs, or use `--jobs 1`"
    yield Check("cores", f"{len(os.sched_getaffinity(0))}")
    yield Check("memory", f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f}", cure, needed=False)


def disk() -> Iterator[Check]:
    free = shutil.disk_usage(".").free
    cure = "" if free > ROOM else "free some: the default writes about a GiB, and old results are kept"
    yield Check("disk", f"{free / 2**30:.1f} GiB free", cure)


def gpu() -> Iterator[Check]:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Check("gpu", names)
        return
    # a card that torch cannot use is worth a word; none at all is fine
    card = Path("/proc/driver/nvidia/version").exists()
    cure = "install a torch for your CUDA (docs/operations.md)" if card else ""
    yield Check("gpu", "none that torch can use" if card else "none", cure, needed=False)


def index() -> Iterator[Check]:
    address = pypi.index_url()
    shown = without_secrets(address)
    try:
        answer = requests.head(address, timeout=10, allow_redirects=True)
    except requests.RequestException as error:
        cure = f"it does not answer ({type(error).__name__}): set PIP_INDEX_URL to one that does, or use `files` sources"
        yield Check("package index", shown, cure)
        return
    cure = "" if answer.status_code < 500 else "try again later, or set PIP_INDEX_URL"
    yield Check("package index", f"{shown} answers {answer.status_code}", cure)


def servers() -> Iterator[Check]:
    for name, state, address in services.status():
        yield Check(name, f"{state} {address}".strip())


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (python, packages, checkout, declared, memory, disk, gpu, index, servers)
