"""Replaced-token detection: `config` its settings, `objective` generator, detector and loss."""
