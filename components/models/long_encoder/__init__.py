"""An encoder for long texts: `config` has the settings, `attention` the kinds of attention, `model` the network."""
