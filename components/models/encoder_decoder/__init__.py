"""The family of encoder-decoders: `config` has the settings, `model` the network, `hub` its layouts in `transformers`, `decoding` its
generation token by token."""
