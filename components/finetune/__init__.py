"""Adapting a pre-trained model to tasks (`python -m components.finetune MODEL-TASK`).

`methods` holds the ways to adapt, `data` the inputs and their batches, `loop` one training, `__main__` the stage: from
pre-trained and from random weights, over the seeds.
One more way to adapt: a class in `methods`, a line in its registry, its name in `components.params.Recipe`.
"""
