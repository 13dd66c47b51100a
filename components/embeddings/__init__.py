"""Word vectors and maps between their spaces: two languages, periods of one, sets of writers, models.

    space.py            words with their vectors: `load` and `save` of data/vectors/<name>
    vectors.py          stage `vectors`: vectors of a corpus -> data/vectors/<name>
    trainers            kinds of vectors (skip-gram, CBOW, fastText; PPMI and SVD), a file each
    published.py        stage `published_vectors`: vectors from elsewhere -> data/vectors/<name>
    contextual.py       stage `contextual_vectors`: a model's mean over a word's occurrences -> data/vectors/<name>
    dictionaries        word pairs to learn a map from and others to test it on; kinds of dictionary, a file each
    maps.py             normalising, and the linear maps, step by step
    self_learning.py    from few pairs, numerals or none to a dictionary of the whole vocabulary
    neighbours.py       the nearest of many, exactly and block by block
    retrieval.py        the correction of a target's cosine: none, CSLS, inverted softmax
    evaluate.py         precision, chance, hubs, how alike two spaces are, and which words moved between two periods
    intrinsic.py        what vectors say by themselves: word similarity, analogies
    view.py             both spaces in two dimensions
    contexts.py         a word in its context among words in theirs, by any model: `sesame neighbours`
    align.py            stage `align` -> data/align/<name>
    history.py          stage `history`: words through several periods -> data/align/<name>
    group.py            stage `group`: words that two sets of writers use differently -> data/align/<name>

One more kind of vectors or of dictionary is one file in its folder and its section in `components/params/vectors.py` or
`dictionaries.py`. One more retrieval or format is one function, one line in its file's registry, and its name there. One
more paper's method is a line of `PRESETS` in `components/params/alignment.py`.
"""
