"""`sesame attention MODEL TEXT`: the attention of each head in a text, as a page of heat maps."""

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
from components.evaluations.inference import AnyTokenizer
from components.models import store
from components.text.tokenizer import SPECIALS, Tokenizer

FOLDER = Path("data/attention")
CELL, MIN_WIDTH, MAX_WIDTH = 0.17, 1.7, 6.0
"""In inches: a token, and a map."""
MAX_LABELS = 64
"""On one side of a map; of a longer text only every second or third token has a label."""


def write(name: str, text: str, out: Path | None = None) -> Path:
    """Draw the attention of the model `data/models/<name>` in a text; returns the path of the page.

    Without `out` the model's last page is replaced. Raises SesameError where the model is missing or has no attention
    between tokens, the text has no token or more than the model reads, and where `out` exists.
    """
    path = storage.unused_path(out) if out else FOLDER / f"{name}.html"
    compute.prepare(None)
    model, tokens = store.load(Path("data/models", name))
    ids, labels = labelled(tokens, text)
    if len(ids) == len(tokens.prefix) + len(tokens.suffix):
        raise SesameError(f"the text {text!r} has no token: give at least one word")
    if len(ids) > model.max_length:
        raise SesameError(f"the text has {len(ids)} tokens, and model {name} reads {model.max_length}: shorten it")
    layers = maps.token_attention(model, torch.tensor([ids]), torch.tensor([len(ids)]), f"model {name}")
    drawn = [drawing(layer[0], labels, number) for number, layer in enumerate(layers, start=1)]
    template = Path(__file__).with_name("page.html.j2")
    pages.write(path, template, f"attention of {name}", model=name, text=text, layers=drawn)
    return path


def labelled(tokens: AnyTokenizer, text: str) -> tuple[list[int], list[str]]:
    """Ids of a text with special tokens, and their labels: the characters of each token; `·` where it has none."""
    [(ids, spans)] = tokens.encode_offsets([text])
    shown = [" ".join(text[first:end].split()) or "·" for first, end in spans]
    before, after = ([_special(tokens, i) for i in some] for some in (tokens.prefix, tokens.suffix))
    return [*tokens.prefix, *ids, *tokens.suffix], [*before, *shown, *after]


def _special(tokens: AnyTokenizer, i: int) -> str:
    return SPECIALS[i] if isinstance(tokens, Tokenizer) else tokens.tokenizer.id_to_token(i)


def drawing(weights: Tensor, labels: list[str], layer: int) -> str:
    """A layer as SVG, one map per head, given its weights (heads, tokens, tokens): white is 0, the darkest blue 1."""
    side = min(max(CELL * len(labels), MIN_WIDTH), MAX_WIDTH)
    positions = np.arange(0, len(labels), -(-len(labels) // MAX_LABELS))
    named = [labels[position] for position in positions]
    size = min(8.0, 0.8 * 72 * side / len(named))  # in points, 72 per inch
    shape = {"figsize": (1.08 * side * len(weights), side), "gridspec_kw": {"wspace": 0.08}}
    figure, panels = plt.subplots(1, len(weights), sharey=True, squeeze=False, **shape)
    for head, (panel, head_weights) in enumerate(zip(panels[0], weights.numpy(), strict=True), start=1):
        panel.imshow(head_weights, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
        # a dollar sign is a token, not the start of a formula
        panel.set_xticks(positions, named, rotation=90, fontsize=size, parse_math=False)
        panel.set_yticks(positions, named, fontsize=size, parse_math=False)
        panel.set_title(f"layer {layer}, head {head}", fontsize=9)
        panel.tick_params(length=0)
        panel.grid(False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a browser draws the labels, with its fonts
        return plots.svg(figure)
