"""Causal language modelling: `config` its settings, `objective` batches, loss and samples."""
