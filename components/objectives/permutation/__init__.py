"""Permutation language modelling: `block` its settings, `batches` the rows, `objective` loss and samples."""
