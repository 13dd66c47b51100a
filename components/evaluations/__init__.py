"""Evaluations of models as pre-training leaves them, without a label and without tuning.

    minimal_pairs   which of two sentences, one of them wrong, a model finds likelier
"""
