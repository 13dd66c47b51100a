"""Settings of attention."""

from typing import Literal

from components.evaluations.config import TreebankEvaluation


class Attention(TreebankEvaluation):
    """Whether single heads of attention find the word that another one depends on (Clark et al. 2019, section 4). For
    each relation the head that is right most often on `train` is judged on `test`. Nothing is trained. For models that
    attend from token to token: no recurrent ones, no CANINE."""

    kind: Literal["attention"]


Evaluation = Attention
