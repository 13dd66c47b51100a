"""Masked language modelling: `config` has the settings, `control` predicts the pair's answer from B alone, `objective` has loss and
samples."""
