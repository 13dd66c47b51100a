"""Prediction of subwords from characters: `config` has the settings, `vocabulary` the subwords, `batches` the examples, `objective` the
loss."""
