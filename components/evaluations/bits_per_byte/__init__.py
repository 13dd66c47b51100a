"""Bits per byte of held-out sentences: one measure for models with different tokenizers."""
