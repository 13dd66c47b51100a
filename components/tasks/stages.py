"""The stage `task`."""

from collections.abc import Iterator

from components.params import Params
from components.stages.declaration import Entry, Stage
from components.stages.parts import reader_modules, source_modules


def tasks(p: Params) -> Iterator[Entry]:
    for name, task in p.tasks.items():
        modules = ("components.tasks.__main__", *reader_modules(task), *source_modules(task))
        yield Entry("task", name, modules, {"seed": p.seed, **task.settings()})


STAGES = (Stage("task", tasks, "tasks/{0}", section="tasks", fetches=True),)
