"""Multiple choice as an evaluation."""

from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.core.errors import SesameError
from components.evaluations.choices.config import Choices
from components.evaluations.choices.readers import READERS, Candidate, Item
from components.evaluations.contract import Answers, check_answers, group_weights
from components.evaluations.inference import AnyTokenizer
from components.evaluations.minimal_pairs import scoring
from components.evaluations.minimal_pairs.accuracy import TIE
from components.models.contract import LanguageModel
from components.stages.outputs import read_json, reading
from components.text import sources

FILE = "items.json"


def prepare(folder: Path, block: Choices) -> dict:
    """Write the items; returns their number, in total and by group. Raises SesameError where there are none."""
    items = list(READERS[block.reader](sources.open_files(block.source)))
    if not items:
        raise SesameError(f"{block.source.shown}: no items")
    storage.write_json(folder / FILE, items)
    groups = pd.Series([item.group for item in items]).value_counts(sort=False).to_dict()
    print(f"{len(items):,} items: " + ", ".join(f"{group} {count:,}" for group, count in groups.items()))
    return {"items": len(items), "groups": groups}


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without probabilities of sentences, and where it can read too few items."""
    with reading(folder / FILE):
        stored = read_json(folder / FILE)
        if not (items := [Item(group, [Candidate(*candidate) for candidate in rows], answer) for group, rows, answer in stored]):
            raise ValueError("no items")
    protocol = scoring.usual_protocol(model)
    candidates = [candidate for item in items for candidate in item.candidates]
    # left to right, the text after the gap differs in probability, too; a masked model has read it already
    to_end = protocol == "log_probability"
    starts = [start for item in items for start in scored_from(item, tokens)]
    ends = [len(candidate.text) if to_end else candidate.end for candidate in candidates]
    spans = [[span] for span in zip(starts, ends, strict=True)]
    sums = np.concatenate(scoring.score_spans(model, tokens, [candidate.text for candidate in candidates], spans, name))
    by_item = np.split(sums, np.cumsum([len(item.candidates) for item in items])[:-1])
    right = np.array([
        np.nan if np.isnan(scores).any() else (best := scores >= scores.max() - TIE)[item.answer] / best.sum()
        for scores, item in zip(by_item, items, strict=True)
    ])  # fmt: skip
    groups = np.array([item.group for item in items])
    weights = group_weights(groups, right)
    chance = np.array([1 / len(item.candidates) for item in items])
    table = pd.DataFrame({
        "item": np.arange(len(items)), "group": groups, "answer": [item.answer for item in items],
        "chosen": [-1 if np.isnan(scores).any() else int(scores.argmax()) for scores in by_item],
    })  # fmt: skip
    figures = {"references": {"chance": float(np.average(chance, weights=weights))}}
    return check_answers(Answers(protocol, right, groups, weights, table, figures, strata=groups), name)


def scored_from(item: Item, tokens: AnyTokenizer) -> list[int]:
    """For each candidate the first character that is scored: that of its choice, or of the token that the choice shares
    with the text before it (`un[MASK]` with `happy` is one token where `unhappy` is in the vocabulary). Candidates after
    the same text are scored from the same character on: otherwise one would pay for a token that is free for others."""
    encoded = tokens.encode_offsets([candidate.text for candidate in item.candidates])
    starts = []
    for candidate, (_, offsets) in zip(item.candidates, encoded, strict=True):
        text, start = candidate.text, candidate.start
        shared = [first for first, last in offsets if first < start < last and text[first:start].strip()]
        starts.append(min(shared, default=start))
    before = {candidate.text[: candidate.start] for candidate in item.candidates}
    return [min(starts)] * len(starts) if len(before) == 1 else starts
