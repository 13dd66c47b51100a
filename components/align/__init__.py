"""Static word vectors and mappings between their spaces: two languages, or two periods of one.

    vectors.py     stage `vectors`: vectors of a corpus (skip-gram, or PPMI and SVD) -> data/vectors/<name>; `load` reads them back
    dictionary.py  word pairs to learn a mapping from and others to test it on
    mappings.py    normalising, and the linear maps
    retrieval.py   from a mapped word to its translations
    evaluate.py    precision, chance, and which words moved between two periods
    __main__.py    stage `align` -> data/align/<name>

One more kind of vectors, mapping, retrieval or kind of dictionary is one function and one line in its file's registry, and its name
in `components/params`.
"""
