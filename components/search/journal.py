"""The trials that are done, a JSON line each, in `.sesame/search/<model>-<task>-<key>/`: a killed search loses the one that was running.

The key is a hash of all that a trial's result depends on, so that only the very same search is ever continued; how many
trials there shall be is not in it.
"""

import hashlib
import json
import os
from pathlib import Path

from components import params, stage

CODE = (
    "search/__main__.py", "search/journal.py", "search/study.py", "search/trial.py", "finetune/*.py", "models/*.py", "optimizer.py", "compute.py", "flops.py",
    "tokenizer/__init__.py", "tokenizer/fast.py", "tasks/__init__.py", "tasks/metrics.py",
)  # fmt: skip
"""What a trial depends on, as in studies/dvc.yaml."""
LASTING = {"models", "tasks", "budget", "confidence"}
"""What of the search's block no trial depends on."""


def key(all_params: params.Params, model: str, task: str) -> str:
    """Of params, model, data and code."""
    finetune = all_params.finetune
    blocks = [
        all_params.search.model_dump_json(exclude=LASTING), finetune.recipes[model].model_dump_json(), all_params.tasks[task].model_dump_json(),
        finetune.model_dump_json(include={"eval_examples", "accelerator", "precision", "threads"}), str(all_params.seed),
    ]  # fmt: skip
    found = hashlib.sha256("\n".join(blocks).encode())
    files = [file for folder in (Path("data/models", model), Path("data/tasks", task)) for file in sorted(folder.rglob("*")) if file.is_file()]
    for file in [*files, *sorted(file for pattern in CODE for file in Path("components").glob(pattern))]:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


class Journal:
    """The finished trials of one search, and the ledger's run that they are recorded under."""

    def __init__(self, all_params: params.Params, model: str, task: str):
        self.folder = stage.STATE / "search" / f"{model}-{task}-{key(all_params, model, task)}"
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
