"""The encoder of BERT's family: `config` its settings, `model` the network, `hub` how `transformers` lays it out."""
