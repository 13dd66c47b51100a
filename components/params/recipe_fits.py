"""What a recipe needs of the model that it adapts, and of its task.

Each check raises ValueError with the place and the way to mend it.
"""

from components.models.common.config import ArchitectureBlock
from components.params.recipes import ATTACHED, IN_WORDS, ONE_LAYER, Recipe
from components.params.tasks import Task
from components.params.ways import SMALLER
from components.params.whole import Params

GENERATE = ("left_to_right", "recurrent", "source_then_target")
"""How models read that can generate text."""


def recipe_fits(place: str, model: str, architecture: ArchitectureBlock, recipe: Recipe) -> None:
    """Raises ValueError where the recipe at `place` can't adapt a model of this architecture."""
    if not architecture.has_sublayers and recipe.method in ATTACHED:
        raise ValueError(
            f"{place}.method {recipe.method} needs the blocks of a Transformer, and {model} has none; "
            "take another method"
        )
    if recipe.method == "bitfit" and not getattr(architecture, "biases", True):
        raise ValueError(
            f"{place}.method bitfit tunes biases, and {model}.architecture.biases is false; take another method"
        )
    if recipe.mixes and (setting := architecture.sets_widths_apart):
        raise ValueError(
            f"{place}: {recipe.mixes} mixes layers, and those of {model} differ in width; leave "
            f"{model}.architecture.{setting} out, or take a method and head that read the last layer "
            "(method full, head pooled or concat)"
        )
    if recipe.method in ONE_LAYER and not -1 <= recipe.layer <= architecture.num_layers:
        raise ValueError(f"{place}.layer {recipe.layer}: {model} has 0 (embedding) to {architecture.num_layers}, -1 is the last")
    if recipe.method == "early_exit" and architecture.name not in SMALLER:
        raise ValueError(
            f"{place}.method early_exit needs architecture {' or '.join(SMALLER)}, and {model} is {architecture.name}"
        )
    if recipe.exits and recipe.exits[-1] > architecture.num_layers:
        raise ValueError(
            f"{place}.exits: layer {recipe.exits[-1]} does not exist; {model} has {architecture.num_layers}"
        )
    if recipe.method in IN_WORDS and (how := reads_otherwise(architecture)):
        raise ValueError(
            f"{place}.method {recipe.method} needs a model that generates text, and {model} does not (it reads {how})"
        )
    if recipe.method == "text_to_text":
        both = architecture.reads != "source_then_target"
        if (longest := recipe.target_length + both * recipe.max_length) > architecture.max_length:
            what = "max_length and target_length together are" if both else "target_length is"
            raise ValueError(f"{place}: {what} {longest}, more than {model} has room for ({architecture.max_length})")
    if recipe.max_length > architecture.max_length:
        setting = "max_length" if architecture.name == "static" else "architecture.max_length"
        raise ValueError(
            f"{place}.max_length {recipe.max_length} is more than the model reads, {model}.{setting} {architecture.max_length}"
        )


def keeps_zeros(p: Params, place: str, model: str, recipe: Recipe) -> None:
    """Raises ValueError where tuning would fill the zeros of a sparsified model: all methods but this one keep them."""
    if recipe.method == "lora" and p.sparse(model):
        raise ValueError(
            f"{place}.method lora adds low-rank matrices without zeros to those of {model}, which was sparsified; "
            "take another method"
        )


def reads_otherwise(architecture: ArchitectureBlock) -> str:
    """How a model reads that can't generate text from left to right; empty for one that can."""
    if architecture.reads not in GENERATE:
        return architecture.reads
    return "from the end" if getattr(architecture, "backward", False) else ""


def task_fits(place: str, name: str, task: Task, recipe: Recipe) -> None:
    """Raises ValueError where the recipe at `place` does not suit a task."""
    if recipe.method in IN_WORDS and task.kind not in (able := IN_WORDS[recipe.method]):
        raise ValueError(f"{place}.method {recipe.method} is for tasks of kind {', '.join(able)}, and {name} is of kind {task.kind}")
    if recipe.calibrated and task.kind != "classification":
        raise ValueError(f"{place}.calibrated has no effect: {name} has no labels; leave it out")
    if recipe.method == "early_exit" and task.kind != "classification":
        raise ValueError(f"{place}.method early_exit is for tasks of kind classification, and {name} is of kind {task.kind}")
    if recipe.method == "text_to_text" and task.kind == "regression" and not task.range:
        raise ValueError(f"{place}.method text_to_text writes a score as one of 25 steps of the task's range; give tasks.{name}.range")
    if task.kind == "text" and recipe.method not in IN_WORDS:
        raise ValueError(
            f"{place}.method {recipe.method} generates no text, as the task {name} needs; take text_to_text"
        )
