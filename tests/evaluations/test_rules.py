"""Pairs made of sentences: what a rule takes and leaves, both directions equally often, and the core that n-grams do
not see through."""

from collections import Counter

import numpy as np
import pytest

from components.core.errors import SesameError
from components.evaluations.minimal_pairs import pairs, rules
from components.evaluations.minimal_pairs.ngrams import NGrams

TAKEN = [
    ("The dog is in the garden.", "The dog are in the garden."),
    ("The keys on the table are old.", "The keys on the table is old."),
    ("There were two men outside.", "There was two men outside."),
    ("The man has a red hat.", "The man have a red hat."),
    ("It does not look so.", "It do not look so."),
    ("Read all of these old books now.", "Read all of this old books now."),
    ("He lived in that year.", "He lived in those year."),
    ("A man who looks at him is tall.", "A man who looks at he is tall."),
    ("Nobody knows what they want.", "Nobody knows what them want."),
    ("She is a good friend.", "Her is a good friend."),
    ("He said I went home.", "He said me went home."),
    ("Give me the red ball.", "Give I the red ball."),
    ("A dog eats an apple.", "A dog eats a apple."),
    ("A dog eats an apple.", "An dog eats an apple."),
]
LEFT = [
    ("A group of people is here.", "is/are"),  # read as one or as many
    ("A man and a woman is here.", "is/are"),  # a slip
    ("The dogs is here today.", "is/are"),
    ("One of the men who are here.", "is/are"),
    ("If he were here we would go.", "was/were"),
    ("They do not have a red ball.", "has/have"),  # an infinitive
    ("Do this work for the men.", "does/do"),
    ("I know that men are mortal.", "that/those"),  # a conjunction
    ("I like this very much indeed.", "this/these"),  # no noun
    ("She is taller than him now.", "he/him"),
    ("It is her red ball again.", "she/her"),  # owns
    ("He fought in World War I again.", "I/me"),
    ("The US is a large country.", "we/us"),
    ("He took an historic step there.", "a/an"),
    ("He has a old red ball.", "a/an"),  # a slip
    ("Vitamin A is in it.", "a/an"),
    ("The dog is.", "is/are"),  # too short
]


def made(*sentences: str) -> list[pairs.Pair]:
    return rules.candidates([list(sentences)])


@pytest.mark.parametrize(("good", "bad"), TAKEN)
def test_what_a_rule_takes(good, bad):
    assert bad in [pair.bad for pair in made(good)]


@pytest.mark.parametrize(("sentence", "paradigm"), LEFT)
def test_what_a_rule_leaves(sentence, paradigm):
    assert paradigm not in [pair.paradigm for pair in made(sentence)]


ONE, MANY = ["dog", "man", "bird", "tree", "river"], ["dogs", "men", "birds", "trees", "rivers"]
DOCUMENTS = [
    [f"The {noun} near the {other} is {how}." for noun in ONE for other in MANY for how in ("red", "old", "wet")]
]
DOCUMENTS += [[f"The {noun} near the {other} are {how}." for noun in MANY for other in ONE for how in ("red", "old")]]


def test_both_directions_are_equally_often():
    candidates = rules.candidates(DOCUMENTS)
    found = rules.balanced(candidates, seed=1)
    assert found.found["is/are"] == (75, 50) and found.kept["is/are"] == len(found.pairs) == 100
    assert Counter(" is " in pair.good for pair in found.pairs) == {True: 50, False: 50}
    assert pairs.checked(found.pairs) == found.pairs and rules.balanced(candidates, seed=1) == found
    assert rules.balanced(candidates, seed=2).pairs != found.pairs
    unigram = NGrams(DOCUMENTS, orders=(1,))
    good, bad = (unigram.score([getattr(pair, side) for pair in found.pairs])[1] for side in ("good", "bad"))
    assert (good > bad + 1e-6).sum() == (good < bad - 1e-6).sum() == 50


def test_what_is_drawn_of_a_sentence_does_not_depend_on_others():
    some = {pair[2:] for pair in rules.candidates(DOCUMENTS[:1])}
    assert some < {pair[2:] for pair in rules.candidates(DOCUMENTS)}


def test_n_grams_are_right_in_half_of_the_core():
    """Trained on what stands side by side, `men are` and `man is`, they are led astray by the noun before the verb."""
    train = [
        [f"the {noun} {verb} red" for nouns, verb in ((ONE, "is"), (MANY, "are")) for noun in nouns for _ in range(3)]
    ]
    train += [["the dogs near the river are", "the river near the dogs is"]]
    ngrams = NGrams(train)
    easy = [[f"The red {noun} is here." for noun in ONE] + [f"The red {noun} are here." for noun in MANY]]
    found = rules.core(rules.candidates(DOCUMENTS + easy), ngrams)
    good, bad = (ngrams.score([getattr(pair, side) for pair in found.pairs]) for side in ("good", "bad"))
    assert 0 < found.kept["is/are"] == len(found.pairs) and sum(found.found["is/are"]) >= len(found.pairs) / 2
    for order in (2, 3):
        right = np.where(abs(good[order] - bad[order]) < 1e-4, 0.5, good[order] > bad[order])
        assert 0.5 <= right.mean() <= 0.75
    assert Counter(" is " in pair.good for pair in found.pairs)[True] == len(found.pairs) / 2


def test_n_grams_by_hand():
    """A bigram sees what a unigram does not, a trigram what a bigram does not; unknown words are equal."""
    train = [["a b c .", "d b e .", "a b c .", "d b e ."] * 5]
    found = NGrams(train).score(["a b c", "a b e", "d b e", "e b d", "x b c", "Y B C"])
    assert all(own.shape == (6,) and (own < 0).all() for own in found.values())
    assert found[1][0] == pytest.approx(found[1][2]) and found[2][2] > found[2][3] + 1
    assert found[2][0] == pytest.approx(found[2][1]) and found[3][0] > found[3][1] + 0.5
    assert found[3][4] == pytest.approx(found[3][5])
    with pytest.raises(SesameError, match="n-grams: the training text has no words"):
        NGrams([])
    chinese = NGrams([["狗咬人", "狗咬人", "人咬狗的手"]])
    unigram, bigram, _ = chinese.score(["狗咬人", "人咬狗"]).values()
    assert unigram[0] == pytest.approx(unigram[1]) and bigram[0] > bigram[1], "the same characters in another order"
    assert NGrams([["only once"]], orders=(1,)).score(["only"])[1].shape == (1,)


def test_n_grams_of_a_sentence_do_not_depend_on_the_one_before():
    """The trigram of a first word saw the last word of the sentence before it, in training and in scoring."""
    train = [["the dog barks .", "the cat sleeps ."], ["a dog sleeps !", "the cat barks ?"], ["the dog sleeps ."], ["a cat barks !"]]
    ngrams, sentence = NGrams(train), "a cat barks ."
    alone = ngrams.score([sentence])
    for before in ("the dog sleeps !", "the dog sleeps .", "barks", ""):
        beside = ngrams.score([before, sentence, before])
        assert all(own[1] == pytest.approx(alone[order][0]) for order, own in beside.items()), before
    for order, own in NGrams([*train[2::-1], train[3]]).score([sentence]).items():
        assert own == pytest.approx(alone[order])
