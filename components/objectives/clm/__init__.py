"""Causal language modelling: `config` has the settings, `objective` batches, loss and samples."""
