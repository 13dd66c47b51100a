"""Settings of attention."""

from typing import Literal

from components.evaluations.config import TreebankEvaluation


class Attention(TreebankEvaluation):
    """Whether single attention heads find the syntactic head of a word (Clark et al. 2019, section 4). For each relation the
    attention head that is right most often on `train` is evaluated on `test`. Nothing is trained. For models that
    attend from token to token: not for recurrent ones or CANINE."""

    kind: Literal["attention"]


Evaluation = Attention
