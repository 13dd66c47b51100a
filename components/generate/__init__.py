"""What models write: `search` looks for texts (greedy, beams, draws), `writing` gives it a model and inputs, `novelty` says how much of
them is copied, `word_by_word` is the baseline of a translation; `python -m components.generate NAME` does and judges what `generations` of
params.yaml asks for.

A family writes where its folder has a `decoding.py` with a class `Decoding`: (model, ids, lengths, room) -> `opening`, `read`, `select`.
"""
