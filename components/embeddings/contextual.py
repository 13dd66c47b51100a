"""Stage `contextual_vectors`: `python -m components.embeddings.contextual NAME` averages a model's vectors of each word:
data/vectors/NAME.

The vector of a word is the mean over its occurrences in a text, each in its sentence and scaled to length one (Schuster et al. 2019,
section 3: the anchors). So contextual vectors can be aligned and compared like any word vectors.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from components import params
from components.core import compute
from components.core.errors import SesameError
from components.embeddings import intrinsic
from components.embeddings.contexts import BATCH, embedded, layer_of, words_in
from components.embeddings.space import Space, save, say_unspaced
from components.embeddings.vectors import taken
from components.models import store
from components.stages import stage


def contextual_vectors(all_params: params.Params, name: str, run) -> dict:
    """Read the text, average and save the vectors; returns the counts.

    Raises SesameError where the model has no such layer, or no word is frequent enough.
    """
    settings = all_params.contextual_vectors[name]
    compute.prepare(1)  # the same sums on any number of cores
    model, tokens = store.load(Path("data/models", settings.model))
    model.eval()
    layer = layer_of(model, settings.model, settings.layer)
    sentences = [words for words in taken(settings, words_in) if words]
    counts = Counter(word.lowered() for words in sentences for word in words)
    say_unspaced(counts)
    words = [word for word, count in counts.most_common(settings.max_vocabulary) if count >= settings.min_count]
    if not words:
        raise SesameError(
            f"no word occurs min_count ({settings.min_count}) times in corpus {settings.corpus!r}: lower it or take more text"
        )

    # sorted by length for less padding; the order changes the sums of a word's vectors only by rounding
    sentences.sort(key=lambda words: len(words[0].text))
    row = {word: i for i, word in enumerate(words)}
    seen, sums = np.zeros(len(words), dtype=np.int64), None
    for i in range(0, len(sentences), BATCH):
        batch = sentences[i : i + BATCH]
        targets = [[word for word in sentence if word.lowered() in row] for sentence in batch]
        for word, vector in embedded(model, tokens, [sentence[0].text for sentence in batch], targets, layer):
            sums = np.zeros((len(words), len(vector)), dtype=np.float32) if sums is None else sums
            sums[row[word.lowered()]] += vector.numpy()
            seen[row[word.lowered()]] += bool(vector.any())  # zeros stand for a word that a word model doesn't know
    if sums is None:
        raise SesameError(f"model {settings.model} reads no word of corpus {settings.corpus!r}")
    if not (read := np.flatnonzero(seen)).size:  # a word without tokens has no vector
        raise SesameError(f"model {settings.model} reads no word of corpus {settings.corpus!r}")
    space = Space([words[i] for i in read], seen[read], sums[read] / seen[read, None])
    save(space, Path("data/vectors", name))
    total = sum(counts.values())
    without = f"; {len(words) - len(read)} words that it can't read have none" if len(read) < len(words) else ""
    print(f"{settings.model}, layer {layer}: {len(space.words)} vectors out of {total} words{without}", flush=True)
    figures = {"intrinsic": intrinsic.evaluate(space, settings.tests)} if settings.tests else {}
    return {"words": total, "vocabulary": len(space.words), "layer": layer, "cost": {"tokens": total}} | figures


if __name__ == "__main__":
    stage.main("contextual_vectors", contextual_vectors)
