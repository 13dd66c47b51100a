"""Continuous bag of words with negative sampling (Mikolov et al. 2013), by gensim."""

import numpy as np

from components import params
from components.embeddings.trainers import predicted


def train(sentences: list[list[str]], settings: params.vectors.Cbow) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors."""
    from gensim.models import Word2Vec

    return predicted.trained(Word2Vec(sg=0, **predicted.options(settings)), sentences, settings)
