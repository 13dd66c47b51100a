"""Language modelling with back-propagation through time: `config` its settings, `objective` batches, loss and samples."""
