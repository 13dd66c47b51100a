"""The batch that a model read in a step of its pre-training, rebuilt exactly: a batch is a function of (seed, step)."""

from components import params
from components.core.errors import SesameError
from components.pretrain.setup import set_up


def batch(all_params: params.Params, name: str, step: int) -> list[dict[str, str]]:
    """Return a dictionary per sequence: its documents (numbers in the training split), its text, and the question asked of it.

    `step` counts from 1, as the training's log does. Raise SesameError if there is no such model, step or encoding.
    """
    if name not in all_params.models:
        raise SesameError(f"no model {name!r} in models of params.yaml (there are: {', '.join(all_params.models)})")
    if step < 1:
        raise SesameError(f"step {step}: the first is 1")
    setup = set_up(all_params.models[name], None)
    # the number of steps is unknown for a budget in minutes
    if setup.train.steps and step > setup.train.steps:
        raise SesameError(f"step {step:,}: the pre-training of {name} has {setup.train.steps:,}")
    phase, first = setup.train.at(step - 1)
    return setup.objective.explain(phase.batches, step - 1 - first)
