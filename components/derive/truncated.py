"""Some of the layers, unchanged: the baseline of all methods for smaller models (Sajjad et al. 2020, "Poor man's BERT")."""

from pathlib import Path

from components import params
from components.core.tracking import Run
from components.derive import smaller
from components.models import store


def derive(all_params: params.Params, name: str, folder: Path, run: Run) -> dict:
    """Remove layers. Raises SesameError for one that does not exist."""
    block = all_params.derived[name]
    start, architecture = Path("data/models", block.start), smaller.architecture(all_params, name)
    model, tokens = store.load(start)
    truncated = store.build(architecture, tokens)
    smaller.copy_weights(truncated, model, block.by.kept)
    step = {"by": "truncated", "on": block.start, "layers": block.by.kept}
    return smaller.write(folder, truncated, architecture, tokens, start, step)
