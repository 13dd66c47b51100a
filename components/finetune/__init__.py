"""Adapting a pre-trained model to tasks: `python -m components.finetune MODEL-TASK`, and three stages beside it.

`adapt` holds other ways to adapt against each other, `intermediate` tunes a model on one task before it meets others,
`baseline` needs no pre-training. `kinds` says what a kind of task asks of a model, `methods` which weights learn, `data`
makes batches, `loop` is one training, `runs` a model on a task over the seeds.
One more way to adapt: a class in `methods`, a line in its registry, its name in `components.params.tasks.Recipe`.
One more kind of task: a class in `kinds`, a line in its registry, its metrics in `components.tasks.metrics`.
"""
