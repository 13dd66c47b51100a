"""Skip-gram over a word and its character n-grams (Bojanowski et al. 2017), by gensim."""

import numpy as np

from components import params
from components.embeddings.trainers import predicted


def train(sentences: list[list[str]], settings: params.vectors.FastText) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors, which include those of the n-grams."""
    from gensim.models import FastText

    subwords = {"min_n": settings.min_n, "max_n": settings.max_n, "bucket": settings.buckets}
    return predicted.trained(FastText(sg=1, **subwords, **predicted.options(settings)), sentences, settings)
