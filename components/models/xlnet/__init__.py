"""XLNet: `config` its settings, `model` the network, `hub` what `transformers` calls it."""
