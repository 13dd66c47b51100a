"""Names that refer to nothing. Works on the raw file, so that these are reported together with wrong types."""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from components.core.config import CORPORA, MODELS, VECTORS, Block, Refers
from components.params.whole import OF_STUDIES, Params

OUTPUTS = {"corpora": CORPORA, "models": MODELS, "vectors": VECTORS, "align": ("alignments", "histories", "groups")}
"""Folders of data/ that several sections write to, so that no name may be in two of them."""


class Reference(NamedTuple):
    """A name in the raw file, and the sections that it may be an entry of."""

    path: str
    name: str
    sections: tuple[str, ...]


def problems_of_names(raw: dict[str, Any], of_studies: Mapping[str, Collection[str]]) -> list[str]:
    """One line for each name that is not declared, or declared twice.

    Args:
        raw: Both params files as one document, unchecked.
        of_studies: Section -> the names that only studies read; the main pipeline does not build these.
    """
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # a slip is reported once, however many settings refer to it
    known: dict[tuple[str, ...], list[str]] = {}
    for section, field in Params.model_fields.items():
        for path, name, sections in _references(field.annotation, raw.get(section), section):
            by_study = section in OF_STUDIES or path.split(".")[1] in of_studies.get(section, ())
            hidden = {} if by_study else of_studies
            declared = sorted({each for key in sections for each in _entries(raw, key) if each not in hidden.get(key, ())})
            if name not in declared:
                missing.setdefault((name, sections), []).append(path)
                known.setdefault(sections, declared)
    problems = []
    for (name, sections), paths in missing.items():
        others = f"; named so {len(paths)} times, the last is {paths[-1]}" if len(paths) > 1 else ""
        there = ", ".join(known[sections]) or "none"
        problems.append(f"{paths[0]}: no {name!r} in {' or '.join(sections)} (there are: {there}){others}")
    return [*problems, *_without_recipe(raw), *_declared_twice(raw)]


def _references(annotation: Any, value: Any, path: str) -> Iterator[Reference]:
    """What a value of this type refers to. A value that does not fit its type is passed over: pydantic reports it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _marked(annotation.__metadata__, value, path)
        yield from _references(arguments[0], value, path)
    elif origin in (Union, UnionType):
        fitting = [each for each in arguments if _may_be(each, value)]
        yield from dict.fromkeys(reference for each in fitting for reference in _references(each, value, path))
    elif origin is list and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _references(arguments[0], item, f"{path}[{i}]")
    elif origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from _references(arguments[1], item, f"{path}.{key}")
    elif isinstance(annotation, type) and issubclass(annotation, Block) and isinstance(value, dict):
        for key, field in annotation.model_fields.items():
            yield from _marked(field.metadata, value.get(key), f"{path}.{key}")
            yield from _references(field.annotation, value.get(key), f"{path}.{key}")


def _marked(metadata: Collection[Any], value: Any, path: str) -> Iterator[Reference]:
    for mark in metadata:
        if isinstance(mark, Refers) and isinstance(value, str):
            folder, _, entry = value.rpartition("/")
            if sections := dict(mark.folders).get(folder) if mark.folders else mark.sections:
                yield Reference(path, entry, sections)


def _may_be(annotation: Any, value: Any) -> bool:
    """Whether a member of a union may be the one that is meant: the settings that tell its members apart are those of the value."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if not (isinstance(annotation, type) and issubclass(annotation, Block) and isinstance(value, dict)):
        return True
    tags = [key for key in ("name", "kind") if key in value and key in annotation.model_fields]
    kinds = {key: annotation.model_fields[key].annotation for key in tags}
    return all(value[key] in get_args(kind) for key, kind in kinds.items() if get_origin(kind) is Literal)


def _entries(raw: Any, section: str) -> dict[str, Any]:
    """A section of names, empty where the file has something else there."""
    value = raw.get(section) if isinstance(raw, dict) else None
    return value if isinstance(value, dict) else {}


def _list(raw: Any, section: str, key: str) -> list:
    """A list of a section, empty where the file has something else there."""
    value = _entries(raw, section).get(key)
    return value if isinstance(value, list) else []


def _without_recipe(raw: dict[str, Any]) -> Iterator[str]:
    """What is to be fine-tuned and has no recipe."""
    recipes = _entries(_entries(raw, "finetune"), "recipes")
    for section in ("finetune", "search", "seed_grid", "tickets", "learning_curve"):
        for i, model in enumerate(_list(raw, section, "models")):
            if isinstance(model, str) and model not in recipes:
                main = section == "finetune"
                place = "finetune.recipes" if main else f"{section}.models[{i}]"
                yield f"{place}: no recipe for model {model!r}{'' if main else ' in finetune.recipes'}"
    recipes = _entries(_entries(raw, "adapt"), "recipes")
    for i, method in enumerate(_list(raw, "adapt", "methods")):
        if isinstance(method, str) and method not in recipes:
            yield f"adapt.methods[{i}]: no {method!r} in adapt.recipes (there are: {', '.join(recipes) or 'none'})"


def _declared_twice(raw: dict[str, Any]) -> Iterator[str]:
    """Names that two sections give to one folder of data/ or to a row of tables, and alignments that are their own control."""
    for folder, sections in OUTPUTS.items():
        for section, other in combinations(sections, 2):
            for name in sorted(_entries(raw, section).keys() & _entries(raw, other).keys()):
                yield f"{other}.{name}: {section}.{name} has the same name, and both would be written to data/{folder}/{name}"
    for number, name in enumerate(_list(raw, "finetune", "models")):
        if name in _list(raw, "baselines", "methods"):
            yield f"finetune.models[{number}]: {name} is a baseline, too (baselines.methods), and tables have both; rename the model"
    alignments = _entries(raw, "alignments")
    for name in alignments:
        if name in (controls := _list(alignments, name, "controls")):
            place = f"alignments.{name}.controls[{controls.index(name)}]"
            yield f"{place}: {name} can't be a control of itself; name alignments of halves of one period"
