"""Loss and right answers of a set of targets."""

from torch import Tensor
from torch.nn.functional import cross_entropy


def score(logits: Tensor, labels: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """logits (n, classes), labels (n,) -> the sum of the losses in nats, and the number of right answers.

    While training the second is 0: an argmax over the vocabulary costs a seventh of a small model's step.
    """
    loss = cross_entropy(logits.float(), labels, reduction="sum")
    return loss, labels.new_zeros(()) if training else (logits.argmax(1) == labels).sum()
