"""The rank of this process in a training."""

import os


def rank_zero() -> bool:
    """Return whether this process is the first rank, which writes files: under DDP every rank runs the script."""
    return all(os.environ.get(key, "0") == "0" for key in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"))


LAUNCHED = "SESAME_LAUNCHED"
"""Environment variable with the launcher of a training process; not set in other processes, e.g. of a worker in a Slurm job."""
