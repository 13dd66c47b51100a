"""`python -m components.pretrain.sample NAME`: what a pre-trained model makes of its prompts -> data/samples/<name>.json.

A stage of its own, so that another prompt trains nothing again.
"""

from pathlib import Path

import torch

from components import objectives
from components.core import compute, storage
from components.core.tracking import Run
from components.models import store
from components.params import Params
from components.stages import stage
from components.text import encode


def sample(params: Params, name: str, run: Run) -> dict:
    block = params.models[name]
    compute.prepare(block.trainer.threads)
    model, tokenizer = store.load(Path("data/models", name))
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
