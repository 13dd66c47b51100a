"""Denoising: `config` has the settings, `batches` corrupted sources and their targets, `objective` loss and samples."""
