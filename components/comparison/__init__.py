"""Statistics of comparisons, scaling fits, prices, plots and pages, for the report, the studies and the labs."""
