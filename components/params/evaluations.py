"""The sections `evaluations` and `evaluate`: what models are asked without being tuned, and which are asked."""

from typing import Annotated

from pydantic import Field

from components.core.config import Block, EvaluationName, ModelName, Once, Seed, union_of

EVALUATIONS = ("minimal_pairs", "bits_per_byte", "probe", "attention", "choices", "regions", "sentence_probe")
"""Folders of `components/evaluations`."""
Evaluation = union_of("components.evaluations", EVALUATIONS, "Evaluation", tag="kind")


class Evaluate(Block):
    """Every model by every evaluation, from its weights and from random ones."""

    models: Annotated[list[ModelName], Once]
    """Of `models`, `checkpoints`, `derived`."""
    evaluations: Annotated[list[EvaluationName], Once]
    """Of `evaluations`."""
    twins: Annotated[list[Seed], Field(min_length=2), Once] = [1, 2, 3]
    """Seeds of random weights of the same architecture: what a model scores that has read nothing. Two at least, to know
    how much they differ."""
