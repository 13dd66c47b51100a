"""Shared parts of comparisons: verdicts and their calibration, scaling fits, prices, plots, and the pages that show
them."""
