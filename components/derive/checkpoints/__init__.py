"""Models in the form of `transformers`: brought in (`python -m components.derive.checkpoints NAME`) and written out (`sesame export`).

`parity` sees that both give the same numbers, every time; `pieces` turns a sentencepiece tokenizer into a `tokenizer.json`.
What the names and shapes of `transformers` are in our modules is each family's business: one more kind of model is a table in its `hub.py`.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def hub(family: str) -> ModuleType | None:
    """How `transformers` lays out a family; None where it has no such model."""
    name = f"components.models.{family}.hub"
    return import_module(name) if find_spec(name) else None
