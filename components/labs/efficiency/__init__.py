"""The cost of an answer: models fine-tuned on the same examples, smaller, quantised or with early exits, and their scores
against FLOPs, time, energy and bytes.

`point` fine-tunes a point of `efficiency` in studies/params.yaml on a task over the seeds (`taught` one with a teacher, whose point runs
first), `quantised` rounds its weights, `exits` has the rule for early exits, `measure` runs it, `__main__` is the page: all points run
in turns, so that other work on the machine slows all of them equally.
To add a technique: a field of `Point` in components/params/efficiency.py, and its use in `point.prepare`; models derived from other
models (components/derive) need nothing here.
"""
