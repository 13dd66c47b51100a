"""A fine-tuned model with the head of its task: saved in the model's folder, and loaded for prediction."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning import Fabric
from safetensors.torch import load_file, save_file

from components import params
from components.core.errors import SesameError
from components.finetune import loop, methods
from components.finetune.loop import Predictions
from components.finetune.task_setup import PreparedModel
from components.models import store
from components.stages.outputs import read_json, reading
from components.tasks import Example

FOLDER = "task"
"""Subfolder of a tuned model's folder: the head and the task."""


def save(folder: Path, prepared: PreparedModel, name: str, task: params.Task, recipe: params.Recipe, pair: bool) -> None:
    """Write the head of a tuned model, and the settings that its predictions depend on, into the model's folder."""
    target = folder / FOLDER
    target.mkdir(parents=True)
    head = {key: value.detach().cpu().contiguous() for key, value in prepared.module.head.state_dict().items()}
    save_file(head, target / "head.safetensors")
    about = {
        "name": name, "pair": pair, "task": task.model_dump(mode="json"), "recipe": recipe.model_dump(mode="json"),
        "learned": {key: getattr(prepared.kind, key) for key in prepared.kind.learned},
    }  # fmt: skip
    (target / "task.json").write_text(json.dumps(about, indent=1) + "\n")


class TunedModel:
    """A model of `data/models` with the head it was tuned with."""

    def __init__(self, folder: Path):
        """Raises SesameError where the folder has no model, or one that was not tuned on a task."""
        store.about(folder)
        if not (folder / FOLDER).exists():
            raise SesameError(
                f"{folder.name} has no task head; declare a model with `by: {{name: tuned, ...}}` under `derived` (docs/adaptation.md)"
            )
        about = read_json(folder / FOLDER / "task.json")
        with reading(folder / FOLDER / "task.json"):
            self.task, self.recipe = params.Task.model_validate(about["task"]), params.Recipe.model_validate(about["recipe"])
            self.name, self.pair = about["name"], about["pair"]
        model, self.tokens = store.load(folder)
        self.kind = methods.build_kind(self.task, self.recipe, self.name)
        for key, value in about["learned"].items():
            setattr(self.kind, key, value)
        self.module = methods.build(model, self.tokens, self.recipe, self.kind, self.pair)
        with reading(folder / FOLDER / "head.safetensors"):
            self.module.head.load_state_dict(load_file(folder / FOLDER / "head.safetensors"))
        self.module.eval()

    @torch.no_grad()
    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Predictions for the examples; logits (examples, labels) where the task has labels."""
        fabric = Fabric(accelerator="cpu", devices=1)
        data = self.module.inputs(self.kind.encode(list(examples), self.tokens), fabric)
        return loop.predict(fabric, self.module, self.kind, data)
