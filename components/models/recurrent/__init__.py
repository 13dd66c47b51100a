"""Recurrent language models, AWD-LSTM by default: `config` has the settings, `model` the network, `decoding` generates text."""
