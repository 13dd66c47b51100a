"""Distillation: a smaller student is trained on text with the outputs of a teacher (DistilBERT, Sanh et al. 2019). Apart from the loss
this is a pre-training, with its curve and checkpoints."""

import hashlib
from pathlib import Path

import torch

from components import params
from components.core import processes, storage
from components.core.tracking import Run
from components.derive import smaller
from components.derive.pretrained import save_curve
from components.models import store
from components.objectives.distillation.config import Distillation
from components.pretrain.training import checkpoint_folder, pretrain
from components.stages.closure import fingerprint
from components.stages.outputs import read_json


class Lessons(params.Model):
    """The settings of the distillation as those of a pre-training."""

    objective: Distillation


def _paths(all_params: params.Params, name: str) -> tuple[Path, Path, Path]:
    """The folders of the teacher, the text, and the initial student."""
    block = all_params.derived[name]
    return Path("data/models", block.start), Path("data", block.on), storage.STATE / "students" / name


def _block(all_params: params.Params, name: str) -> Lessons:
    by, (teacher, encoding, _) = all_params.derived[name].by, _paths(all_params, name)
    architecture = smaller.architecture(all_params, name)
    code = fingerprint((__name__, f"components.objectives.{by.objective.name}.objective"))
    objective = Distillation(
        hard=by.objective.model_dump(mode="json"), teacher=str(teacher),
        teacher_key=hashlib.sha256(code.encode() + (teacher / "model.safetensors").read_bytes()).hexdigest()[:16],
        **{key: getattr(by, key) for key in Distillation.model_fields if key in params.Distilled.model_fields and key != "name"},
    )  # fmt: skip
    training = {key: getattr(by, key) for key in params.Training.model_fields} | {"objective": objective}
    return Lessons.model_construct(**training, encoding=encoding.name, architecture=architecture)


def run_id_file(all_params: params.Params, name: str) -> Path | None:
    """The file with the MLflow run of a killed attempt; None while inputs are missing."""
    teacher, encoding, student = _paths(all_params, name)
    if not all(path.exists() for path in (teacher / "model.safetensors", encoding / "meta.json", student / "model.safetensors")):
        return None
    return checkpoint_folder(_block(all_params, name), name, start=student) / "run_id"


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Train the student; the curve is in its folder. Raises SesameError where text and teacher have different tokenizers."""
    teacher, encoding, student = _paths(all_params, name)
    by, block = all_params.derived[name].by, _block(all_params, name)
    share = initialise(block, by, teacher, encoding, student)
    trained = pretrain(block, name, folder, run, start=student)
    if trained is None:  # a rank that is not the first
        return {}
    config = read_json(folder / "config.json")
    config["lineage"][-1] |= {"by": "distilled", "objective": by.objective.name, "layers": by.layers}
    storage.write_json(folder / "config.json", config)
    save_curve(trained, folder)
    return trained.metrics | {"from_teacher": share, "bytes": smaller.bytes_of(folder), "bytes_before": smaller.bytes_of(teacher)}


def initialise(block: Lessons, by: params.Distilled, teacher: Path, encoding: Path, student: Path) -> float:
    """Write the initial student, the same every time. Returns the share of its weights that come from the teacher."""
    (model, tokens), about = store.load(teacher), store.about(teacher)
    objective = smaller.objective(by.objective, model, teacher, encoding)
    torch.manual_seed(by.seed)
    initial = store.build(block.architecture, tokens)
    taken = by.taken(about.architecture, initial.num_layers)
    drawn = smaller.copy_weights(initial, model, taken) if taken else initial.state_dict()
    # modules that this training does not touch, either, are untrained
    fresh = {key.partition(".")[0] for key in drawn} | {*about.absent}
    absent = [name for name in objective.untrained(initial) if name in fresh]
    if processes.rank_zero():  # before `pretrain` starts the other ranks
        with storage.output(student) as target:
            store.save(target, initial.state_dict(), block.architecture, tokens, absent, about.lineage)
    return 1 - sum(value.numel() for value in drawn.values()) / sum(value.numel() for value in initial.state_dict().values())
