"""Masked language modelling: `config` its settings, `batches` the rows, `objective` loss and samples."""
