"""Skip-thoughts: `config` has the settings, `objective` batches, loss and samples."""
