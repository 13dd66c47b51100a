"""The decoder of GPT's family: `block` its settings, `model` the network, `hub` how `transformers` lays it out."""
