"""The encoder of BERT's family: `config` has the settings, `model` the network, `hub` its layouts in `transformers`."""
