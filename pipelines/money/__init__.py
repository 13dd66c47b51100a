"""Costs: forecasts of a run (`forecast`, `estimates`, `trainings`), past costs (`price_tags`, `usage`, `energy`), the
cost of an answer (`answers`), and cheaper forms of a model (`compress`)."""
