"""Trainers of word vectors.

To add a kind of vectors, write a file `<kind>.py` here with `train(sentences, settings)`, and its block in
`components/params/vectors.py`. `vocabulary` has what they share.
"""

from collections.abc import Callable
from importlib import import_module

import numpy as np

from components import params


def load(kind: str) -> Callable[[list[list[str]], params.Vectors], tuple[list[str], np.ndarray, np.ndarray]]:
    """The `train` of a kind: sentences of words -> words, most frequent first, counts (words,), vectors (words, vector_size) float32.

    It raises SesameError when the text is too short.
    """
    return import_module(f"components.embeddings.trainers.{kind}").train
