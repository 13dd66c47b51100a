"""Pre-training on Lightning (`python -m components.pretrain NAME`).

`training` runs one pre-training (budget, resume, checkpoints), `module` is the training step, `data` the batches, `cost` counts FLOPs
and measures the machine's peak, `__main__` is the stage. The losses are in `components.objectives`, the networks in
`components.models`.
"""
