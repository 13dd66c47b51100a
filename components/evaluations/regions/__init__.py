"""Surprisal of regions of sentences: SyntaxGym's suites, whose predictions are formulas (Hu et al. 2020)."""
