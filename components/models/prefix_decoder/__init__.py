"""A decoder that reads a source before it writes: `config` has the settings, `model` the network, `decoding` generation."""
