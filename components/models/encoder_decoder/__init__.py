"""The family of encoder-decoders: `block` its settings, `model` the network, `hub` how `transformers` lays it out, `decoding` the network
a token at a time."""
