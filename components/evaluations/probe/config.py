"""Settings of probes."""

from typing import Literal

from components.core.config import DrawnSeed
from components.evaluations.config import TreebankEvaluation


class Probe(TreebankEvaluation):
    """What can be predicted from the vectors of single words, layer by layer, without training the model: with a linear
    classifier on each layer, its control task and description length; or with the structural probe of trees. A
    tenth of `train` selects the layer whose score is reported."""

    kind: Literal["probe"]
    label: Literal["part_of_speech", "relation", "depth", "tree"]
    """The part of speech of a word; the relation of a word to its head; the depth of a word in the tree, with one class for
    6 and more; `tree`: the edges of the tree, as distances in a space of few dimensions
    (Hewitt and Manning 2019)."""
    seed: DrawnSeed
    """Draws the labels of the control task."""


Evaluation = Probe
