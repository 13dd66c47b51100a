"""The recurrent encoder-decoder with attention: `config` its settings, `model` the network, `decoding` the network a token at a time."""
