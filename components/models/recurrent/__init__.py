"""Recurrent language models, AWD-LSTM by default: `block` their settings, `model` the network, `decoding` for writing."""
