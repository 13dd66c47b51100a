"""Blocks of what models write."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Added, Block, Count, DrawnSeed, ModelName, RunOnly, Threads
from components.params.sources import Source

Penalty = Annotated[float, Field(ge=0.01, le=100)]


class Decoded(Block):
    """How a text is looked for."""

    max_new_tokens: Count = 64
    """No text is longer; nor than what the model reads."""


class Greedy(Decoded):
    """The most likely token each time."""

    kind: Literal["greedy"]
    repetition_penalty: Penalty = 1.0
    """Scores of tokens that occurred before are divided by it (Keskar et al. 2019, section 4.1)."""


class Sample(Decoded):
    """Tokens are sampled."""

    kind: Literal["sample"]
    temperature: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    """Scores are divided by it: below 1 likely tokens become likelier, above 1 less so; at the bounds all is greedy, or chance."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sample from this many of the most likely tokens; 0: all (Fan et al. 2018)."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the most likely tokens that together have this probability (Holtzman et al. 2020)."""
    repetition_penalty: Penalty = 1.0
    """Scores of tokens that were met before are divided by it (Keskar et al. 2019, section 4.1); 1: none."""
    seed: DrawnSeed
    """The seed of the random draws."""


class Beam(Decoded):
    """The best of several texts that are written side by side."""

    kind: Literal["beam"]
    beams: Annotated[int, Field(ge=2, le=1000)] = 4
    """Texts that are kept at each step (Vaswani et al. 2017: 4)."""
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 0.6
    """Length-penalty exponent: log-probabilities are divided by the length to this power; 0 favours short texts
    (Vaswani et al. 2017, section 6.1)."""


HowWritten = Annotated[Greedy | Sample | Beam, Field(discriminator="kind")]


class ParallelInputs(Block):
    """Sentences to be rewritten, and compared with their references."""

    kind: Literal["parallel"]
    source: Source
    """Two files of as many lines: what is read, and what should be written."""
    reverse: bool = False
    """The other way round."""
    word_by_word: bool = True
    """The baseline: each word by the one that it goes with most in the pairs that the model was trained on."""


class BeginningInputs(Block):
    """Beginnings of held-out documents, for the model to continue."""

    kind: Literal["beginnings"]
    split: Literal["valid", "test"] = "test"
    """The split of the encoding that the model was trained on."""
    tokens: Count = 16
    """The number of tokens of each document."""


class Generation(Block):
    """Texts that a model generates, with their quality and novelty."""

    model: ModelName
    """The name of an entry of `models` or `derived` that generates text."""
    inputs: Annotated[ParallelInputs | BeginningInputs, Field(discriminator="kind")]
    """The texts that are continued or rewritten."""
    most: Count = 1000
    """Inputs: the first ones of a file, or as many held-out documents, drawn with a fixed seed."""
    decoding: HowWritten = Beam(kind="beam")
    """How a text is chosen."""
    answers: Annotated[Count, Added(neutral=1)] = 1
    """Texts written for each problem of a synthetic source, drawn or the best beams: the share of problems that any of
    them solves is measured, too (`pass@k` of Chen et al. 2021)."""
    batch_size: Annotated[Count, RunOnly()] = 64
    """Texts written side by side."""
    threads: Annotated[Threads | None, RunOnly()] = 1
    """CPU threads of torch; null leaves torch's own choice."""

    @model_validator(mode="after")
    def answers_are_checked(self):
        if self.answers == 1:
            return self
        if self.inputs.kind != "parallel" or self.inputs.source.kind != "synthetic":
            raise ValueError(
                f"answers {self.answers}: only those to a synthetic source's problems can be checked; leave it out"
            )
        if self.decoding.kind == "greedy":
            raise ValueError(f"answers {self.answers}: greedy decoding has one; take decoding.kind sample or beam")
        if self.decoding.kind == "beam" and self.answers > self.decoding.beams:
            raise ValueError(f"answers {self.answers}: more than decoding.beams, {self.decoding.beams}; raise beams")
        return self
