"""Settings of multiple choice."""

from typing import Literal

from components.evaluations.config import EvaluationBlock, Files


class Choices(EvaluationBlock):
    """A text with a gap and several ways to fill it, of which one is right. The model's answer is the most probable one: by
    the log-probability of the text from the gap on, or of the filled words only where a model sees both sides (Talmor et
    al. 2020). So any model can be evaluated on Ettinger's (2020) diagnostics for BERT."""

    kind: Literal["choices"]
    source: Files
    """The files."""
    reader: Literal["jsonl", "olmpics", "cprag", "role", "negation"] = "jsonl"
    """The format of the files. `jsonl`: objects with `text` (which has one `[MASK]`), `choices`, `answer` (an index from
    0) and optionally `group`; `olmpics`: oLMpics (Talmor et al. 2020); the others are tables of Ettinger 2020: `cprag`
    CPRAG-102 (common sense), `role` ROLE-88 (who did it to whom), `negation` NEG-136."""


Evaluation = Choices
