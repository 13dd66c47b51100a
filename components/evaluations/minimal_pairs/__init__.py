"""Minimal pairs: two sentences that differ in as little as possible, of which one is wrong (Marvin and Linzen 2018;
BLiMP, Warstadt et al. 2020). A model is right where it finds the other one likelier.

    pairs      a pair, files of pairs, and what is wrong with them
    readers    published sets, and tables of anyone's own
    rules      pairs made of held-out sentences; the core that n-grams do not see through
    ngrams     unigram, bigram and trigram of words, to hold models against
    words      what both of these take for words
    scoring    log-probabilities of sentences
    accuracy   scores of pairs -> accuracy and margin, with their errors
"""
