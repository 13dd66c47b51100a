"""Readers of task files that are not plain tables: SuperGLUE's structured tasks, SQuAD, CoNLL.

To add a reader, add a module `<name>.py` with `read(task, source, split, labelled)`, for the published files and the hub's parquet, and
its name with its kind of task in `READ_AS` of `components.params.tasks`. `fields` has the code that readers share.
"""

from collections.abc import Callable
from importlib import import_module

from components import params
from components.tasks.readers.fields import Examples


def load(name: str) -> Callable[[params.Task, params.Source, str, bool], Examples]:
    """Return the `read` of a reader by its name in `READ_AS`; its arguments are (task, source, split, whether the file has labels)."""
    return import_module(f"components.tasks.readers.{name}").read
