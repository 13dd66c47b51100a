"""Suites of regions as an evaluation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError, one_line
from components.evaluations.contract import Answers
from components.evaluations.minimal_pairs import scoring
from components.evaluations.reading import AnyTokenizer
from components.evaluations.regions import formulas
from components.evaluations.regions.config import Regions
from components.models.contract import LanguageModel
from components.text import sources
from components.text.sources.file import SourceFile

FILE = "items.json"


def prepare(folder: Path, block: Regions) -> dict:
    """Write the items; how many there are, of each suite. Predictions that two surprisals are equal, which no model fulfils to
    the last bit, are left out and counted. Raises SesameError for a malformed suite."""
    items, equal = [], 0
    for file in sources.open_files(block.source):
        for name, suite in _suites(file):
            try:
                made, left_out = _items(name, suite)
            except (KeyError, TypeError, AttributeError) as error:
                raise SesameError(f"{file.name}, suite {name}: {one_line(error)}; SyntaxGym's form of a suite is expected") from None
            items, equal = [*items, *made], equal + left_out
    if not items:
        raise SesameError(f"{block.source.shown}: no items")
    storage.write_json(folder / FILE, items)
    suites = pd.Series([own["suite"] for own in items]).value_counts(sort=False).to_dict()
    print(f"{len(items):,} items of {len(suites)} suites; {equal} predictions of equal surprisal left out")
    return {"items": len(items), "suites": suites, "equal": equal}


def _suites(file: SourceFile) -> Iterator[tuple[str, Any]]:
    """A file is one suite, or several by name."""
    with file.open() as stream:
        try:
            content = json.loads(stream.read())
        except ValueError as error:
            raise SesameError(f"{file.name}: {one_line(error)}; JSON is expected") from None
    if not isinstance(content, dict):
        raise SesameError(f"{file.name}: a list; an object is expected, a suite or several by name")
    yield from [(content["meta"]["name"], content)] if "items" in content else content.items()


def _items(name: str, suite: dict[str, Any]) -> tuple[list[dict], int]:
    """Each item with each prediction; how many predictions are left out."""
    predictions = [own["formula"] for own in suite["predictions"]]
    kept, items = [own for own in predictions if "=" not in own], []
    for number, conditions in map(_regions, suite["items"]):
        places = {(condition, i): 1.0 for condition, regions in conditions.items() for i in range(1, len(regions) + 1)}
        for formula in kept:
            formulas.holds(formula, places)  # its check
            items.append({"suite": name, "item": number, "formula": formula, "conditions": conditions})
    return items, len(predictions) - len(kept)


def _regions(item: dict[str, Any]) -> tuple[int, dict[str, list[str]]]:
    """Its number, and of each condition the texts of its regions."""
    if "c" in item:  # as this project keeps them: without the numbers
        return item["n"], item["c"]
    return item["item_number"], {
        own["condition_name"]: [region["content"] for region in sorted(own["regions"], key=lambda region: region["region_number"])]
        for own in item["conditions"]
    }


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
    """Raises SesameError for a model that has no probability of a sentence."""
    items = storage.read_json(folder / FILE)
    named: dict[str, dict[int, tuple[int, int]]] = {}  # sentence -> the regions that a formula names, and where they stand
    for item in items:
        for condition, number in formulas.regions(item["formula"]):
            text, spans = joined(item["conditions"][condition])
            named.setdefault(text, {})[number] = spans[number - 1]
    sums = scoring.score_spans(model, tokens, list(named), [list(own.values()) for own in named.values()], name)
    surprisal = {text: dict(zip(own, -values, strict=True)) for (text, own), values in zip(named.items(), sums, strict=True)}
    right = np.full(len(items), np.nan)
    for i, item in enumerate(items):
        own = {
            (condition, number): surprisal[joined(item["conditions"][condition])[0]][number]
            for condition, number in formulas.regions(item["formula"])
        }
        if not np.isnan(list(own.values())).any():
            right[i] = formulas.holds(item["formula"], own)
    suites = np.array([item["suite"] for item in items])
    weights = 1 / pd.Series(suites).map(pd.Series(suites).value_counts()).to_numpy(float)  # each suite counts the same
    table = pd.DataFrame({"suite": suites, "item": [item["item"] for item in items]})
    protocol = next(iter(scoring.protocols(model)), "log_probability")
    return Answers(protocol, right, suites, weights / weights.mean(), table, {})
