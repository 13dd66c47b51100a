"""ELMo's two LSTM language models: `config` has the settings, `model` the network."""
