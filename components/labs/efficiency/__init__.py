"""The cost of an answer: models tuned on the same examples, smaller, quantised or with early exits, and their scores
against FLOPs, time, energy and bytes.

`point` tunes a point of `efficiency` in studies/params.yaml on a task over the seeds (`taught` one that has a teacher, whose point comes
first), `quantised` rounds its weights, `exits` leaves it early, `measure` runs it, `__main__` is the page and the picture: all points
run in turns, so that other work on the machine slows all of them alike.
To add a technique: a field of `Point` in components/params/efficiency.py, and its use in `point.prepare`; a model made of a model
is a way to derive (components/derive) and needs nothing here.
"""
