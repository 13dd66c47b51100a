"""The family of encoder-decoders: `config` its settings, `model` the network, `hub` how `transformers` lays it out, `decoding` the network
a token at a time."""
