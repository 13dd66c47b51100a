"""Overlays of `params.yaml`: ready sets of tasks, evaluations, models or spaces, from the hub or from local files.

An overlay has the sections of `params.yaml`. Its entries (`tasks.cola`, `finetune.seeds`) are put in, or replace those of
the same name as a whole: half of an old task under half of a new one would be neither. All else stays as it is, comments
too. The first line of an overlay's file says what it is; `{data}` in a path stands for the folder of the local files.
"""

import io
import json
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from components import params
from components.core import storage
from components.core.errors import SesameError

FOLDER = Path(__file__).parent
PLACEHOLDER = "{data}"


def listed() -> dict[str, str]:
    """Name -> what it is."""
    return {path.stem: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in sorted(FOLDER.glob("*.yaml"))}


def merge(name: str, data: str | None = None) -> list[str]:
    """Merge a profile into params.yaml; what was changed, one line each. Nothing is written unless the result is right.

    Raises SesameError for a wrong name, a folder that is not there, and for what `params.check` finds in the result.
    """
    text = overlay(name, data)
    params.load()  # its own mistakes are not the profile's
    yaml = editor()
    document, changes = parsed(yaml, params.FILE.read_text(encoding="utf-8")), []
    for section, entries in yaml.load(text).items():
        changes += _put(document.setdefault(section, CommentedMap()), entries, section)
    merged = io.StringIO()
    yaml.dump(document, merged)
    try:
        params.check(YAML(typ="safe").load(merged.getvalue()), studies=params.studies_beside())
    except SesameError as error:
        raise SesameError(f"profile {name} does not fit this params.yaml, nothing was written: {error}") from None
    if not changes:
        return [f"params.yaml already contains all of {name}"]
    with storage.output(params.FILE) as temporary:
        temporary.write_text(merged.getvalue(), encoding="utf-8")
    return changes


def _put(known: CommentedMap, entries: CommentedMap, place: str) -> list[str]:
    """Put entries into a section, each as a whole; what was changed, one line each."""
    changes = []
    for key, value in entries.items():
        if key == "recipes":  # of models that have nothing to do with each other
            changes += _put(known.setdefault(key, CommentedMap()), value, f"{place}.{key}")
        elif key not in known or known[key] != value:
            was = "added" if key not in known else "replaced" if isinstance(value, dict) else f"was {json.dumps(known[key])}"
            changes.append(f"{place}.{key}: {was}" if isinstance(value, dict) else f"{place}.{key}: {json.dumps(value)} ({was})")
            known[key] = value
    return changes


def overlay(name: str, data: str | None) -> str:
    """The text of a profile, the folder of its files put in."""
    if name not in listed():
        raise SesameError(f"no profile {name!r} (there are: {', '.join(listed())})")
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    if PLACEHOLDER not in text:
        if data is not None:
            raise SesameError(f"--data {data}: profile {name} reads no local files; leave --data out")
        return text
    if data is None:
        raise SesameError(f"profile {name} reads local files: give their folder with --data")
    if not Path(data).is_dir():
        raise SesameError(f"--data {data}: no such folder; give the folder of the local files")
    if set(data) & set('"\\\n'):
        raise SesameError(
            f"--data {data}: the path contains a quote or a backslash; give another path, e.g. a link to the folder"
        )
    return text.replace(PLACEHOLDER, data.rstrip("/"))


def editor() -> YAML:
    """Reads and writes params.yaml byte for byte, as `dvc exp run -S` does."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 1 << 20
    return yaml


def parsed(yaml: YAML, text: str) -> CommentedMap:
    """The document, whose anchors stay also where nothing refers to them yet."""
    document = yaml.load(text)
    blocks = [document]
    while blocks:
        block = blocks.pop()
        if block.anchor.value:
            block.anchor.always_dump = True
        blocks += [
            value
            for value in (block.values() if isinstance(block, CommentedMap) else block)
            if isinstance(value, CommentedMap | CommentedSeq)
        ]
    return document
