"""Static word vectors and mappings between their spaces: two languages, or two periods of one.

    vectors.py     stage `vectors`: vectors of a corpus -> data/vectors/<name>; `load` reads them back
    trainers       kinds of vectors (skip-gram; PPMI and SVD), a file each
    dictionaries   word pairs to learn a mapping from and others to test it on; kinds of dictionary, a file each
    mappings.py    normalising, and the linear maps
    retrieval.py   from a mapped word to its translations
    evaluate.py    precision, chance, and which words moved between two periods
    __main__.py    stage `align` -> data/align/<name>

One more kind of vectors or of dictionary is one file in its folder and its block in `components/params`; one more mapping or
retrieval is one function and one line in its file's registry, and its name in `components/params`.
"""
