"""Messages about mistakes in a params file, one line for each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from components.core.config import Block, all_blocks
from components.params.models import ARCHITECTURES, OBJECTIVES, OPTIMIZERS

NAMES = {*ARCHITECTURES, *OBJECTIVES, *OPTIMIZERS}
"""Which pydantic puts into the path of a mistake, and the file has not."""

FEW = 8
"""Keys of a block that a message lists."""

OF_UNION = re.compile(r"(constrained|function)-[\w-]+|(dict|list|tuple|nullable|literal)\[.*\]")
"""What pydantic calls a type of several."""


OTHER_TYPE = ("literal_error", "int_from_float")
"""Mistakes, besides `..._type` and `..._parsing`, of a value that is of another type."""


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
        of_type = key == "[key]" or (isinstance(key, str) and (OF_UNION.fullmatch(key) or not isinstance(raw, dict | list | None)))
        if of_type and not (isinstance(raw, dict) and key in raw):
            continue  # a name itself, or a type of several, as `constrained-int`
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            name = key or "''"  # a key may be empty
            path += f".{name}" if path else str(name)
        inside = (isinstance(raw, dict) and key in raw) or (isinstance(raw, list) and isinstance(key, int) and key < len(raw))
        raw = raw[key] if inside else None
    return path


def messages(error: ValidationError, raw: Any) -> list[str]:
    """Each mistake in a line, with its path. For a value of several possible types pydantic reports a mistake for each
    type: keep those of the type that the value has; if it has none of them, list the types."""
    problems: dict[str, list[dict]] = {}
    for problem in error.errors():
        problems.setdefault(where(problem["loc"], raw), []).append(problem)
    lines = []
    for path, here in problems.items():
        of_other_type = [problem for problem in here if problem["type"].endswith(("_type", "_parsing")) or problem["type"] in OTHER_TYPE]
        inside = any(other.startswith((f"{path}.", f"{path}[")) for other in problems)
        if len(of_other_type) < len(here) or inside:
            here = [problem for problem in here if problem not in of_other_type]
        elif len(here) > 1:
            types = [problem["msg"].removeprefix("Input should be ").partition(", unable to parse")[0] for problem in here]
            here = [{**here[0], "msg": f"Input should be {', or '.join(dict.fromkeys(types))}"}]
        lines += [f"{path}: {message(problem)}" if path else message(problem) for problem in here]
    return lines


def message(problem: Mapping[str, Any]) -> str:
    """Pydantic's message about a mistake, in our words."""
    if problem["type"] == "extra_forbidden":
        *above, key = problem["loc"]
        return f"unknown key{_meant(str(key), _blocks_at(above))}"
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "union_tag_invalid":
        known = problem["ctx"]["expected_tags"].replace("'", "")
        return f"no {problem['ctx']['discriminator'].strip(chr(39))} {problem['ctx']['tag']!r} (there are: {known})"
    if problem["type"] == "union_tag_not_found":
        return f"{problem['ctx']['discriminator'].strip(chr(39))} is missing; it says what kind of block this is"
    if problem["type"] in ("value_error", "assertion_error"):
        message = re.sub(r"^(Value error|Assertion failed), ", "", problem["msg"])
    else:
        message = re.sub(r"valid dictionary( or (instance of \w+|object to extract fields from))?", "block of keys", problem["msg"])
    given = problem.get("input")
    if isinstance(given, str | int | float | bool):
        value = repr(given)
        message += f" (it is {value if len(value) < 80 else f'{value[:80]}...'})"
        if problem["type"] == "string_type":  # YAML reads 2026 and yes as no text
            message += "; write it in quotes"
    elif problem["type"] == "string_type" and isinstance(given, date):
        message += f" (it is the date {given}); write it in quotes"
    elif problem["type"].endswith("_type") and given is None:
        message += " (there is nothing)"
    elif problem["type"].endswith("_type") and isinstance(given, dict | list):
        message += f" (it is a {'list' if isinstance(given, list) else 'block of keys'})"
    return message


def _blocks_at(above: Sequence[Any]) -> list[type[Block]]:
    """All blocks that may stand at a place, as far as its path tells: those under its last key that names a field."""
    for name in reversed(above):
        of_name = [kind.model_fields[name].annotation for kind in all_blocks().values() if name in kind.model_fields]
        if blocks := [block for annotation in of_name for block in _blocks_in(annotation)]:
            return blocks
    return []


def _blocks_in(annotation: Any) -> Iterator[type[Block]]:
    """Every block that a type names, however deep in unions, lists and dictionaries."""
    if isinstance(annotation, type) and issubclass(annotation, Block):
        yield annotation
    for part in get_args(annotation):
        yield from _blocks_in(part)


def _meant(key: str, blocks: Sequence[type[Block]]) -> str:
    """What an unknown key of one of these blocks was perhaps to be: a key that is written alike, of the block, of a block in it, or
    of any; else which there are."""
    fields = {name: field.annotation for block in blocks for name, field in block.model_fields.items()}
    inside = {name: f"{field}.{name}" for field, kind in fields.items() for block in _blocks_in(kind) for name in block.model_fields}
    known = {name: name for kind in all_blocks().values() for name in kind.model_fields}
    for names in (dict(zip(fields, fields, strict=True)), inside, {} if fields or key in known else known):
        if close := get_close_matches(key, sorted(names), n=1, cutoff=0.75):
            return f" (did you mean {names[close[0]]}?)"
    if key in known:
        return " here; it belongs to another block"
    return f" (there are: {', '.join(sorted(fields))})" if 0 < len(fields) <= FEW else ""


def plain(problem: str) -> str:
    """One line, whatever the names in it are."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in problem)


def first(error: ValidationError) -> str:
    """The first mistake, to be put behind the path of the block: `.objective.name: ...`."""
    problem = error.errors()[0]
    return "".join(f".{key or chr(39) * 2}" for key in problem["loc"] if key not in NAMES) + f": {message(problem)}"
