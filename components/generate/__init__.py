"""Text generation. `search` decodes (greedy, beam search, sampling), `writing` gives it a model and inputs, `novelty`
measures how much of the text is copied, `word_by_word` is the baseline of a translation; `python -m components.generate
NAME` generates and scores an entry of `generations` in params.yaml.

A family writes where its folder has a `decoding.py` with a class `Decoding`: (model, ids, lengths, room) -> `opening`, `read`, `select`.
"""
