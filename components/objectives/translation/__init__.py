"""Translation, or any other rewriting of one text as another: `config` its settings, `objective` batches, loss and samples."""
