"""The finished trials, one JSON line each, in `.sesame/search/<model>-<task>-<init>-<key>/`: a killed search loses only the current trial.

The key is a hash of everything that the result of a trial depends on, so that only the same search is resumed; the number of trials
is not part of it.
"""

import hashlib
import json
import os
from pathlib import Path

from components import params
from components.core import storage
from components.stages.registry import entry


def key(all_params: params.Params, name: str) -> str:
    """A hash of the search's settings, code, model and data; the number of trials is not part of it."""
    search, (model, task, _) = entry(all_params, "search", name), all_params.search.runs[name]
    settings = {**search.settings, "search": {key: value for key, value in search.settings["search"].items() if key != "budget"}}
    digest = hashlib.sha256(f"{search.code} {json.dumps(settings, sort_keys=True)}".encode())
    for folder in (Path("data/models", model), Path("data/tasks", task)):
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Journal:
    """The finished trials of a search, and its MLflow run."""

    def __init__(self, all_params: params.Params, name: str):
        self.folder = storage.STATE / "search" / f"{name}-{key(all_params, name)}"
        self.trials, self.run = self.folder / "trials.jsonl", self.folder / "run_id"

    def open(self, run_id: str | None) -> list[dict]:
        """Create the journal; returns the trials of a killed attempt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if run_id:
            self.run.write_text(run_id)
        lines = self.trials.read_text(encoding="utf-8").splitlines(keepends=True) if self.trials.exists() else []
        complete = [line for line in lines if line.endswith("\n")]
        if len(complete) < len(lines):  # killed while the last line was written
            self.trials.write_text("".join(complete), encoding="utf-8")
        return [json.loads(line) for line in complete]

    def add(self, row: dict) -> None:
        """Store a trial on the disk."""
        with self.trials.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def delete(self) -> None:
        """Remove the journal of a search whose results are in its outputs."""
        for file in (self.trials, self.run):
            file.unlink(missing_ok=True)
        self.folder.rmdir()
