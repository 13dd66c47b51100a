"""`sesame attention MODEL TEXT`: what each head attends to in a text, as a page of heat maps."""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from components.comparison import pages, plots
from components.core import compute, storage
from components.core.errors import SesameError
from components.evaluations.attention import maps
from components.evaluations.reading import AnyTokenizer
from components.models import store
from components.text.tokenizer import SPECIALS, Tokenizer

FOLDER = Path("data/attention")
CELL, NARROWEST, WIDEST = 0.17, 1.7, 6.0
"""Inches of a token, and of a whole map: the cells of a long text are smaller."""
MOST = 64
"""Labels of a side that can still be read: of a longer text every other token has one, or every third ..."""


def write(name: str, text: str, out: Path | None = None) -> Path:
    """Draw what the model `data/models/<name>` attends to in a text; where the page is.

    Without `out` the model's last page is replaced. Raises SesameError where there is no such model, it has no attention
    between tokens, the text has no token or more than the model reads, and where something stands at `out`.
    """
    path = storage.unused_path(out) if out else FOLDER / f"{name}.html"
    compute.prepare(None)
    model, tokens = store.load(Path("data/models", name))
    ids, labels = labelled(tokens, text)
    if len(ids) == len(tokens.prefix) + len(tokens.suffix):
        raise SesameError(f"the text {text!r} has no token: give it a word at least")
    if len(ids) > model.max_length:
        raise SesameError(f"the text has {len(ids)} tokens, and model {name} reads {model.max_length}: shorten it")
    layers = maps.of_tokens(model, torch.tensor([ids]), torch.tensor([len(ids)]), f"model {name}")
    drawn = [drawing(layer[0], labels, number) for number, layer in enumerate(layers, start=1)]
    template = Path(__file__).with_name("page.html.j2")
    pages.write(path, template, f"attention of {name}", model=name, text=text, layers=drawn)
    return path


def labelled(tokens: AnyTokenizer, text: str) -> tuple[list[int], list[str]]:
    """Ids of a text with the specials around it, and what is written at each: its characters; `·` where it has none."""
    [(ids, spans)] = tokens.encode_offsets([text])
    shown = [" ".join(text[first:end].split()) or "·" for first, end in spans]
    before, after = ([_special(tokens, i) for i in some] for some in (tokens.prefix, tokens.suffix))
    return [*tokens.prefix, *ids, *tokens.suffix], [*before, *shown, *after]


def _special(tokens: AnyTokenizer, i: int) -> str:
    return SPECIALS[i] if isinstance(tokens, Tokenizer) else tokens.tokenizer.id_to_token(i)


def drawing(weights: Tensor, labels: list[str], layer: int) -> str:
    """A layer as SVG, a map a head, of its weights (heads, tokens, tokens): white is 0, the darkest blue 1."""
    side = min(max(CELL * len(labels), NARROWEST), WIDEST)
    places = np.arange(0, len(labels), -(-len(labels) // MOST))
    named = [labels[place] for place in places]
    size = min(8.0, 0.8 * 72 * side / len(named))  # in points, 72 an inch
    shape = {"figsize": (1.08 * side * len(weights), side), "gridspec_kw": {"wspace": 0.08}}
    figure, panels = plt.subplots(1, len(weights), sharey=True, squeeze=False, **shape)
    for head, (panel, own) in enumerate(zip(panels[0], weights.numpy(), strict=True), start=1):
        panel.imshow(own, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
        # a dollar sign is a token, and no beginning of a formula
        panel.set_xticks(places, named, rotation=90, fontsize=size, parse_math=False)
        panel.set_yticks(places, named, fontsize=size, parse_math=False)
        panel.set_title(f"layer {layer}, head {head}", fontsize=9)
        panel.tick_params(length=0)
        panel.grid(False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a browser draws the labels, which has letters that a font lacks
        return plots.svg(figure)
