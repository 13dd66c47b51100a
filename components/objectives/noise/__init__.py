"""Corruption of tokens that a model has to restore: `tokens` masks single tokens or whole words, `spans` masks spans."""
