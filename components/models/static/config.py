"""Settings of word vectors as a model."""

from typing import ClassVar, Literal

from components.core.config import Positive, Size
from components.models.common.config import ArchitectureBlock


class StaticArchitecture(ArchitectureBlock):
    """Word vectors, the same in every context (word2vec, Mikolov et al. 2013; GloVe, Pennington et al. 2014). `word_models` makes it."""

    reads = "no_context"
    has_separate_layers = False
    has_sublayers = False
    biases: ClassVar[bool] = False

    name: Literal["static"]
    num_layers: Literal[0] = 0
    """There are none above the vectors."""
    vector_size: Size
    """Numbers of a vector."""
    vector_std: Positive = 1.0
    """The standard deviation of random vectors: the root mean square of the vectors that the model was made of, so that its random twin
    has their scale."""
    max_length: Size = 512
    """Longest input, in words."""


Architecture = StaticArchitecture
