"""Multiple choice without fine-tuning: the most probable of several words, or contexts."""
