"""Quick-thoughts: `config` its settings, `objective` batches, loss and samples."""
