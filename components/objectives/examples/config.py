"""Settings of objectives that mask tokens."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Added, Share
from components.objectives.config import ObjectiveBlock


class MaskedTokens(ObjectiveBlock):
    """Which tokens are targets, and what they become."""

    mlm_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the ordinary tokens that are targets (BERT: 0.15)."""
    mask_share: Share = 0.8
    """Share of the targets that become [MASK] (BERT: 0.8)."""
    random_share: Share = 0.1
    """Share of the targets that become a random token (BERT: 0.1); the rest stays as it is."""

    @model_validator(mode="after")
    def shares_fit(self):
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share + random_share is more than 1; lower one of them")
        return self


class MaskedInputs(MaskedTokens):
    """The content of a sequence, and which of its tokens are targets."""

    trains = ("both_sides",)

    inputs: Annotated[
        Literal["segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"] | None, Added(neutral=None)
    ] = None  # fmt: skip
    """RoBERTa's input formats (Liu et al. 2019, section 4.2): two segments of a document up to max_length, or two sentences;
    sentences up to max_length, across the ends of documents or not. null: pairs of segments if the objective has a question
    about them, else windows of a document."""
    pairs: bool | None = None
    """Whether examples are pairs of segments, half of them with a random B; null: if a question needs them. Pairs without the
    question separate the effect of the loss from that of the input format (Liu et al. 2019, section 4.2)."""
    whole_word: bool = False
    """Whole-word masking: all tokens of a word are targets, or none (Devlin's release of 2019-05-31)."""
    span_probability: Annotated[float, Field(gt=0, le=1), Added(neutral=None)] | None = None
    """Targets are spans of whole words with geometric lengths of this probability (SpanBERT, Joshi et al. 2020, section 3.1:
    0.2). A span is masked, replaced or left unchanged as one."""
    longest_span: Annotated[Annotated[int, Field(ge=1, le=1000)], Added(neutral=10)] = 10
    """Longest span in words; longer ones are drawn again."""
    static: bool = False
    """The same examples and masks in every epoch, as in BERT; RoBERTa draws them again (Liu et al. 2019, section 4.1)."""

    @property
    def question(self) -> Literal["nsp", "sop"] | None:
        """The question about a pair: whether B follows A, or in which order they are."""
        return None

    @property
    def paired(self) -> bool:
        """Whether examples are pairs of segments."""
        if self.inputs:
            return self.inputs.endswith("pairs")
        return bool(self.question) if self.pairs is None else self.pairs

    @model_validator(mode="after")
    def inputs_fit(self):
        if self.inputs and self.pairs is not None and self.pairs != self.paired:
            raise ValueError(f"inputs: {self.inputs} and pairs: {str(self.pairs).lower()} contradict each other; leave pairs out")
        if self.question and not self.paired:
            name = {"nsp": "next_sentence", "sop": "sentence_order"}[self.question]
            setting = f"inputs: {self.inputs}" if self.inputs else "pairs: false"
            raise ValueError(f"{name} needs pairs: leave out `{setting}`, or set `{name}: false`")
        return self

    @model_validator(mode="after")
    def one_kind_of_target(self):
        if self.whole_word and self.span_probability:
            raise ValueError("whole_word has no effect with span_probability, which masks whole words; leave one of them out")
        if not self.span_probability:
            self.refuse_idle(["longest_span"], "span_probability is not set")
        return self
