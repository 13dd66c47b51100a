"""Replaced-token detection: `block` its settings, `objective` generator, detector and loss."""
