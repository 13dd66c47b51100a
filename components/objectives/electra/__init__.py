"""Replaced-token detection: `config` has the settings, `objective` generator, detector and loss."""
