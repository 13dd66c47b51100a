"""`sesame try`: one small GPT from raw text to what it knows, in two minutes, by stages that the whole pipeline uses
again."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from markupsafe import Markup

from components import objectives, params
from components.comparison import pages, plots
from components.core import compute
from components.core.frames import read_csv
from components.evaluations import one_model
from components.evaluations.minimal_pairs import pairs
from components.models import store
from components.text import encode
from pipelines import terminal

MODEL, EVALUATION = "small", "pairs"
TARGETS = [f"pretrain@{MODEL}", f"evaluation@{EVALUATION}"]
PAGE = Path("data/try/index.html")
SHOWN = 10
"""Pairs on the page, of as many rules as there are."""
WORDS = 8
"""Of a pair that is read at a glance."""


class Judged(NamedTuple):
    """A pair and what the model says of it."""

    good: str
    bad: str
    paradigm: str
    margin: float
    """Log-probability of the right sentence minus that of the wrong one, in nats."""


def show() -> None:
    """Write the page of the model, and print what it has."""
    all_params, folder = params.load(), Path("data/models", MODEL)
    block = all_params.models[MODEL]
    compute.prepare(block.trainer.threads)
    answers = one_model.evaluate_model("minimal_pairs", EVALUATION, folder)
    score, random = (
        float(np.nanmean(result.values))
        for result in (answers, one_model.evaluate_model("minimal_pairs", EVALUATION, folder, 1))
    )
    judged, written = _judged(answers.items), _samples(block, folder)
    curve = read_csv(Path("data/study_curves", f"{MODEL}.csv")).assign(model=MODEL, reads=block.loss_of)
    bits, tokens = curve["bits_per_byte"].iloc[-1], int(curve["tokens"].iloc[-1])
    facts = {"tokens": tokens, "bits": bits, "score": score, "random": random, "items": len(answers.values)}
    facts["bigram"] = answers.figures["references"]["bigram"]
    pages.write(
        PAGE, Path(__file__).with_suffix(".html.j2"), "the first look", curve=Markup(plots.svg(plots.curves(curve))), judged=judged,
        samples=written, model=MODEL, corpus=all_params.encodings[block.encoding].corpus, **facts,
    )  # fmt: skip
    rows = [[pair.good, pair.bad, f"{pair.margin:+.1f} {'right' if pair.margin > 0 else 'wrong'}"] for pair in judged]
    terminal.table(["right", "wrong", "the model says"], rows)
    terminal.say(
        "{tokens:,} tokens read; {bits:.2f} bits a byte of held-out text; right in {score:.3f} of {items:,} pairs, "
        "from random weights in {random:.3f}, by counts of neighbouring words in {bigram:.3f}".format(**facts), "bold",
    )  # fmt: skip
    for sample in written:
        terminal.say(f"  {sample['prompt']}  ->  {sample['output']}")
    terminal.say(f"page     {PAGE}")
    terminal.say(
        "next     `make run` builds the whole pipeline, and `sesame study mine` an ablation of your own (README)"
    )


def _judged(items: pd.DataFrame) -> list[Judged]:
    """Short pairs, in turn from each rule; the model has no say in which."""
    text = {pair.id: pair for pair in pairs.read(Path("data/evaluations", EVALUATION, "pairs.jsonl"))}
    words = items["id"].map(lambda name: len(text[name].good.split()))
    scored = items.assign(margin=items["good"] - items["bad"], far=(words - WORDS).abs()).dropna(subset="margin")
    scored = scored.sort_values("far", kind="stable")
    in_turn = scored.assign(turn=scored.groupby("paradigm").cumcount()).sort_values("turn", kind="stable")
    return [
        Judged(text[row.id].good, text[row.id].bad, row.paradigm, row.margin)
        for row in in_turn.head(SHOWN).itertuples()
    ]


def _samples(block: params.Model, folder: Path) -> list[dict[str, str]]:
    """How the model goes on with its prompts."""
    model, tokenizer = store.load(folder)
    model.eval()
    with torch.no_grad():
        validation = encode.load(Path("data/encoded", block.encoding), "valid")
        return objectives.build(block.objective, tokenizer).samples(model, validation, block.prompts)
