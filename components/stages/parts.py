"""Modules and settings that the declarations of several stages share."""

from importlib.util import find_spec
from typing import Any

from components import params
from components.core.config import Block, inside
from components.params import Params
from components.params.recipes import IN_WORDS
from components.params.sources import SOURCES
from components.params.text import LIBRARY


def source_modules(*blocks: Block | list[Block]) -> tuple[str, ...]:
    """The modules that read the sources of some blocks."""
    read = [each for block in blocks for each in inside(block) if isinstance(each, SOURCES)]
    names = {source.kind for source in read}
    names |= {f"synthetic.{source.problem}" for source in read if source.kind == "synthetic"}
    return tuple(f"components.text.sources.{name}" for name in sorted(names))


def reader_modules(task: params.Task) -> tuple[str, ...]:
    """What is found by name where a task's files are no plain table."""
    return (f"components.tasks.readers.{task.reader}",) if task.reader else ()


def tokenizer_modules(tokenizer: params.Tokenizer) -> tuple[str, ...]:
    """What is found by name where a text is read in these pieces."""
    return ("components.text.tokenizer.trained",) if tokenizer.kind in LIBRARY else ()


def encoding_modules(p: Params, encoding: str) -> tuple[str, ...]:
    return tokenizer_modules(p.tokenizers[p.encodings[encoding].tokenizer])


def family_module(name: str) -> str:
    return f"components.models.{name}.model"


def model_modules(p: Params, name: str) -> tuple[str, ...]:
    """What is found by name where a model is loaded."""
    root = p.root(name)
    return family_module(p.family(name)), *(encoding_modules(p, p.models[root].encoding) if root in p.models else ())


def training_modules(p: Params, block: params.Training, family: str, encoding: str) -> tuple[str, ...]:
    """What a training on text finds by name."""
    objective = f"components.objectives.{block.objective.name}.objective"
    return family_module(family), objective, *optimizer_modules(block), *encoding_modules(p, encoding)


def optimizer_modules(block: Block) -> tuple[str, ...]:
    """What a training finds by name of how weights learn; nothing of a way that only reads a text, as pruning does."""
    if (optimizer := getattr(block, "optimizer", None)) is None:
        return ()
    return f"components.optimizers.{optimizer.name}.optimizer", f"components.optimizers.schedules.{optimizer.schedule}"


def method_modules(recipe: params.Recipe, family: str) -> tuple[str, ...]:
    """What a way to adapt a model of a family finds by name."""
    decoding = decoding_modules(family) if recipe.method == "text_to_text" else ()
    return f"components.finetune.methods.{recipe.method}", f"components.optimizers.schedules.{recipe.schedule}", *decoding


def decoding_modules(family: str) -> tuple[str, ...]:
    """How a family writes; nothing of one that doesn't, which the stage says then."""
    module = f"components.models.{family}.decoding"
    return (module,) if find_spec(module) else ()


def tuning_settings(p: Params) -> dict[str, Any]:
    """What every fine-tuning depends on of what all have in common."""
    finetune = p.finetune.settings()
    return {"seed": p.seed} | {key: finetune[key] for key in ("train_examples", "eval_examples", "precision", "threads")}


def judging_settings(task: params.Task, *recipes: params.Recipe) -> dict[str, Any]:
    """Settings of a task that its data do not contain: what is asked, how an answer is judged, a prompt that is used."""
    whole = task.settings()
    splits = {name: {"labelled": split.labelled, "metrics": split.metrics} for name, split in task.splits.items()}
    words = ("prompt",) if any(recipe.method in IN_WORDS for recipe in recipes) else ()
    kept = ("kind", "labels", "range", "metrics", "cut", "lowercase", *words)
    return {key: whole[key] for key in kept if key in whole} | {"splits": splits}
