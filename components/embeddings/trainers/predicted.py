"""What the kinds of vectors that gensim trains share."""

from typing import Any

import numpy as np

from components import params
from components.embeddings.trainers import vocabulary

MIN_WORDS = 10
"""The smallest vocabulary that is worth training."""


def options(settings: params.vectors.Predicted) -> dict[str, Any]:
    """The arguments that all of gensim's models share. With one worker the same text and library versions give the same bits."""
    return {
        "vector_size": settings.vector_size, "window": settings.window, "min_count": settings.min_count, "negative": settings.negative,
        "sample": settings.sample, "epochs": settings.epochs, "seed": settings.seed, "workers": settings.workers, "hs": 0,
    }  # fmt: skip


def split_long(sentences: list[list[str]]) -> list[list[str]]:
    """Split sentences that are longer than gensim reads: it would count the other words but not train them."""
    from gensim.models.word2vec import MAX_WORDS_IN_BATCH as LONGEST

    return [sentence[start : start + LONGEST] for sentence in sentences for start in range(0, len(sentence), LONGEST)]


def trained(model: Any, sentences: list[list[str]], settings: params.vectors.Predicted) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors of a gensim model. Raises SesameError when the text is too short."""
    sentences = split_long(sentences)
    model.build_vocab(sentences)
    vocabulary.check(len(model.wv), MIN_WORDS, settings)
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    words, vectors = model.wv.index_to_key, model.wv.vectors.astype(np.float32)
    counts = np.array([model.wv.get_vecattr(word, "count") for word in words])
    if settings.kind == "fasttext":  # other words have trained its n-grams
        return words, counts, vectors
    kept = vocabulary.with_neighbours(words, sentences)  # the vectors of the others are still random
    return [words[i] for i in kept], counts[kept], vectors[kept]
