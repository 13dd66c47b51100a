"""`python -m components.pretrain.sample NAME`: the outputs of a pre-trained model for its prompts -> data/samples/<name>.json.

A separate stage, so that another prompt does not train the model again.
"""

from pathlib import Path

import torch

from components import objectives
from components.core import compute, storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.models import store
from components.params import Params
from components.stages import stage
from components.text import encode
from components.text.tokenizer import MASK, sentinels


def sample(params: Params, name: str, run: Run) -> dict:
    """Write the outputs for the prompts. Raise SesameError for a prompt longer than the model reads: its [MASK] may be cut off."""
    config = params.models[name]
    compute.prepare(config.trainer.threads)
    model, tokenizer = store.load(Path("data/models", name))
    for prompt in config.prompts:
        specials = len(tokenizer.prefix) + len(tokenizer.suffix)
        size = specials + len(sentinels.with_holes(tokenizer, prompt, [MASK]))
        if size > model.max_length:
            shown = f"{prompt[:40]}..." if len(prompt) > 40 else prompt
            raise SesameError(f"models.{name}.prompts: {shown!r} has {size} tokens, and {name} reads {model.max_length}: shorten it")
    objective = objectives.build(config.objective, tokenizer)
    # some objectives return the nearest held-out texts
    validation = encode.load(Path("data/encoded", config.encoding), "valid")
    model.eval()
    with torch.no_grad():
        samples = objective.samples(model, validation, config.prompts)
    for each in samples:
        print(f"  {each['prompt']}  ->  {each['output']}", flush=True)
    path = Path("data/samples", f"{name}.json")
    storage.write_json(path, samples)
    run.artifact(path)
    return {"samples": len(samples)}


if __name__ == "__main__":
    stage.main("sample", sample)
