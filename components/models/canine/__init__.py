"""CANINE: `config` its settings, `model` the network."""
