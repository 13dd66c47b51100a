"""Reading and checking params files: `params.yaml`, `studies/params.yaml`, and a file for each study in
`studies/params`."""

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Container, Mapping
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent
from ruamel.yaml.reader import ReaderError

from components.core.config import NAME, TOP_SEED, Block, all_blocks
from components.core.errors import CONFLICT, SesameError
from components.params import fits, lab_fits
from components.params.messages import messages, plain
from components.params.references import problems_of_names
from components.params.whole import OF_STUDIES, Params

FILE = Path("params.yaml")
STUDIES = Path("studies/params.yaml")
"""Holds the sections below but `studies`, so that the file one begins with stays short."""
STUDY_FOLDER = Path("studies/params")
"""Holds a file for each study: NAME.yaml is what `studies.NAME` is in what is checked."""
SHARED = ("tokenizers", "encodings", "models", "derived")
"""Sections that both files may have. An entry of the studies' file is built when a study needs it, not by the main pipeline."""


def files(root: Path = Path()) -> list[Path]:
    """The params files that are there, in a fixed order."""
    known = [path for path in (FILE, STUDIES) if (root / path).exists()]
    return [*known, *sorted(path.relative_to(root) for path in (root / STUDY_FOLDER).glob("[!.]*.yaml"))]  # a broken link is reported later


def joined(parsed: Mapping[Path, Any]) -> Any:
    """The studies' files as one document: the sections of `STUDIES`, and `studies` made of a file each; None if there are none.

    Args:
        parsed: The content of each file, unchecked. Other files are ignored.

    Raises SesameError where a study is in `STUDIES`.
    """
    document = parsed.get(STUDIES)
    each = {path.stem: said for path, said in parsed.items() if path.parent == STUDY_FOLDER}
    if isinstance(document, dict):
        for key in ("studies", "ablations"):
            if key in document:
                raise SesameError(f"{STUDIES}: {key}: each study is a file of its own; move it to {STUDY_FOLDER}/NAME.yaml")
    if each and (document is None or isinstance(document, dict)):
        document = {**(document or {}), "studies": each}
    return document


def _file_of(problem: str, names: Container[str], of_studies: tuple[str, ...], file: str | Path) -> tuple[str | Path, str]:
    """The file that a problem is in, and the message for that file.

    Args:
        names: The studies that have a file.
        of_studies: How the messages of problems in `STUDIES` begin.
        file: The main one.
    """
    if (in_study := re.match(r"studies\.([^.: ]+)[.:] ?(?=.)", problem)) and in_study[1] in names:
        return STUDY_FOLDER / f"{in_study[1]}.yaml", problem[in_study.end() :]
    return STUDIES if problem.startswith(of_studies) else file, problem


def _odd(raw: Any) -> str | None:
    """The first thing that YAML allows and no section does, and that the checks after this one could not handle."""
    seen: set[int] = set()  # an anchor gives the same value several paths
    waiting: list[tuple[str, Any]] = [("", raw)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict | list):
            if id(value) in seen:
                continue
            seen.add(id(value))
        if isinstance(value, dict):
            if odd := [key for key in value if not isinstance(key, str)]:
                return f"{path or 'the file'}: the key {odd[0]!r} is no text; write it in quotes"
            waiting += [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{i}]", item) for i, item in enumerate(value)]
        elif isinstance(value, int) and abs(value) >= 2**63:
            return f"{path}: a number beyond 2**63"
    return None


def check(raw: Any, file: str | Path = FILE, studies: Any = None) -> Params:
    """Turn the parsed file (and that of the studies) into `Params`.

    Raises SesameError that lists every problem, one a line, each with its path.
    """
    for name, content in ((file, raw), (STUDIES, {} if studies is None else studies)):
        if not isinstance(content, dict):
            given = "nothing" if content is None else type(content).__name__
            raise SesameError(f"{name}: sections expected, as `seed: 1`, {given} found")
        if (found := _odd(content)) is not None:
            place, problem = _file_of(plain(found), content.get("studies") or (), (), name)
            raise SesameError(f"{place}: {problem}")
    studies = studies or {}
    study_names = _names_of_studies(raw, studies, file)
    problems, params = [], None
    raw = {**raw, **studies, **{key: {**raw[key], **studies[key]} for key in study_names if isinstance(raw.get(key), dict)}}
    # a wrong seed is reported by the model itself
    drawn = TOP_SEED.set(raw["seed"] if isinstance(raw.get("seed"), int) else 1)
    try:
        params = Params.model_validate(raw)
        params._of_studies = study_names
        fits.check(params)
        lab_fits.check(params)
    except ValidationError as error:
        problems += messages(error, raw)
    except ValueError as error:
        problems.append(str(error))
    finally:
        TOP_SEED.reset(drawn)
    if problems := [plain(problem) for problem in problems + problems_of_names(raw, study_names)]:
        places = (
            *(OF_STUDIES if studies else ()),
            *(f"{key}.{name}{end}" for end in ".:" for key, names in study_names.items() for name in names),
        )
        placed = [_file_of(problem, studies.get("studies") or (), places, file) for problem in problems]
        if len(placed) == 1:
            raise SesameError(f"{placed[0][0]}: {placed[0][1]}")
        paths = [path for path, _ in placed]
        top = file if file in paths else paths[0]
        lines = [problem if path == top else f"{path}: {problem}" for path, problem in placed]
        more = [f"and {len(problems) - MOST} more"] if len(problems) > MOST else []
        raise SesameError(f"{top}: " + "\n  ".join([f"{len(problems)} problems", *lines[:MOST], *more]))
    return params


MOST = 30
"""How many problems are reported at once."""
DEEPEST = 64
"""Levels of nesting; some tens of thousands would end the process, since the parser calls itself for each."""


def _names_of_studies(raw: dict[str, Any], studies: dict[str, Any], file: str | Path) -> dict[str, frozenset[str]]:
    """The names that the studies' file declares in each shared section. Raises SesameError if a section is in the wrong file, or a
    name in both."""
    names = {}
    for key, value in studies.items():
        if key in SHARED and not isinstance(value, dict):
            content = "nothing" if value is None else repr(value)
            raise SesameError(f"{STUDIES}: {key}: names expected, each with its block; {content} found")
        if key in SHARED:
            names[key] = frozenset(value)
            if twice := sorted(names[key] & set(raw.get(key) or ())):
                raise SesameError(f"{STUDIES}: {key}.{plain(twice[0])} is also in {file}; remove one of them")
        elif key not in OF_STUDIES or key in raw:
            there = (
                f"is also in {file}; remove one of them"
                if key in raw
                else f"belongs in {file}; this file may have {', '.join((*OF_STUDIES, *SHARED))}"
            )
            raise SesameError(f"{STUDIES}: {plain(key)} {there}")
    return names


def _check_blocks(text: str, path: str | Path) -> None:
    """Raises SesameError where a file is nested beyond all sense, or a block has a key twice: after a `<<`, the parser takes the last one
    without a word. Raises YAMLError for what is not YAML."""
    blocks: list[dict[str, ScalarEvent] | None] = []  # the keys so far of each open block; None of a list
    is_key: list[bool] = []  # whether a key comes next, of each
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, MappingEndEvent | SequenceEndEvent):
            blocks.pop(), is_key.pop()
        elif isinstance(event, ScalarEvent | AliasEvent | MappingStartEvent | SequenceStartEvent):
            line = event.start_mark.line + 1
            if blocks and blocks[-1] is not None:
                if is_key[-1] and isinstance(event, ScalarEvent) and blocks[-1].setdefault(event.value, event) is not event:
                    first = blocks[-1][event.value].start_mark.line + 1
                    raise SesameError(
                        f"{path}, line {line}: {plain(event.value)} is there twice, first in line {first}; "
                        "put what is under the second under the first, or remove one"
                    )
                is_key[-1] = not is_key[-1]
            if isinstance(event, MappingStartEvent | SequenceStartEvent):
                blocks.append({} if isinstance(event, MappingStartEvent) else None)
                is_key.append(True)
                if len(blocks) > DEEPEST:
                    raise SesameError(f"{path}, line {line}: nested deeper than {DEEPEST} levels")


def _senseless(text: str) -> int | None:
    """The line of the first value that looks like a date or a number and is none; None where it is no value."""
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, ScalarEvent) and event.implicit[0]:
            try:
                YAML(typ="safe").load(event.value)
            except YAMLError:
                continue  # YAML again, within a text
            except (ValueError, TypeError, OverflowError):
                return event.start_mark.line + 1
    return None


def load(path: str | Path = FILE) -> Params:
    """Read and check a params file, with the studies' in the folder beside it. Raises SesameError with every problem in them.

    The same contents are checked once in a process, as every part of a command asks for them.
    """
    root, digest = Path(path).parent, hashlib.sha256()
    try:
        for each in (Path(path), *(root / each for each in files(root) if each != FILE)):
            if not each.is_file():  # a pipe would be waited for
                return _load(path)
            content = each.read_bytes()
            digest.update(f"{each} {len(content)}\n".encode() + content)
    except OSError:
        return _load(path)  # which says what is wrong
    key = (Path(path).absolute(), digest.digest())
    if key not in _loaded:
        _loaded.clear()  # a server's process reads many versions
        _loaded[key] = _load(path)
    return _loaded[key]


_loaded: dict[tuple[Path, bytes], Params] = {}
"""What `load` has checked last."""


def _load(path: str | Path) -> Params:
    raw = _read(path)
    if isinstance(raw, dict) and raw and not raw.keys() - {*OF_STUDIES, *SHARED} and (Path(path).resolve().parents[1] / FILE).exists():
        raise SesameError(
            f"{path} is that of the studies; run from the folder above, which has {FILE} of the whole project"
        )
    return check(raw, path, studies_beside(path))


def studies_beside(path: str | Path = FILE) -> Any:
    """What the studies' files of a params file say as one document, unchecked; None where there are none."""
    root = Path(path).parent
    named = (root / STUDY_FOLDER).glob("[!.]*")
    if strange := [path for path in named if path.suffix != ".yaml" and re.search(r"\.ya?ml(\.txt)?$", path.name, re.I)]:
        raise SesameError(f"{STUDY_FOLDER / strange[0].name}: a study is NAME.yaml; rename it")
    if nameless := [path for path in files(root) if path.parent == STUDY_FOLDER and not re.fullmatch(NAME, path.stem)]:
        raise SesameError(
            f"{plain(str(nameless[0]))}: the name of a study is lower case, digits, underscores, and begins with a letter; rename the file"
        )
    return joined({each: _read(root / each) for each in files(root) if each != FILE})


def _read(path: str | Path) -> Any:
    """What a params file says, unchecked."""
    try:
        if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):  # a pipe would be waited for
            raise SesameError(f"{path}: can't be read: no regular file")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        if Path(path).is_symlink():
            raise SesameError(f"{path}: can't be read: a link to nowhere") from None
        raise SesameError(f"{path}: no such file; run from the project's folder") from None
    except OSError as error:
        raise SesameError(f"{path}: can't be read: {error.strerror}") from None
    return parse(content, path)


def parse(content: bytes, path: str | Path) -> Any:
    """What a params file says, unchecked; `path` is for messages. Raises SesameError where it is not YAML."""
    try:
        text = content.decode("utf-8-sig")
        _check_blocks(text, path)
        return YAML(typ="safe").load(text)
    except UnicodeDecodeError as error:
        line, byte = error.object[: error.start].count(10) + 1, error.object[error.start]
        raise SesameError(f"{path}, line {line}: not UTF-8 (byte 0x{byte:02x})") from None
    except (ValueError, TypeError, OverflowError) as error:  # a date like 2026-13-45, a whole number of 5,000 digits, a list as key
        line = _senseless(text)
        raise SesameError(f"{path}{f', line {line}' if line else ''}: not valid YAML: {error}") from None
    except ReaderError as error:
        before = text.encode()[: error.position].decode()  # the position counts bytes
        line, character = before.count("\n") + 1, text[len(before)]
        raise SesameError(f"{path}, line {line}: not valid YAML: the character {character!r} is not allowed") from None
    except YAMLError as error:
        if marker := CONFLICT.search(text):
            line = text[: marker.start()].count("\n") + 1
            raise SesameError(f"{path}, line {line}: a marker of a merge conflict; resolve it (`git status` names the files)") from None
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "':'" in problem and mark:  # of `dropout:0.3`; YAML sees it one line later
            problem += " (is there a space after each colon, here and in the line before?)"
        raise SesameError(f"{where}: not valid YAML: {' '.join(problem.split())}") from None  # it may quote a value of several lines


def _docstrings(name: str) -> dict[str, str]:
    """The docstrings of a block's settings and of those that it inherits. Not pydantic's, who would look for them in every process."""
    docstrings = {}
    for kind in reversed(all_blocks()[name].__mro__):
        if issubclass(kind, Block) and kind is not Block:
            for line, after in pairwise([*ast.parse(dedent(inspect.getsource(kind))).body[0].body, ast.Pass()]):
                if isinstance(line, ast.AnnAssign):
                    docstrings.pop(line.target.id, None)  # one that is declared again says nothing of the old one's text
                    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                        docstrings[line.target.id] = inspect.cleandoc(after.value.value)
    return docstrings


class _Schema(GenerateJsonSchema):
    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Names that don't fit their pattern are refused, as by `check`: pydantic leaves their blocks unchecked."""
        made = super().dict_schema(schema)
        return made | {"additionalProperties": False} if "patternProperties" in made else made


def _unwrapped(text: str) -> str:
    """A docstring with a line for each paragraph: editors show every line as one."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def schemas() -> dict[Path, str]:
    """The JSON schemas of the files, by their path in `components`, for editors."""
    root = Params.model_json_schema(schema_generator=_Schema)
    for name, schema in (root["$defs"] | {"Params": root}).items():
        docstrings = _docstrings(name)
        if "description" in schema:
            schema["description"] = _unwrapped(schema["description"])
        for key, field in schema.get("properties", {}).items():
            # for the key that tells blocks apart (`name: encoder`) the block's docstring says most
            text = docstrings.get(key) or (schema["description"] if "const" in field else field.get("description", ""))
            default = [f"Default: {json.dumps(field['default'])}."] if field.get("default") not in (None, {}, []) else []
            schema["properties"][key] = dict(sorted((field | {"description": " ".join([_unwrapped(text), *default])}).items()))
    written = {}
    in_studies = (*(key for key in OF_STUDIES if key != "studies"), *SHARED)
    for name, keep in (("params", lambda key: key not in OF_STUDIES), ("studies", lambda key: key in in_studies)):
        schema = {
            **root, "properties": {key: field for key, field in root["properties"].items() if keep(key)},
            "required": [key for key in root["required"] if keep(key) and not (name == "studies" and key in SHARED)],
        }  # fmt: skip
        written[Path(f"{name}.schema.json")] = json.dumps(schema, indent=1) + "\n"
    study = {**root["$defs"]["Study"], "$defs": root["$defs"]}
    written[Path("study.schema.json")] = json.dumps(study, indent=1) + "\n"
    return written
