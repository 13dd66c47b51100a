"""Experiments around one tuned model: its cost (`efficiency`), the search for its recipe (`search`), the spread over
seeds (`seeds`), and lottery tickets (`tickets`)."""
