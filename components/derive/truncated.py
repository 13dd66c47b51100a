"""Some of the layers, as they are: the baseline of all ways to a smaller model (Sajjad et al. 2020, "Poor man's BERT")."""

from pathlib import Path

from components import params
from components.core.tracking import Run
from components.derive import smaller
from components.models import store


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Take the layers out. Raises SesameError for one that is not there."""
    block = all_params.derived[name]
    start, architecture = Path("data/models", block.start), smaller.architecture(all_params, name)
    model, tokens = store.load(start)
    made = store.build(architecture, tokens)
    smaller.keep(made, model, block.by.kept)
    step = {"by": "truncated", "on": block.start, "layers": block.by.kept}
    return smaller.write(folder, made, architecture, tokens, start, step)
