"""Minimal pairs as an evaluation: how often a model assigns the right sentence the higher probability."""

from pathlib import Path

import numpy as np
import pandas as pd

from components.core import storage
from components.evaluations import held_out
from components.evaluations.contract import Answers, group_weights
from components.evaluations.inference import AnyTokenizer
from components.evaluations.minimal_pairs import pairs, readers, rules, scoring
from components.evaluations.minimal_pairs.accuracy import TIE, is_right
from components.evaluations.minimal_pairs.config import MinimalPairs, PairColumns
from components.evaluations.minimal_pairs.ngrams import NGrams
from components.models.contract import LanguageModel
from components.stages.outputs import read_json
from components.text import corpora, sources

ORDERS = {1: "unigram", 2: "bigram", 3: "trigram"}


def prepare(folder: Path, block: MinimalPairs) -> dict:
    """Write `pairs.jsonl`, and `ngrams.csv` with each pair's margins by n-grams of the training text, in nats."""
    corpus = Path("data/corpora", block.corpus)
    ngrams = NGrams(corpora.read(corpus, "train"), tuple(ORDERS))
    chosen, figures = _published(block) if block.source else _generated(corpus, ngrams, block)
    pairs.write(folder / "pairs.jsonl", chosen)
    shared = {"shared_words": True} if block.shared_words else {}
    storage.write_json(folder / "card.json", {"made": block.source is None, "licence": block.licence} | shared)
    good, bad = (ngrams.score([getattr(pair, side) for pair in chosen]) for side in ("good", "bad"))
    known = sum(ngrams.knows(pair.good) and ngrams.knows(pair.bad) for pair in chosen)
    print(f"{len(chosen):,} pairs; in {known:,} every word occurs twice or more in the training text")
    margins = pd.DataFrame({word: good[order] - bad[order] for order, word in ORDERS.items()})
    margins.to_csv(folder / "ngrams.csv", index=False, float_format="%.6g", lineterminator="\n")
    return {"pairs": len(chosen), "known_words": known, **figures}


def _generated(corpus: Path, ngrams: NGrams, block: MinimalPairs) -> tuple[list[pairs.Pair], dict]:
    """Pairs from the held-out text, and how many each rule gave."""
    documents, seen = held_out.documents(corpus, ("valid", "test"))
    print(f"{seen:,} held-out sentences left out: the training text has them, too")
    candidates = rules.candidates(documents, block.seed)
    chosen = rules.core(candidates, ngrams) if block.core else rules.balanced(candidates, block.seed)
    balance = ", half of them wrong by n-grams" if block.core else ""
    for paradigm, count in chosen.kept.items():
        print(f"{paradigm}: kept {count:,} of {sum(chosen.found[paradigm]):,} pairs{balance}")
    return chosen.pairs, {"candidates": len(candidates), "kept": chosen.kept, "seen_in_training": seen}


def _published(block: MinimalPairs) -> tuple[list[pairs.Pair], dict]:
    """Pairs of the source's files."""
    files = sources.open_files(block.source)
    own_table = block.reader == "table"
    read = readers.table(files, block.columns or PairColumns()) if own_table else readers.READERS[block.reader](files)
    available = pairs.checked(read, block.source.shown)
    if not (most := block.pairs_per_paradigm):
        return available, {}
    chosen = pairs.drawn(available, most, block.seed)
    print(f"{len(chosen):,} of {len(available):,} pairs drawn, at most {most:,} of each paradigm")
    return chosen, {"available": len(available)}


def evaluate(folder: Path, model: LanguageModel, tokens: AnyTokenizer, name: str) -> Answers:
    """Raises SesameError for a model without probabilities of sentences."""
    items, card = pairs.read(folder / "pairs.jsonl"), read_json(folder / "card.json")
    protocol, figures, of_shared = scoring.usual_protocol(model), {}, "shared_words" in card
    if of_shared:
        sums = scoring.score_shared_words(model, tokens, items, name)
        protocol += " of shared words"
        both = np.isfinite(sums).all(0)
    else:
        good, bad = scoring.score_pairs(model, tokens, items, protocol, name)
        both = good.scored & bad.scored
        sums = [np.where(both, side.log_probability, np.nan) for side in (good, bad)]
        figures["unknown_pieces"] = int(good.unknown.sum() + bad.unknown.sum())
    margin = sums[0] - sums[1]
    # in published sets each paradigm counts the same; generated ones have from two to thousands of pairs, which count the same
    by_pair = card["made"]
    strata = None if by_pair else np.array([pair.paradigm for pair in items])
    weights = np.ones(len(items)) if by_pair else group_weights(strata, margin)
    # pairs of one template depend on each other: the error is over paradigms, where there are several
    clusters = None if by_pair or len(set(strata[both])) < 2 else np.unique(strata, return_inverse=True)[1]
    averaged = {"margin": float(np.average(margin[both], weights=weights[both]))} if both.any() else {}
    if not of_shared:  # n-grams have scored whole sentences
        ngrams = pd.read_csv(folder / "ngrams.csv")
        references = {word: float(np.average(is_right(ngrams[word].to_numpy()), weights=weights * both)) for word in ORDERS.values()}
        hard = both & (ngrams["bigram"].to_numpy() <= TIE)
        figures |= {"references": references, "bigram_wrong_items": int(hard.sum())}
        averaged |= {"bigram_wrong": float(is_right(margin[hard]).mean())} if hard.any() else {}
    table = pd.DataFrame([{"id": pair.id, "paradigm": pair.paradigm, "phenomenon": pair.phenomenon} for pair in items])
    return Answers(
        protocol, np.where(both, is_right(margin), np.nan), table["phenomenon"].to_numpy(), weights,
        table.assign(good=sums[0], bad=sums[1]), figures, clusters=clusters, strata=strata, averaged=averaged,
    )  # fmt: skip
