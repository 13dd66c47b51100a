"""A causal and a masked language model in one decoder.

`config` has the settings, `batches` the rows of both, `objective` the loss.
"""
