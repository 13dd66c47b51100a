"""Experiments around one tuned model: what it costs (`efficiency`), how much tuning it needs (`search`), how much luck is in it (`seeds`),
and how few weights do (`tickets`)."""
