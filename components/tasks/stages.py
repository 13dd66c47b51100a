"""The stage `task`."""

from collections.abc import Iterator

from components.params import Params
from components.stages.declaration import Entry, Stage
from components.stages.parts import source_modules


def tasks(p: Params) -> Iterator[Entry]:
    for name, task in p.tasks.items():
        readers = (f"components.tasks.readers.{task.reader}",) if task.reader else ()
        modules = ("components.tasks.__main__", *readers, *source_modules(task))
        yield Entry("task", name, modules, {"seed": p.seed, **task.settings()})


STAGES = (Stage("task", tasks, "tasks/{0}", section="tasks", fetches=True),)
