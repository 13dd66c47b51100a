"""Muon (Jordan et al. 2024): momentum whose update is made orthogonal, for the matrices of layers; AdamW for the rest."""
