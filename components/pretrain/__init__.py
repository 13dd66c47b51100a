"""Pre-training on Lightning (`python -m components.pretrain NAME`).

`module` is the training step, `data` the batches, `cost` FLOPs and the machine's peak, `__main__` the stage: budget,
resume, validation, samples, saving. What is predicted is in `components.objectives`, the networks in `components.models`.
"""
