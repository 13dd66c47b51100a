"""SyntaxGym's suites as an evaluation."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError, one_line
from components.evaluations.contract import Answers, check_answers, group_weights
from components.evaluations.inference import AnyTokenizer
from components.evaluations.minimal_pairs import scoring
from components.evaluations.regions import formulas
from components.evaluations.regions.config import Regions
from components.models.contract import LanguageModel
from components.stages.outputs import read_json, reading
from components.text import sources
from components.text.sources import tables
from components.text.sources.file import SourceFile

FILE = "items.json"
Cut = tuple[str, tuple[tuple[int, int], ...]]
"""A sentence, and the characters of its regions."""


def prepare(folder: Path, block: Regions) -> dict:
    """Write the items; returns their number, in total and by suite. Predictions of equal surprisals, which no model fulfils
    exactly, are left out and counted. Raises SesameError for a malformed suite."""
    items, asked, equal = [], 0, 0
    for file in sources.open_files(block.source):
        for name, suite in _suites(file):
            with _located(f"{file.name}, suite {name}"):
                if not name.strip():
                    raise ValueError("its name is empty")
                new, left_out = _items(name, suite)
            items += new
            asked += len(suite["items"])
            equal += left_out
    if not items:
        reason = f": all {equal} predictions are of equal surprisal" if asked else ""
        raise SesameError(f"{block.source.shown}: no items{reason}")
    storage.write_json(folder / FILE, items)
    suites = pd.Series([item["suite"] for item in items]).value_counts(sort=False).to_dict()
    print(f"{len(items):,} items of {len(suites)} suites; {equal} predictions of equal surprisal left out")
    return {"items": len(items), "suites": suites, "equal": equal}


@contextmanager
def _located(place: str) -> Iterator[None]:
    """Turn errors of a malformed suite into one line with its place."""
    try:
        yield
    except SesameError as error:
        raise SesameError(f"{place}: {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        raise SesameError(f"{place}: {fault}; a suite in SyntaxGym's format is expected") from None


def _suites(file: SourceFile) -> Iterator[tuple[str, Any]]:
    """A file is one suite, or several by name."""
    with file.open() as stream:
        content = tables.parsed(file.name, stream.read())
    if not isinstance(content, dict):
        raise SesameError(f"{file.name}: {type(content).__name__} found; an object is expected, a suite or several by name")
    with _located(file.name):
        suites = {_text("meta.name", content["meta"]["name"]): content} if "items" in content else content
    yield from suites.items()


EQUAL = re.compile(r"(?<![<>])=")


def _items(name: str, suite: dict[str, Any]) -> tuple[list[dict], int]:
    """Each item with the formulas that must all hold, as SyntaxGym counts, and the number of formulas that are left out."""
    formulas_given = [_text("formula", prediction["formula"]) for prediction in suite["predictions"]]
    if not formulas_given:
        raise ValueError("its predictions are an empty list")
    kept, items, numbers = [formula for formula in formulas_given if not EQUAL.search(formula)], [], set()
    for number, conditions in map(_regions, suite["items"]):
        if number in numbers:
            raise ValueError(f"item {number} is there twice")
        numbers.add(number)
        surprisal = {(condition, i): 1.0 for condition, regions in conditions.items() for i in range(1, len(regions) + 1)}
        for formula in kept:
            formulas.holds(formula, surprisal)  # checks it
        if kept:
            items.append({"suite": name, "item": number, "formulas": kept, "conditions": conditions})
    return items, len(formulas_given) - len(kept)


def _regions(item: dict[str, Any]) -> tuple[int | str, dict[str, list[str]]]:
    """An item's number, and condition -> the texts of its regions."""
    if "c" in item:  # this project's copies have no numbers of regions
        number, conditions = item["n"], item["c"]
        if not isinstance(conditions, dict):
            raise TypeError(f"item {number}: {conditions!r} is not an object of conditions")
    else:
        number = item["item_number"]
        conditions = {condition["condition_name"]: _in_order(condition["regions"]) for condition in item["conditions"]}
        if len(conditions) < len(item["conditions"]):
            raise ValueError(f"item {number}: two conditions have one name")
    if not isinstance(number, int | str):
        raise TypeError(f"the number of an item is {number!r}")
    for condition, regions in conditions.items():
        if not isinstance(regions, list):
            raise TypeError(f"item {number}, {condition}: {regions!r} is not a list of regions")
        if not "".join(_text(f"item {number}, {condition}: a region", region) for region in regions).strip():
            raise ValueError(f"item {number}, {condition}: no words")
    return number, conditions


def _in_order(regions: list[dict[str, Any]]) -> list[str]:
    """The texts of regions in the order of their numbers. Raises ValueError where these are not 1, 2, 3 ..."""
    numbers = [region["region_number"] for region in regions]
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        raise ValueError(f"regions are numbered {numbers}, not 1, 2, 3 ...")
    return [region["content"] for region in sorted(regions, key=lambda region: region["region_number"])]


def _text(field: str, value: Any) -> str:
    """Raises TypeError where the value is not a text, and ValueError for half of a surrogate pair, which JSON allows."""
    if not isinstance(value, str):
        raise TypeError(f"{field} is {value!r}, where text is wanted")
    value.encode()
    return value


def joined(regions: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """A sentence, and the characters of each region in it."""
    text, spans = "", []
    for region in map(str.strip, regions):
        start = len(text) + (1 if text and region else 0)
        text = f"{text} {region}" if text and region else text + region
        spans.append((start, start + len(region)))
    return text, spans


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without probabilities of sentences, and where it can read too few items."""
    spans_of: dict[Cut, dict[int, tuple[int, int]]] = {}  # number of a region in a formula -> its characters
    sentence_of: list[dict[tuple[str, int], Cut]] = []  # for each item: region -> its sentence
    with reading(folder / FILE):
        if not (items := read_json(folder / FILE)):
            raise ValueError("no items")
        for item in items:
            sentence_of.append({})
            for condition, number in (region for formula in item["formulas"] for region in formulas.regions(formula)):
                text, spans = joined(item["conditions"][condition])
                cut = text, tuple(spans)  # another condition may have the sentence with other regions
                spans_of.setdefault(cut, {})[number] = spans[number - 1]
                sentence_of[-1][condition, number] = cut
    regions_of = [list(spans.values()) for spans in spans_of.values()]
    sums = scoring.score_spans(model, tokens, [text for text, _ in spans_of], regions_of, name)
    surprisal = {
        cut: dict(zip(spans, -values, strict=True)) for (cut, spans), values in zip(spans_of.items(), sums, strict=True)
    }
    right = np.full(len(items), np.nan)
    for i, (item, regions) in enumerate(zip(items, sentence_of, strict=True)):
        values = {(condition, number): surprisal[cut][number] for (condition, number), cut in regions.items()}
        if not np.isnan(list(values.values())).any():
            right[i] = all(formulas.holds(formula, values) for formula in item["formulas"])
    suites = np.array([item["suite"] for item in items])
    table = pd.DataFrame({"suite": suites, "item": [item["item"] for item in items]})
    weights = group_weights(suites, right)
    return check_answers(Answers(scoring.usual_protocol(model), right, suites, weights, table, {}, strata=suites), name)
