"""Text generation. `search` decodes (greedy, beam search, sampling), `writing` runs it on a model and its inputs, `filling` fills the
masks of a masked model, `novelty` measures how much of the text is copied, `word_by_word` is a baseline for translation;
`python -m components.generate NAME` generates and scores an entry of `generations` in params.yaml.

A family can generate if its folder has a `decoding.py` with a class `Decoding`, built from (model, ids (rows, length), lengths (rows,),
capacity in tokens): `opening() -> (rows, length)`, the tokens that it reads first; `read(ids (rows, new)) -> (rows, new, hidden)`, the last
layer for the next tokens; `select(rows, width)`, to keep these texts in this order, of which each `width` belong to the same source. The
shortest example is that of `components.models.decoder`.
"""
