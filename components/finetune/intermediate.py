"""`python -m components.finetune.intermediate NAME`: a model tuned on one task (Phang et al. 2018) -> data/models/<name>, a model like others."""

from pathlib import Path

from components import models, params, stage
from components.finetune import runs
from components.tracking import Run


def intermediate(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.intermediate[name]
    model, tokens, found = runs.tune(all_params, block)
    with stage.output(Path("data/models", name)) as target:
        models.save(target, model.state_dict(), models.architecture(Path("data/models", block.model)), tokens)
    run.tag(model=block.model, task=block.task)
    return {"model": block.model, "task": block.task} | found


if __name__ == "__main__":
    stage.main("intermediate", intermediate, "intermediate")
