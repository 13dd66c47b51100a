"""Noise: tokens that are masked or changed for a model to restore: `tokens` masks single ones or whole words."""
