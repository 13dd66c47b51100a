"""Experiments on fine-tuned models: the cost of an answer (`efficiency`), the search for a recipe (`search`), the variance over
seeds (`seeds`), and lottery tickets (`tickets`)."""
