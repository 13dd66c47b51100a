"""Settings of multiple choice."""

from typing import Literal

from components.evaluations.config import EvaluationBlock, Files


class Choices(EvaluationBlock):
    """A text with a gap and several ways to fill it, of which one is right. The answer of a model is the likeliest one: by
    the log-probability of the text from the gap on, or by the filled words alone where a model sees both sides (Talmor et
    al. 2020). So what BERT is not can be asked of any model (Ettinger 2020)."""

    kind: Literal["choices"]
    source: Files
    """The files."""
    reader: Literal["jsonl", "olmpics", "cprag", "role", "negation"] = "jsonl"
    """How the files are read. `jsonl`: objects with `text` (which has one `[MASK]`), `choices`, `answer` (its number from
    0) and, if wanted, `group`; `olmpics`: oLMpics (Talmor et al. 2020); the others are tables of Ettinger 2020: `cprag`
    CPRAG-102 (common sense), `role` ROLE-88 (who did it to whom), `negation` NEG-136."""


Evaluation = Choices
