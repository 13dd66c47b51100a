"""Adapting a pre-trained model to tasks: `python -m components.finetune MODEL-TASK`, and two more stages.

`adapt` compares other ways to adapt, `baseline` needs no pre-training. `methods` says which weights learn, `kinds`
what a kind of task asks of a model, `prompts` puts tasks in words for models that write, `data` makes batches, `loop` is one
training, `bench` what all trainings on a task share, `runs` a model on a task over the seeds.
One more way to adapt: a file in `methods`, and its name in `METHODS` of `components.params.tasks`; docs/contributing.md has the rest.
One more kind of task: a class in `kinds`, a line in its registry, its metrics in `components.tasks.metrics`.
"""
