"""Whether the question of next-sentence prediction can be answered without its first segment."""

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from components.objectives.examples.masked import MaskedBatches
from components.objectives.scoring import IGNORED

EXAMPLES = 20_000
"""The most that the classifier is trained on, and judged on: an accuracy that near to a half has then a standard error of .0035."""


def from_b_alone(train: MaskedBatches, valid: MaskedBatches) -> float | None:
    """Accuracy on `valid` of a bag of pieces over segment B alone, logistic regression trained on `train`; chance is a half.

    What it has above that, next-sentence prediction can be learnt without reading A. None where there is nothing to ask.
    """
    (x, answers), (valid_x, valid_answers) = bags(train), bags(valid)
    if not len(valid_answers) or len(set(answers.tolist())) < 2:
        return None
    return float(LogisticRegression(max_iter=1000).fit(x, answers).score(valid_x, valid_answers))


def bags(batches: MaskedBatches) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Whether each piece stands in B, (examples, pieces), and whether B is random, (examples,)."""
    batches.restart()  # whatever was drawn last, and by whom
    asked = batches.examples[batches.examples[:, 4] != IGNORED][:EXAMPLES]
    pieces = [np.unique(batches.shard.tokens[start:end]) for start, end in asked[:, 2:4]]
    rows = np.repeat(np.arange(len(asked)), [len(own) for own in pieces])
    columns = np.concatenate(pieces) if pieces else np.array([], dtype=int)
    shape = (len(asked), batches.ordinary[-1] + 1)
    return sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape), asked[:, 4]
