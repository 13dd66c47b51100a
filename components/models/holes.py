"""Models that predict a token from those on both sides of it: masked ones, and XLNet, which reads in any order."""

from torch import Tensor

from components.models.contract import LanguageModel

HEADS = {"both_sides": "head_transform", "any_order": "head_bias"}
"""How such models read -> the module without which their head is not trained."""


def predicts(model: LanguageModel) -> bool:
    """Whether a model has a trained head for tokens that it does not see."""
    return model.reads in HEADS and HEADS[model.reads] not in model.absent


def states(model: LanguageModel, ids: Tensor, lengths: Tensor, positions: Tensor, mask: int) -> Tensor:
    """The states from which `model.logits` predicts some hidden tokens: ids (batch, length), in which `mask` stands for each hidden token;
    positions (batch, targets) of some of them -> (batch, targets, width)."""
    return model.at_holes(ids, lengths, positions, ids == mask)
