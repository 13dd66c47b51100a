"""Skip-thoughts: `block` its settings, `objective` batches, loss and samples."""
