"""What an answer costs: models tuned on the same examples, smaller, coarser or left early, and their scores against FLOPs, time, energy
and bytes.

`point` tunes a point of `efficiency` in studies/params.yaml on a task over the seeds (`taught` one that has a teacher, whose point comes
first), `quantised` rounds its weights, `exits` leaves it early, `measure` runs it, `__main__` is the page and the picture: all points
run beside each other, so that a machine that does other things is as slow for one as for the other.
One more way to be cheap: a field of `Point` in components/params/efficiency.py and what `point.ready` makes of it; a model made of a model
is a way to derive (components/derive) and needs nothing here.
"""
