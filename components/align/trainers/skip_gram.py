"""Skip-gram with negative sampling (Mikolov et al. 2013), by gensim."""

import numpy as np

from components import params
from components.align.trainers import vocabulary

FEWEST = 10
"""Words; vectors of fewer would say nothing."""


def train(sentences: list[list[str]], settings: params.SkipGram) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors. With one worker the same text, settings and library versions give the same bits."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        sg=1, hs=0, vector_size=settings.vector_size, window=settings.window, min_count=settings.min_count, negative=settings.negative,
        sample=settings.sample, epochs=settings.epochs, seed=settings.seed, workers=settings.workers,
    )  # fmt: skip
    model.build_vocab(sentences)
    vocabulary.check(len(model.wv), FEWEST, settings)
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    words = model.wv.index_to_key
    counts = np.array([model.wv.get_vecattr(word, "count") for word in words])
    return words, counts, model.wv.vectors.astype(np.float32)
