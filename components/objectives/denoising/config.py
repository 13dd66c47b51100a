"""Settings of Denoising: T5's table of objectives (Raffel et al. 2020, section 3.3), and BART's (Lewis et al. 2020, section 2.2)."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from components.core.config import Block, Share
from components.objectives.config import ObjectiveBlock

Rate = Annotated[float, Field(gt=0, lt=1)]


class Sizes(NamedTuple):
    """Tokens of a sequence, hidden tokens in it, and the number of hidden spans."""

    text: int
    hidden: int
    spans: int


class Spans(Block):
    """Masked spans: each becomes a sentinel in the source, and the target is the sentinels with the tokens of their
    spans."""

    kind: Literal["spans"]
    rate: Rate = 0.15
    """Share of the tokens that are hidden (T5: 0.15)."""
    mean_length: Annotated[float, Field(ge=1)] | None = 3.0
    """The mean length of a span, in tokens: the masked tokens are divided into spans at random ("random spans"). null:
    single tokens, and adjacent ones are one span ("replace corrupted spans")."""

    def sizes(self, max_length: int) -> Sizes:
        """Return the sizes of the longest text whose source and target, each with an end token, fit into max_length."""
        sizes = self.of(2)
        while max((larger := self.of(sizes.text + 1)).text - larger.hidden + larger.spans, larger.hidden + larger.spans) < max_length:
            sizes = larger
        return sizes

    def of(self, text: int) -> Sizes:
        """Return the sizes for a text of this length; for single tokens, spans are the most possible.

        Spans of a mean length begin after a visible token, single tokens anywhere.
        """
        hidden = min(max(round(self.rate * text), 1), text - 1)
        if self.mean_length is None:
            return Sizes(text, hidden, min(hidden, text - hidden + 1))
        return Sizes(text, hidden, min(max(round(hidden / self.mean_length), 1), text - hidden))


class Dropped(Block):
    """Tokens that are left out; they are the target ("drop corrupted tokens")."""

    kind: Literal["dropped"]
    rate: Rate = 0.15
    """Share of the tokens that are left out."""


class Prefix(Block):
    """The rest of a text from its beginning ("prefix language modelling"), cut at a random position, all equally likely."""

    kind: Literal["prefix"]


class Whole(Block):
    """The complete text, from one that is corrupted in these ways, one after the other."""

    kind: Literal["whole"]
    permute_sentences: bool = False
    """Segments in another order."""
    rotate: Share = 0.0
    """The share of the texts that are rotated: they begin at a drawn token, and the tokens before it come last."""
    infilled: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the tokens in spans that become one `[MASK]` each, with Poisson lengths of mean `mean_length`; a span of length 0
    inserts a `[MASK]`. At most half, since spans are not adjacent."""
    mean_length: Annotated[float, Field(ge=1, le=1e6)] = 3.0
    """Mean length of a span, in tokens, empty ones included. At least 1: of shorter ones most would be empty, and a text would
    grow by its noise."""
    deleted: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the tokens that are left out."""
    masked: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the tokens that are hidden, independently of each other."""
    random_share: Share = 0.1
    """The share of those that become another token; the others become `[MASK]` (0.1 "BERT-style", 0 "MASS-style" in
    T5's table)."""
    shuffled: bool = False
    """All tokens in a random order ("deshuffling")."""

    @model_validator(mode="after")
    def has_noise(self):
        if not (self.permute_sentences or self.rotate or self.infilled or self.deleted or self.masked or self.shuffled):
            raise ValueError("noise whole changes nothing: set permute_sentences, rotate, infilled, deleted, masked or shuffled")
        if not self.infilled:
            self.refuse_idle(["mean_length"], "infilled is 0, and no span is hidden")
        if not self.masked:
            self.refuse_idle(["random_share"], "masked is 0, and no single token is hidden")
        return self


class Denoising(ObjectiveBlock):
    """A text, or its hidden tokens, from the corrupted text. The default is T5's spans; BART's objective is
    `noise: {kind: whole, infilled: 0.3, permute_sentences: true}`."""

    trains = ("source_then_target",)
    samples_title = "what is written for each [MASK], or after a beginning"

    name: Literal["denoising"]
    noise: Annotated[Spans | Dropped | Prefix | Whole, Field(discriminator="kind")] = Spans(kind="spans")
    """The noise that the model has to remove from a text."""

    def sentinels(self, max_length: int) -> int:
        return self.noise.sizes(max_length).spans if self.noise.kind == "spans" else 0


Objective = Denoising
