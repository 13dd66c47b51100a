"""Models in the form of `transformers`: brought in (`python -m components.derive.checkpoints NAME`) and written out (`sesame export`).

`parity` checks each time that both give the same numbers; `pieces` turns a sentencepiece tokenizer into a
`tokenizer.json`. Each family maps the names and shapes of `transformers` to its modules in its `hub.py`; one more kind
of model is a table there.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def hub(family: str) -> ModuleType | None:
    """How `transformers` lays out a family; None where it has no such model."""
    name = f"components.models.{family}.hub"
    return import_module(name) if find_spec(name) else None
