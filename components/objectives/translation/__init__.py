"""Translation, or any other mapping from one text to another: `config` has the settings, `objective` batches, loss and samples."""
