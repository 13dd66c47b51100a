"""Permutation language modelling: `config` has the settings, `batches` the sequences, `objective` loss and samples."""
