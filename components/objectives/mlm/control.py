"""A control of next-sentence prediction: how well segment B alone predicts the answer."""

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from components.objectives.examples.masked import MaskedBatches
from components.objectives.scoring import IGNORED

MAX_EXAMPLES = 20_000
"""Of training and of validation: the standard error of an accuracy near 0.5 is then 0.0035."""


def accuracy_from_b_alone(train: MaskedBatches, valid: MaskedBatches) -> float | None:
    """Return the accuracy on `valid` of a logistic regression on a bag of tokens of B, trained on `train`; chance is 0.5.

    Anything above chance can be learned without reading A. Return None if no example has an answer.
    """
    (x, answers), (valid_x, valid_answers) = bag_of_tokens(train), bag_of_tokens(valid)
    if not len(valid_answers) or len(set(answers.tolist())) < 2:
        return None
    return float(LogisticRegression(max_iter=1000).fit(x, answers).score(valid_x, valid_answers))


def bag_of_tokens(batches: MaskedBatches) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Return whether each token is in B, (examples, vocab_size), and the answers, (examples,)."""
    batches.restart()  # independent of the batches that were read before
    examples = batches.examples[batches.examples[:, 4] != IGNORED][:MAX_EXAMPLES]
    tokens = [np.unique(batches.shard.tokens[start:end]) for start, end in examples[:, 2:4]]
    rows = np.repeat(np.arange(len(examples)), [len(ids) for ids in tokens])
    columns = np.concatenate(tokens) if tokens else np.array([], dtype=int)
    shape = (len(examples), batches.ordinary[-1] + 1)
    return sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape), examples[:, 4]
