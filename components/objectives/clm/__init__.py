"""Causal language modelling: `block` its settings, `objective` batches, loss and samples."""
