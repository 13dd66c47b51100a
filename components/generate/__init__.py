"""Text generation. `search` decodes (greedy, beam search, sampling), `writing` runs it on a model and its inputs, `filling` fills the
masks of a masked model, `novelty` measures how much of the text is copied, `word_by_word` is a baseline for translation;
`python -m components.generate NAME` generates and scores an entry of `generations` in params.yaml.

A family can generate if its folder has a `decoding.py` with a class `Decoding`: (model, ids, lengths, room) -> `opening`, `read`, `select`.
"""
