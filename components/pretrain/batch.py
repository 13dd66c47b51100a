"""What a model read in a step of its pre-training: the very rows, since a batch is a function of (seed, step)."""

from pathlib import Path

from components import encode, objectives, params, tokenizer
from components.errors import SesameError


def batch(all_params: params.Params, name: str, step: int) -> list[dict[str, str]]:
    """A dictionary for each row: its documents (their numbers in the training split), the text, and what is asked of it.

    `step` counts from 1, as the log of the training does. Raises SesameError where there is no such model, step or encoding.
    """
    if name not in all_params.models:
        raise SesameError(f"no model {name!r} in models of params.yaml (there are: {', '.join(all_params.models)})")
    if step < 1:
        raise SesameError(f"step {step}: the first is 1")
    block = all_params.models[name]
    folder = Path("data/encoded", block.encoding)
    if not (folder / "meta.json").exists():
        raise SesameError(f"{folder}: no such encoding; run `sesame run encode@{block.encoding}` first")
    objective = objectives.build(block.objective, tokenizer.load(folder))
    batches = objective.batches(encode.load(folder, "train"), block.batch_size, block.architecture.max_length, block.seed)
    return objective.explain(batches, step - 1)
