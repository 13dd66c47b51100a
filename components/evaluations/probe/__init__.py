"""Probes: what can be predicted from the vectors of single words, layer by layer, while the model is frozen.

standard     vectors with mean 0 and deviation 1
linear       a linear classifier, its control task (Hewitt and Liang 2019), its description length (Voita and Titov
             2020)
structural   trees as distances in a projection of the vectors (Hewitt and Manning 2019)
evaluation   both, as an evaluation
"""
