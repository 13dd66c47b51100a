"""`-S key=value` of an experiment: params.yaml with other values, checked, and a name for each variant."""

import copy
import hashlib
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import Anchor
from ruamel.yaml.error import YAMLError

from components import params
from components.core.errors import SesameError
from pipelines import profiles

LONGEST = 80
"""Characters of a name made from overrides."""
NAME = re.compile(r"[A-Za-z0-9](?!.*\.\.)[\w.=,+-]*(?<!\.)(?<!\.lock)", re.ASCII)
"""Right as a folder, as a git ref and as DVC's name of an experiment."""


@dataclass(frozen=True)
class Variant:
    """One experiment to run."""

    name: str
    overrides: dict[str, str]
    """Path in params.yaml -> value, as text."""
    text: str
    """The whole params.yaml."""


def variants(settings: Sequence[str], text: str, sweep: bool = False, name: str | None = None) -> list[Variant]:
    """The variants of a params.yaml that `key=value` settings make; with `sweep` all combinations of `key=a,b,c`.

    Values are YAML. Raises SesameError for the first setting or name that is wrong.
    """
    keys, lists = [], []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise SesameError(f"-S {setting}: write key=value{',value' * sweep}, e.g. -S seed=2{',3' * sweep}")
        if key in keys:
            raise SesameError(f"-S {setting}: {key} is set twice{'' if sweep else '; `sesame exp sweep` takes several values'}")
        keys.append(key)
        lists.append(_values(setting, f"[{value}]" if sweep else value, sweep))
    combinations = [_variant(dict(zip(keys, values, strict=True)), text, name) for values in itertools.product(*lists)]
    twice = sorted(name for name, count in Counter(variant.name for variant in combinations).items() if count > 1)
    if twice:
        raise SesameError(f"the same variant twice: {', '.join(twice)}; give each value once")
    return combinations


def _values(setting: str, text: str, sweep: bool) -> list:
    try:
        value = YAML(typ="safe").load(text)
    except YAMLError:
        raise SesameError(f"-S {setting}: the value is not valid YAML; quote it, as in -S 'KEY=[1, 2]'") from None
    if sweep and not value:
        raise SesameError(f"-S {setting}: no values; write KEY=A,B")
    return value if sweep else [value]


def _variant(overrides: dict[str, Any], text: str, name: str | None) -> Variant:
    shown = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in overrides.items()}
    if name is not None and not NAME.fullmatch(name):
        rule = "use letters, digits and . _ = , + -, and begin with a letter or a digit"
        raise SesameError(f"{name!r} is not a valid name of an experiment: {rule}")
    return Variant(name or _name(shown), shown, _edited(text, overrides, shown))


def _name(shown: dict[str, str]) -> str:
    """`models.bert.optimizer.learning_rate=0.01` -> `bert.optimizer.learning_rate=0.01`; with a hash where that is long or no name."""
    plain = ",".join(f"{key.partition('.')[2] if key.count('.') > 1 else key}={value}" for key, value in shown.items())
    if NAME.fullmatch(plain) and len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha1(json.dumps(shown).encode()).hexdigest()[:6]
    return f"{re.sub(r'[^A-Za-z0-9=,+-]+', '_', plain)[: LONGEST - 7].strip('_-')}-{digest}"


def _edited(text: str, overrides: dict[str, Any], shown: dict[str, str]) -> str:
    """The text with the values put in, comments kept. Raises SesameError unless it is a right params.yaml."""
    editor, safe = profiles.editor(), YAML(typ="safe")
    document, expected = profiles.parsed(editor, text), safe.load(text)
    for key, value in overrides.items():
        for root in (expected, document):
            _put(root, key, copy.deepcopy(value))
    said = " ".join(f"-S {key}={value}" for key, value in shown.items())
    try:
        params.check(expected, studies=params.studies_beside())
    except SesameError as error:
        lines = str(error).removeprefix("params.yaml: ").splitlines()
        raise SesameError(f"{said}: " + "; ".join(line.strip() for line in lines[len(lines) > 1 :])) from None
    written = io.StringIO()
    editor.dump(document, written)
    if safe.load(written.getvalue()) != expected:
        raise SesameError(
            f"{said}: params.yaml shares this value by an anchor, so that it can't be changed alone; "
            "write it out there first"
        )
    return written.getvalue()


def _put(root: Any, key: str, value: Any) -> None:
    """Set the value at a path. Blocks on the way are copied, so that what shares them by an anchor stays as it is."""
    place, path = root, key.split(".")
    for depth, part in enumerate(path):
        step = int(part) if isinstance(place, list) and part.isdecimal() else part
        last = depth == len(path) - 1
        there = range(len(place)) if isinstance(place, list) else list(place) if isinstance(place, dict) else []
        if step not in there and not (last and isinstance(place, dict)):
            if depth == 0 and part in (params.studies_beside() or ()):
                raise SesameError(f"-S {key}: {part} is in the files of studies/, and -S sets keys of params.yaml; edit it there")
            above = ".".join(path[:depth]) or "params.yaml"
            raise SesameError(f"-S {key}: no {part!r} in {above} (there are: {', '.join(map(str, there)) or 'none'})")
        if last:
            place[step] = value
            return
        place[step] = copy.copy(place[step])
        place = place[step]
        if hasattr(place, Anchor.attrib):
            delattr(place, Anchor.attrib)
