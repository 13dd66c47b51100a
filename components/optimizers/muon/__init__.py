"""Muon (Jordan et al. 2024): momentum with orthogonalised updates for the matrices of layers; AdamW for the rest."""
