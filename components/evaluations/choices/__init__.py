"""Multiple choice without tuning: which of several words, or contexts, a model finds the likeliest."""
