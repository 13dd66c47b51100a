"""Multiple choice as an evaluation."""

from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError
from components.evaluations import enough
from components.evaluations.choices.config import Choices
from components.evaluations.choices.readers import READERS, Candidate, Item
from components.evaluations.contract import Answers
from components.evaluations.minimal_pairs import scoring
from components.evaluations.reading import AnyTokenizer
from components.evaluations.weights import by_group
from components.models.contract import LanguageModel
from components.text import sources

FILE = "items.json"


def prepare(folder: Path, block: Choices) -> dict:
    """Write the items; how many there are, of each group. Raises SesameError where there are none."""
    items = list(READERS[block.reader](sources.open_files(block.source)))
    if not items:
        raise SesameError(f"{block.source.shown}: no items")
    storage.write_json(folder / FILE, items)
    groups = pd.Series([own.group for own in items]).value_counts(sort=False).to_dict()
    print(f"{len(items):,} items: " + ", ".join(f"{group} {count:,}" for group, count in groups.items()))
    return {"items": len(items), "groups": groups}


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model that has no probability of a sentence, or can be asked too few items."""
    with storage.reading(folder / FILE):
        read = storage.read_json(folder / FILE)
        if not (items := [Item(group, [Candidate(*own) for own in written], answer) for group, written, answer in read]):
            raise ValueError("no items")
    protocol = next(iter(scoring.protocols(model)), "log_probability")
    candidates = [own for item in items for own in item.candidates]
    # to a chain, what stands behind the gap tells the choices apart, too; a masked model has seen it already
    chain = protocol == "log_probability"
    spans = [[(own.start, len(own.text) if chain else own.end)] for own in candidates]
    sums = np.concatenate(scoring.score_spans(model, tokens, [own.text for own in candidates], spans, name))
    of_items = np.split(sums, np.cumsum([len(item.candidates) for item in items])[:-1])
    right = np.array([
        np.nan if np.isnan(own).any() else (own[item.answer] == own.max()) / np.sum(own == own.max())
        for own, item in zip(of_items, items, strict=True)
    ])  # fmt: skip
    groups = np.array([item.group for item in items])
    weights = by_group(groups)
    chance = np.array([1 / len(item.candidates) for item in items])
    table = pd.DataFrame({
        "item": np.arange(len(items)), "group": groups, "answer": [item.answer for item in items],
        "chosen": [-1 if np.isnan(own).any() else int(own.argmax()) for own in of_items],
    })  # fmt: skip
    figures = {"references": {"chance": float(np.average(chance, weights=weights))}}
    return enough.answered(Answers(protocol, right, groups, weights, table, figures), name)
