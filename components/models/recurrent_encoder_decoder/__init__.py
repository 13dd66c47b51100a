"""The recurrent encoder-decoder with attention: `config` has the settings, `model` the network, `decoding` generates token by token."""
