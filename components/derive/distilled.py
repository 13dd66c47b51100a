"""A smaller student trained on text by what a teacher says of it (DistilBERT, Sanh et al. 2019). Everything but the losses is a
pre-training, with its curve, and a killed one's going on."""

import hashlib
from pathlib import Path

import torch

from components import params
from components.core import processes, storage
from components.core.tracking import Run
from components.derive import smaller
from components.derive.pretrained import keep
from components.models import store
from components.objectives.distillation.config import Distillation
from components.pretrain.training import checkpoint_folder, pretrain
from components.stages.closure import fingerprint


class Lessons(params.Model):
    """As if the whole were one pre-training."""

    objective: Distillation


def _paths(all_params: params.Params, name: str) -> tuple[Path, Path, Path]:
    """The teacher, the text, and the student as it begins."""
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


def note(all_params: params.Params, name: str) -> Path | None:
    """Where a killed attempt has left the ledger's run; None before there is anything to begin with."""
    teacher, encoding, student = _paths(all_params, name)
    if not all(path.exists() for path in (teacher / "model.safetensors", encoding / "meta.json", student / "model.safetensors")):
        return None
    return checkpoint_folder(_block(all_params, name), name, start=student) / "run_id"


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Teach; the curve is in the student's folder. Raises SesameError where the text is in other pieces than the teacher's."""
    teacher, encoding, student = _paths(all_params, name)
    by, block = all_params.derived[name].by, _block(all_params, name)
    share = begin(block, by, teacher, encoding, student)
    trained = pretrain(block, name, folder, run, start=student)
    if trained is None:  # a rank that is not the first
        return {}
    config = storage.read_json(folder / "config.json")
    config["lineage"][-1] |= {"by": "distilled", "objective": by.objective.name, "layers": by.layers}
    storage.write_json(folder / "config.json", config)
    keep(trained, folder)
    return trained.metrics | {"from_teacher": share, "bytes": smaller.bytes_of(folder), "bytes_before": smaller.bytes_of(teacher)}


def begin(block: Lessons, by: params.Distilled, teacher: Path, encoding: Path, student: Path) -> float:
    """Write the student as it begins: the same every time. Returns the share of its weights that are the teacher's."""
    (model, tokens), its = store.load(teacher), store.about(teacher)
    objective = smaller.objective(by.objective, model, teacher, encoding)
    torch.manual_seed(by.seed)
    made = store.build(block.architecture, tokens)
    taken = by.taken(its.architecture, made.num_layers)
    drawn = smaller.keep(made, model, taken) if taken else made.state_dict()
    # what this training leaves alone, too, was never trained
    fresh = {key.partition(".")[0] for key in drawn} | {*its.absent}
    absent = [part for part in objective.untrained(made) if part in fresh]
    if processes.rank_zero():  # before the others begin, which `pretrain` starts
        with storage.output(student) as target:
            store.save(target, made.state_dict(), block.architecture, tokens, absent, its.lineage)
    return 1 - sum(value.numel() for value in drawn.values()) / sum(value.numel() for value in made.state_dict().values())
