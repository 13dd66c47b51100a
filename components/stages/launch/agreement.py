"""What must be the same on all nodes of a training: commit, code, settings, torch and inputs."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from components.core import tracking
from components.core.errors import SesameError
from components.params import Params
from components.stages import registry
from components.stages.outputs import reading


def description(all_params: Params, stage: str, section: str, name: str, reads: list[str]) -> dict[str, Any]:
    """All that the nodes of a training must have in common."""
    return {
        "commit": tracking.git_commit().removesuffix("-dirty"),  # what is not committed is seen in code and settings
        "code": registry.entry(all_params, stage, name).code,
        "settings": tracking.flatten({section: {name: getattr(all_params, section)[name].model_dump(mode="json")}}),
        "torch": torch.__version__,
        "inputs": {path: content(Path(path)) for path in reads},
    }


def content(path: Path) -> str:
    """A hash of a file, or of all in a folder, their names included; empty where there is nothing."""
    digest = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path] if path.exists() else []
    for file in files:
        with reading(file), file.open("rb") as opened:
            digest.update(f"{file.relative_to(path)} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest() if files else ""


def check_same(here: dict[str, Any], there: dict[str, Any], head: str) -> None:
    """Raises SesameError with the first thing in which this node differs from the head."""
    if here["commit"] != there["commit"]:
        commit = here["commit"][:12] or "none"
        raise SesameError(f"{head} trains with commit {there['commit'][:12]}, here is {commit}: check that out first")
    for key in sorted(here["settings"].keys() | there["settings"].keys()):
        ours, theirs = here["settings"].get(key), there["settings"].get(key)
        if json.dumps(ours) != json.dumps(theirs):
            raise SesameError(f"{head} trains with {key} {theirs}, in params.yaml here it is {ours}: make the files the same")
    if here["code"] != there["code"]:
        raise SesameError(
            f"{head} runs other code than this node, though the commit is the same: commit the changes on both nodes"
        )
    if here["torch"] != there["torch"]:
        raise SesameError(f"{head} has torch {there['torch']}, here is {here['torch']}: install the same (`make install`)")
    for path, digest in there["inputs"].items():
        if not here["inputs"][path]:
            raise SesameError(
                f"{path} is missing on this node: bring it from {head} (`dvc push` there, `dvc pull {path}` here)"
            )
        if here["inputs"][path] != digest:
            raise SesameError(
                f"{path} differs from the file on {head}: `dvc push` there, and here `dvc pull --force {path}`"
            )
