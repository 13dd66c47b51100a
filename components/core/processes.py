"""Which process of a training this one is."""

import os


def rank_zero() -> bool:
    """Whether this process is the one that writes: under DDP every rank runs the script."""
    return all(os.environ.get(key, "0") == "0" for key in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"))


LAUNCHED = "SESAME_LAUNCHED"
"""In the environment of a training's process: the launcher that started it. In any other's there is none, whatever that one runs in."""
