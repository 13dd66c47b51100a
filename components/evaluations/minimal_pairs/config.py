"""Settings of minimal pairs."""

from typing import Literal

from components.core.config import DrawnSeed
from components.evaluations.config import EvaluationBlock


class MinimalPairs(EvaluationBlock):
    """Pairs of sentences that differ in one word, of which one is wrong: the right one should be the likelier (Marvin and Linzen 2018;
    Warstadt et al. 2020). They are made of the corpus' held-out sentences, so that their words are known to the models."""

    kind: Literal["minimal_pairs"]
    core: bool = False
    """Pairs that n-grams of words get right in one half only: in half of them the words beside point the wrong way, in the other half the
    right one. What is right beyond one half is not knowledge of neighbours."""
    seed: DrawnSeed
    """Draws which pairs are kept, as many with the one word as with the other."""


Evaluation = MinimalPairs
