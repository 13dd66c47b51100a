"""CANINE: `block` its settings, `model` the network."""
