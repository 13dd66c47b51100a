"""Settings of probes."""

from typing import Literal

from components.core.config import DrawnSeed
from components.evaluations.config import TreebankEvaluation


class Probe(TreebankEvaluation):
    """What can be read from the vectors of single words, layer by layer, without changing the model: by a linear
    classifier on each layer, with a control task and the description length; or by the structural probe of trees. A
    tenth of `train` chooses the layer whose score is shown."""

    kind: Literal["probe"]
    label: Literal["part_of_speech", "relation", "depth", "tree"]
    """Of a word its part of speech; of a word and its head their relation; of a word its distance from the root, of
    which 6 and more are one class; `tree`: which words depend on each other, by distances in a space of few dimensions
    (Hewitt and Manning 2019)."""
    seed: DrawnSeed
    """Draws the labels of the control task."""


Evaluation = Probe
