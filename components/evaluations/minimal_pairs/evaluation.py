"""Minimal pairs as an evaluation: pairs of held-out sentences, and how often a model finds the right one likelier."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.evaluations.contract import Answers
from components.evaluations.minimal_pairs import pairs, readers, rules, scoring
from components.evaluations.minimal_pairs.accuracy import TIE, accuracies, is_right
from components.evaluations.minimal_pairs.config import MinimalPairs, PairColumns
from components.evaluations.minimal_pairs.ngrams import NGrams
from components.evaluations.reading import AnyTokenizer
from components.models.contract import LanguageModel
from components.text import corpora, sources

ORDERS = {1: "unigram", 2: "bigram", 3: "trigram"}


def prepare(folder: Path, block: MinimalPairs) -> dict:
    """Write `pairs.jsonl`, and `ngrams.csv` with each pair's margin by n-grams of the training text, in nats."""
    corpus = Path("data/corpora", block.corpus)
    ngrams = NGrams(corpora.read(corpus, "train"), tuple(ORDERS))
    chosen, figures = _published(block) if block.source else _made(corpus, ngrams, block)
    pairs.write(folder / "pairs.jsonl", chosen)
    storage.write_json(folder / "card.json", {"made": block.source is None, "licence": block.licence})
    good, bad = (ngrams.score([getattr(pair, side) for pair in chosen]) for side in ("good", "bad"))
    known = sum(ngrams.knows(pair.good) and ngrams.knows(pair.bad) for pair in chosen)
    print(f"{len(chosen):,} pairs; {known:,} have no word that the training text has less than twice")
    margins = pd.DataFrame({word: good[order] - bad[order] for order, word in ORDERS.items()})
    margins.to_csv(folder / "ngrams.csv", index=False, float_format="%.6g", lineterminator="\n")
    return {"pairs": len(chosen), "known_words": known, **figures}


def _made(corpus: Path, ngrams: NGrams, block: MinimalPairs) -> tuple[list[pairs.Pair], dict]:
    """Pairs of the held-out text, and how many each rule gave."""
    made = rules.candidates(_held_out(corpus), block.seed)
    chosen = rules.core(made, ngrams) if block.core else rules.balanced(made, block.seed)
    of = "with as many that n-grams get wrong, of which there are" if block.core else "of"
    for paradigm, kept in chosen.kept.items():
        print(f"{paradigm}: {kept:,} pairs {of} {sum(chosen.found[paradigm]):,}")
    return chosen.pairs, {"candidates": len(made), "kept": chosen.kept}


def _published(block: MinimalPairs) -> tuple[list[pairs.Pair], dict]:
    """Pairs of files."""
    files = sources.open_files(block.source)
    if block.reader == "table":
        read = readers.table(files, readers.Columns(**(block.columns or PairColumns()).model_dump()))
    else:
        read = readers.READERS[block.reader](files)
    return pairs.checked(read, block.source.shown), {}


def _held_out(corpus: Path) -> Iterator[corpora.Document]:
    for split in ("valid", "test"):
        yield from corpora.read(corpus, split)


def ask(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model that has no probability of a sentence."""
    asked = pairs.read(folder / "pairs.jsonl")
    protocol = next(iter(scoring.protocols(model)), None)
    good, bad = scoring.score_pairs(model, tokens, asked, protocol, name)
    both = good.scored & bad.scored
    sums = [np.where(both, side.log_probability, np.nan) for side in (good, bad)]
    # in published sets each paradigm counts the same; made ones have from two to thousands of pairs, each of which counts
    by_pair = storage.read_json(folder / "card.json")["made"]
    overall = accuracies(asked, *sums, (good.pieces, bad.pieces), by_pair=by_pair).overall
    margin, paradigms = sums[0] - sums[1], np.array([pair.paradigm for pair in asked])
    sizes = pd.Series(paradigms).map(pd.Series(paradigms[both]).value_counts()).fillna(1).to_numpy(float)
    weights = np.ones(len(asked)) if by_pair else 1 / sizes
    ngrams = pd.read_csv(folder / "ngrams.csv")
    references = {word: float(np.average(is_right(ngrams[word].to_numpy()), weights=weights * both)) for word in ORDERS.values()}
    hard = both & (ngrams["bigram"].to_numpy() <= TIE)
    figures = {
        "error": overall.accuracy_error, "margin": overall.margin, "margin_error": overall.margin_error,
        "unequal_pieces": overall.unequal, "unknown_pieces": int(good.unknown.sum() + bad.unknown.sum()), "references": references,
        "bigram_wrong": {"accuracy": float(is_right(margin[hard]).mean()) if hard.any() else None, "items": int(hard.sum())},
    }  # fmt: skip
    items = pd.DataFrame([{"id": pair.id, "paradigm": pair.paradigm, "phenomenon": pair.phenomenon} for pair in asked])
    return Answers(
        protocol or "log_probability", np.where(both, is_right(margin), np.nan), items["phenomenon"].to_numpy(), weights / weights.mean(),
        items.assign(good=sums[0], bad=sums[1]), figures,
    )  # fmt: skip
