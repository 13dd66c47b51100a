"""The trials that are done, a JSON line each, in `.sesame/search/<model>-<task>-<init>-<key>/`: a killed search loses the one that ran.

The key is a hash of all that a trial's result depends on, so that only the very same search is ever continued; how many
trials there shall be is not in it.
"""

import hashlib
import json
import os
from pathlib import Path

from components import params
from components.core import storage
from components.stages.registry import entry


def key(all_params: params.Params, name: str) -> str:
    """Of the search's own entry (settings and code), model and data; how many trials there shall be is not in it."""
    own, (model, task, _) = entry(all_params, "search", name), all_params.search.runs[name]
    settings = {**own.settings, "search": {key: value for key, value in own.settings["search"].items() if key != "budget"}}
    digest = hashlib.sha256(f"{own.code} {json.dumps(settings, sort_keys=True)}".encode())
    for folder in (Path("data/models", model), Path("data/tasks", task)):
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Journal:
    """The finished trials of one search, and the ledger's run that they are recorded under."""

    def __init__(self, all_params: params.Params, name: str):
        self.folder = storage.STATE / "search" / f"{name}-{key(all_params, name)}"
        self.trials, self.run = self.folder / "trials.jsonl", self.folder / "run_id"

    def begin(self, run_id: str | None) -> list[dict]:
        """The trials that a killed attempt has left, and a place for those to come."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if run_id:
            self.run.write_text(run_id)
        lines = self.trials.read_text(encoding="utf-8").splitlines(keepends=True) if self.trials.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):  # the kill came while the last line was written
            self.trials.write_text("".join(whole), encoding="utf-8")
        return [json.loads(line) for line in whole]

    def add(self, row: dict) -> None:
        """Keep a trial, on the disk before the next begins."""
        with self.trials.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def end(self) -> None:
        """The search is whole: what it found stands in its outputs."""
        for file in (self.trials, self.run):
            file.unlink(missing_ok=True)
        self.folder.rmdir()
