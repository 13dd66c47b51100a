"""What the heads of a model attend to (Clark et al. 2019): attention weights, the evaluation, a page of heat maps."""
