"""Suites of regions as an evaluation."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError, one_line
from components.evaluations import enough
from components.evaluations.contract import Answers
from components.evaluations.minimal_pairs import scoring
from components.evaluations.reading import AnyTokenizer
from components.evaluations.regions import formulas
from components.evaluations.regions.config import Regions
from components.evaluations.weights import by_group
from components.models.contract import LanguageModel
from components.text import sources
from components.text.sources import tables
from components.text.sources.file import SourceFile

FILE = "items.json"


def prepare(folder: Path, block: Regions) -> dict:
    """Write the items; how many there are, of each suite. Predictions that two surprisals are equal, which no model fulfils to
    the last bit, are left out and counted. Raises SesameError for a malformed suite."""
    items, equal = [], 0
    for file in sources.open_files(block.source):
        for name, suite in _suites(file):
            with _placed(f"{file.name}, suite {name}"):
                if not name.strip():
                    raise ValueError("its name is empty")
                made, left_out = _items(name, suite)
            items, equal = [*items, *made], equal + left_out
    if not items:
        raise SesameError(f"{block.source.shown}: no items")
    storage.write_json(folder / FILE, items)
    suites = pd.Series([own["suite"] for own in items]).value_counts(sort=False).to_dict()
    print(f"{len(items):,} items of {len(suites)} suites; {equal} predictions of equal surprisal left out")
    return {"items": len(items), "suites": suites, "equal": equal}


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Makes one line of what is no suite, with its place."""
    try:
        yield
    except SesameError as error:
        raise SesameError(f"{place}: {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        raise SesameError(f"{place}: {said}; SyntaxGym's form of a suite is expected") from None


def _suites(file: SourceFile) -> Iterator[tuple[str, Any]]:
    """A file is one suite, or several by name."""
    with file.open() as stream:
        content = tables.parsed(file.name, stream.read())
    if not isinstance(content, dict):
        raise SesameError(f"{file.name}: {type(content).__name__} found; an object is expected, a suite or several by name")
    with _placed(file.name):
        suites = {_text("meta.name", content["meta"]["name"]): content} if "items" in content else content
    yield from suites.items()


EQUAL = re.compile(r"(?<![<>])=")


def _items(name: str, suite: dict[str, Any]) -> tuple[list[dict], int]:
    """Each item with each prediction; how many predictions are left out."""
    predictions = [_text("formula", own["formula"]) for own in suite["predictions"]]
    kept, items = [own for own in predictions if not EQUAL.search(own)], []
    for number, conditions in map(_regions, suite["items"]):
        places = {(condition, i): 1.0 for condition, regions in conditions.items() for i in range(1, len(regions) + 1)}
        for formula in kept:
            formulas.holds(formula, places)  # its check
            items.append({"suite": name, "item": number, "formula": formula, "conditions": conditions})
    return items, len(predictions) - len(kept)


def _regions(item: dict[str, Any]) -> tuple[int | str, dict[str, list[str]]]:
    """Its number, and of each condition the texts of its regions."""
    if "c" in item:  # as this project keeps them: without the numbers
        number, conditions = item["n"], item["c"]
    else:
        number = item["item_number"]
        conditions = {own["condition_name"]: _in_order(own["regions"]) for own in item["conditions"]}
        if len(conditions) < len(item["conditions"]):
            raise ValueError(f"item {number}: two conditions have one name")
    if not isinstance(number, int | str):
        raise TypeError(f"the number of an item is {number!r}")
    for condition, regions in conditions.items():
        if not isinstance(regions, list):
            raise TypeError(f"item {number}, {condition}: {regions!r} is no list of regions")
        if not "".join(_text(f"item {number}, {condition}: a region", region) for region in regions).strip():
            raise ValueError(f"item {number}, {condition}: no words")
    return number, conditions


def _in_order(regions: list[dict[str, Any]]) -> list[str]:
    """The texts of regions, which formulas name by their place. Raises ValueError where the numbers are not 1, 2, 3 ..."""
    numbers = [region["region_number"] for region in regions]
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        raise ValueError(f"regions are numbered {numbers}, not 1, 2, 3 ...")
    return [region["content"] for region in sorted(regions, key=lambda region: region["region_number"])]


def _text(what: str, given: Any) -> str:
    """Raises TypeError for what is no text, and ValueError for half of a surrogate pair, which JSON can write."""
    if not isinstance(given, str):
        raise TypeError(f"{what} is {given!r}, where text is wanted")
    given.encode()
    return given


def joined(regions: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """A sentence, and where each region stands in it; an empty one stands nowhere."""
    text, spans = "", []
    for region in regions:
        own = region.strip()
        start = len(text) + (1 if text and own else 0)
        text = f"{text} {own}" if text and own else text + own
        spans.append((start, start + len(own)))
    return text, spans


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model that has no probability of a sentence, or can be asked too few items."""
    named: dict[str, dict[int, tuple[int, int]]] = {}  # sentence -> the regions that a formula names, and where they stand
    asked: list[dict[tuple[str, int], str]] = []  # of each item its regions, and the sentence that each is of
    with storage.reading(folder / FILE):
        if not (items := storage.read_json(folder / FILE)):
            raise ValueError("no items")
        for item in items:
            asked.append({})
            for condition, number in formulas.regions(item["formula"]):
                text, spans = joined(item["conditions"][condition])
                named.setdefault(text, {})[number] = spans[number - 1]
                asked[-1][condition, number] = text
    sums = scoring.score_spans(model, tokens, list(named), [list(own.values()) for own in named.values()], name)
    surprisal = {text: dict(zip(own, -values, strict=True)) for (text, own), values in zip(named.items(), sums, strict=True)}
    right = np.full(len(items), np.nan)
    for i, (item, regions) in enumerate(zip(items, asked, strict=True)):
        own = {(condition, number): surprisal[text][number] for (condition, number), text in regions.items()}
        if not np.isnan(list(own.values())).any():
            right[i] = formulas.holds(item["formula"], own)
    suites = np.array([item["suite"] for item in items])
    table = pd.DataFrame({"suite": suites, "item": [item["item"] for item in items]})
    protocol = next(iter(scoring.protocols(model)), "log_probability")
    return enough.answered(Answers(protocol, right, suites, by_group(suites), table, {}), name)
