"""Fine-tuning methods, a file each: which weights are trained, and the head.

A method is a module built from (model, tokenizer, recipe, kind of task, whether it is a pair); its parameters that require
gradients are trained. `inputs` computes once, from encoded texts, what `forward` needs. To add a method, write a file with such a
module as `Method`, and add its name to `METHODS` of `components.params.recipes`. `full` is the base of methods that run the model in
every step, `frozen` of those that run it once. A method that trains some weights calls `freeze()` after `Full.__init__` and then unfreezes
these; `model.depth(name)` of `components.models.contract` returns the layer of a parameter. Its settings are fields of `Recipe`
with defaults. A method that needs another kind of task has it as `TaskKind`, built from (task, recipe, name of the task).
"""

from importlib import import_module
from types import ModuleType

from torch import nn

from components import params
from components.finetune import kinds
from components.finetune.kinds import Kind
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


def build_kind(task: params.Task, recipe: params.Recipe, name: str) -> Kind:
    """The kind of a task, or the `TaskKind` of the recipe's method."""
    task_kind = getattr(_method(recipe), "TaskKind", None)
    return task_kind(task, recipe, name) if task_kind else kinds.build(task, recipe)


def build(model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
    """The module of a recipe's method. Raises SesameError where the model does not support it."""
    return _method(recipe).Method(model, tokens, recipe, kind, pair)


def _method(recipe: params.Recipe) -> ModuleType:
    return import_module(f"components.finetune.methods.{recipe.method}")


def layers_below_head(parameter: str, module: nn.Module) -> int:
    """0 for parameters of the head and above the layers, 1 for the top layer, and so on down to the embeddings."""
    owner, _, rest = parameter.partition(".")
    if owner != "model" or rest.endswith(".prompt"):
        return 0
    return module.model.num_layers + 1 - module.model.depth(rest)
