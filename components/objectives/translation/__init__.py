"""Translation, or any other rewriting of one text as another: `block` its settings, `objective` batches, loss and samples."""
