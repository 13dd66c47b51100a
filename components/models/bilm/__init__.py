"""ELMo's two LSTM language models: `config` their settings, `model` the network."""
