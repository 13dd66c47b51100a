"""`python -m components.pretrain.sample NAME`: what a pre-trained model makes of its prompts -> data/samples/<name>.json.

A stage of its own, so that another prompt trains nothing again.
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
    """Write what the model makes of its prompts. Raises SesameError for one that it does not read to its end, which may
    be where its [MASK] stands."""
    block = params.models[name]
    compute.prepare(block.trainer.threads)
    model, tokenizer = store.load(Path("data/models", name))
    for prompt in block.prompts:
        around = len(tokenizer.prefix) + len(tokenizer.suffix)
        size = around + len(sentinels.with_holes(tokenizer, prompt, [MASK]))
        if size > model.max_length:
            shown, most = f"{prompt[:40]}..." if len(prompt) > 40 else prompt, model.max_length
            raise SesameError(f"models.{name}.prompts: {shown!r} has {size} tokens, and {name} reads {most}: shorten it")
    objective = objectives.build(block.objective, tokenizer)
    # of some objectives a sample is the nearest of held-out texts
    validation = encode.load(Path("data/encoded", block.encoding), "valid")
    model.eval()
    with torch.no_grad():
        samples = objective.samples(model, validation, block.prompts)
    for each in samples:
        print(f"  {each['prompt']}  ->  {each['output']}", flush=True)
    path = Path("data/samples", f"{name}.json")
    storage.write_json(path, samples)
    run.artifact(path)
    return {"samples": len(samples)}


if __name__ == "__main__":
    stage.main("sample", sample)
