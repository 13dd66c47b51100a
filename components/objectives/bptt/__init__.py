"""Language modelling with back-propagation through time: `config` has the settings, `objective` batches, loss and samples."""
