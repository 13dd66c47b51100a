"""Messages about mistakes in a params file, one line for each."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from components.params.models import ARCHITECTURES, OBJECTIVES, OPTIMIZERS

NAMES = {*ARCHITECTURES, *OBJECTIVES, *OPTIMIZERS}
"""Which pydantic puts into the path of a mistake, and the file has not."""


def where(location: tuple, raw: Any) -> str:
    """`('models', 'bert', 'architecture', 'encoder', 'num_heads')` -> `models.bert.architecture.num_heads`."""
    path, entered = "", True
    for key in location:
        tags = [raw.get(tag) for tag in ("kind", "format", "name")] if isinstance(raw, dict) else []
        of_default = key in NAMES and isinstance(raw, dict) and key not in raw
        if entered and isinstance(key, str) and (key in tags or of_default):
            entered = False
            continue  # pydantic names the member of a union; the file does not
        entered = True
        if key == "[key]" or (isinstance(key, str) and not isinstance(raw, dict | list | None)):
            continue  # a name itself, or a type of several, as `constrained-int`
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            name = key or "''"  # a key may be empty
            path += f".{name}" if path else str(name)
        inside = (isinstance(raw, dict) and key in raw) or (isinstance(raw, list) and isinstance(key, int) and key < len(raw))
        raw = raw[key] if inside else None
    return path


def message(problem: Mapping[str, Any]) -> str:
    """Pydantic's message about a mistake, in our words."""
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "union_tag_invalid":
        known = problem["ctx"]["expected_tags"].replace("'", "")
        return f"no {problem['ctx']['discriminator'].strip(chr(39))} {problem['ctx']['tag']!r} (there are: {known})"
    message = re.sub(r"^(Value error|Assertion failed), ", "", problem["msg"])
    if "input" in problem and isinstance(problem["input"], str | int | float | bool):
        value = repr(problem["input"])
        message += f" (it is {value if len(value) < 80 else f'{value[:80]}...'})"
    return message


def plain(problem: str) -> str:
    """One line, whatever the names in it are."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in problem)


def first(error: ValidationError) -> str:
    """The first mistake, to be put behind the path of the block: `.objective.name: ...`."""
    problem = error.errors()[0]
    return "".join(f".{key}" for key in problem["loc"] if key not in NAMES) + f": {message(problem)}"
