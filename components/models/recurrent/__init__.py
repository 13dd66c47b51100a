"""Recurrent language models, AWD-LSTM by default: `config` their settings, `model` the network, `decoding` for writing."""
