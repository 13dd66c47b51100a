"""XLNet: `config` has the settings, `model` the network, `hub` its layout in `transformers`."""
