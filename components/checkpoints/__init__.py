"""Models in the form of `transformers`: brought in (`python -m components.checkpoints NAME`) and written out (`sesame export`).

`layout` says what its names and shapes are in our modules, in one table for both directions; `parity` that both give the
same numbers, which is checked every time; `pieces` turns a sentencepiece tokenizer into a `tokenizer.json`.
One more kind of model: a `Layout` in `layout`.
"""
