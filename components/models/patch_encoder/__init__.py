"""The Vision Transformer's encoder: `config` has the settings, `model` the network."""
