"""Adapting a pre-trained model to tasks: `python -m components.finetune MODEL-TASK`, and two more stages.

`adapt` compares other methods, `baseline` has models without pre-training. `methods` decides which weights are trained, `kinds`
defines inputs, loss and predictions for each kind of task, `prompts` expresses tasks as text for models that generate, `data` builds
batches, `loop` trains once, `task_setup` has what all trainings on a task share, `runs` trains over the seeds.
To add a method: a file in `methods`, and its name in `METHODS` of `components.params.recipes`; docs/contributing.md has the rest.
To add a kind of task: a class in `kinds`, a line in its registry, its metrics in `components.tasks.metrics`.
"""
