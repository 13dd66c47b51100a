"""Readers of task files that are no plain table: SuperGLUE's structured tasks, SQuAD, CoNLL.

One more reader is one file here, `<name>.py`, with `read(task, source, split, labelled)`, which takes the published files
and the hub's parquet alike, and its name with its kind of task in `READ_AS` of `components.params.tasks`.
`fields` holds what readers share.
"""

from collections.abc import Callable
from importlib import import_module

from components import params
from components.tasks.readers.fields import Examples


def load(name: str) -> Callable[[params.Task, params.Source, str, bool], Examples]:
    """The `read` of a reader by its name in `READ_AS`: called with (task, source, split, whether the file has labels)."""
    return import_module(f"components.tasks.readers.{name}").read
