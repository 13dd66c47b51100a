"""Models in the format of `transformers`: imported (`python -m components.derive.checkpoints NAME`) and exported (`sesame export`).

`parity` checks each time that both compute the same numbers; `pieces` converts a sentencepiece tokenizer to a
`tokenizer.json`. Each family maps the names and shapes of `transformers` to its modules in its `hub.py`; to add a kind
of model, add a table there.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def hub(family: str) -> ModuleType | None:
    """The layout of a family in `transformers`; None where it has no such model."""
    name = f"components.models.{family}.hub"
    return import_module(name) if find_spec(name) else None
