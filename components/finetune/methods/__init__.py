"""Ways to adapt a pre-trained model, a file each: which weights learn, and what is put on top.

A method is a module built from (model, tokenizer, recipe, kind of task, whether it is a pair); its parameters that require
gradients are trained. `inputs` turns encoded texts into what its `forward` wants, once. One more is one file with such a
module as `Method`, and its name in `METHODS` of `components.params.tasks`. `full` is the base of those that run the model in
every step, `frozen` of those that read it once. One that trains a part calls `freeze()` after `Full`'s own `__init__` and then lets its
part learn; `model.depth(name)` of `components.models.contract` says which layer a parameter belongs to. Its settings are fields
of `Recipe`, with a default for all the others. A method that reads tasks in a way of its own has a kind of task as `Reading`,
(task, recipe, name of the task).
"""

from importlib import import_module
from types import ModuleType

from torch import nn

from components import params
from components.finetune import kinds
from components.finetune.kinds import Kind
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


def reading(task: params.Task, recipe: params.Recipe, name: str) -> Kind:
    """How a recipe's method reads a task: as its kind has it, or in a way of its own."""
    own = getattr(_method(recipe), "Reading", None)
    return own(task, recipe, name) if own else kinds.build(task, recipe)


def build(model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
    """The module of a recipe's method. Raises SesameError where the model has no place for it."""
    return _method(recipe).Method(model, tokens, recipe, kind, pair)


def _method(recipe: params.Recipe) -> ModuleType:
    return import_module(f"components.finetune.methods.{recipe.method}")


def distance(parameter: str, module: nn.Module) -> int:
    """How far below the head a parameter stands:
    0 for the head and what is above the layers, 1 for the top layer, and on down to the embeddings."""
    part, _, rest = parameter.partition(".")
    if part != "model" or rest.endswith(".prompt"):
        return 0
    return module.model.num_layers + 1 - module.model.depth(rest)
