"""Masked language modelling: `config` its settings, `control` what B alone says of next sentence, `objective` loss and samples."""
