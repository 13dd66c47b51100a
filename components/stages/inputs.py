"""Which files of a shared folder a stage reads: `python -m components.stages.inputs STAGE NAME` -> data/inputs/<stage>/<name>.json.

A mix reads some of the tasks, a history some of the vectors, and `foreach` of DVC knows no lists of dependencies. If such a stage depended
on data/tasks as a whole, a task that nothing uses would make it stale. So it depends on this file, an md5 for each folder that it reads.
Where those come out the same, DVC leaves the stage alone.
"""

import hashlib
import sys
from pathlib import Path

from components.core.errors import SesameError
from components.core.storage import write_json
from components.stages import resolve
from components.stages.outputs import read_json, reading


def digest(folder: Path) -> str:
    """The md5 of the names and contents of all files in a folder. Raises SesameError where the folder is missing."""
    total = hashlib.md5()
    with reading(folder):
        if not folder.is_dir():
            raise FileNotFoundError(folder)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "md5").hexdigest()
            total.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return total.hexdigest()


def main() -> None:
    stage, name = sys.argv[1:]
    try:
        folders = read_json(resolve.file_of(stage, name))["settings"]["folders"]
        write_json(Path("data/inputs", stage.removesuffix("_inputs"), f"{name}.json"), {each: digest(Path(each)) for each in folders})
    except SesameError as error:
        print(f"{stage}@{name}: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
