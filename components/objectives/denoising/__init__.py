"""Denoising: `config` its settings, `batches` what is read and what is to be written, `objective` loss and samples."""
