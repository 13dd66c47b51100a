"""The decoder of GPT's family: `config` has the settings, `model` the network, `hub` its layouts in `transformers`."""
