"""Minimal pairs: two sentences that differ as little as possible, of which one is wrong (Marvin and Linzen 2018;
BLiMP, Warstadt et al. 2020). A model is right where the other one is more probable.

    pairs      a pair, files of pairs, and their checks
    readers    published sets, and tables
    rules      pairs generated from held-out sentences; the core that n-grams do not solve
    ngrams     unigram, bigram and trigram of words, as baselines
    words      the tokens of rules and n-grams
    scoring    log-probabilities of sentences
    alignment  tokens, words and spans of characters
    accuracy   scores of pairs -> accuracy and margin, with their errors
"""
