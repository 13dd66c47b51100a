"""Language modelling with back-propagation through time: `block` its settings, `objective` batches, loss and samples."""
