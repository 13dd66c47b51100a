"""Word vectors and maps between their spaces: two languages, periods of one, sets of writers, models.

    space.py            words with their vectors: `load` and `save` of data/vectors/<name>
    vectors.py          stage `vectors`: vectors of a corpus -> data/vectors/<name>
    trainers            kinds of vectors (skip-gram, CBOW, fastText; PPMI and SVD), a file each
    published.py        stage `published_vectors`: imported vectors -> data/vectors/<name>
    contextual.py       stage `contextual_vectors`: a model's mean over a word's occurrences -> data/vectors/<name>
    dictionaries        word pairs to learn a map from and others to test it on; kinds of dictionary, a file each
    maps.py             normalisation and linear maps
    self_learning.py    from few pairs, numerals or none to a dictionary of the full vocabulary
    neighbours.py       exact nearest neighbours, block by block
    retrieval.py        corrections of a target's cosine: none, CSLS, inverted softmax
    evaluate.py         precision, chance, hubs, the similarity of two spaces, and words that moved between two periods
    intrinsic.py        word similarity and analogies
    view.py             both spaces in two dimensions
    contexts.py         neighbours of a word in context, with any model: `sesame neighbours`
    align.py            stage `align` -> data/align/<name>
    history.py          stage `history`: words through several periods -> data/align/<name>
    group.py            stage `group`: words that two sets of writers use differently -> data/align/<name>

To add a kind of vectors or of dictionary, write a file in its folder and its section in
`components/params/vectors.py` or `dictionaries.py`. To add a retrieval or format, write a function, a line in its file's
registry, and its name there. To add a paper's method, write a line of `PRESETS` in `components/params/alignment.py`.
"""
