"""Bits per byte of held-out sentences, by the rule of what a model reads: one measure for all objectives."""
