"""Costs: what a run will take (`forecast`, `estimates`, `trainings`), what was spent (`price_tags`, `spent`, `meter`), what an answer takes
(`answers`), and how a model becomes cheaper (`compress`)."""
