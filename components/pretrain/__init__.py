"""Pre-training on Lightning (`python -m components.pretrain NAME`).

`training` is a whole pre-training (budget, resume, checkpoints), `module` its step, `data` the batches, `cost` FLOPs and the
machine's peak, `__main__` the stage. What is predicted is in `components.objectives`, the networks in `components.models`.
"""
