"""ELMo's two LSTM language models: `block` their settings, `model` the network."""
