"""What kinds of vectors share that gensim trains."""

from typing import Any

import numpy as np

from components import params
from components.embeddings.trainers import vocabulary

FEWEST = 10
"""Words; vectors of fewer would say nothing."""


def options(settings: params.vectors.Predicted) -> dict[str, Any]:
    """Gensim's names for what all of its models take. With one worker the same text and library versions give the same bits."""
    return {
        "vector_size": settings.vector_size, "window": settings.window, "min_count": settings.min_count, "negative": settings.negative,
        "sample": settings.sample, "epochs": settings.epochs, "seed": settings.seed, "workers": settings.workers, "hs": 0,
    }  # fmt: skip


def whole(sentences: list[list[str]]) -> list[list[str]]:
    """The same words, a sentence of more than gensim reads of one in several: it would count the others and learn nothing
    from them."""
    from gensim.models.word2vec import MAX_WORDS_IN_BATCH as LONGEST

    return [sentence[at : at + LONGEST] for sentence in sentences for at in range(0, len(sentence), LONGEST)]


def trained(model: Any, sentences: list[list[str]], settings: params.vectors.Predicted) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Words, counts, vectors of a gensim model. Raises SesameError when the text is too short."""
    sentences = whole(sentences)
    model.build_vocab(sentences)
    vocabulary.check(len(model.wv), FEWEST, settings)
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    words, vectors = model.wv.index_to_key, model.wv.vectors.astype(np.float32)
    counts = np.array([model.wv.get_vecattr(word, "count") for word in words])
    if settings.kind == "fasttext":  # whose n-grams other words have taught
        return words, counts, vectors
    there = vocabulary.standing_beside(words, sentences)  # the others' are still those that were drawn
    return [words[i] for i in there], counts[there], vectors[there]
