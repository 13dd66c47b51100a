"""Trains biases and the head."""

from components import params
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class BitFit(Full):
    """Trains biases and the head (Ben Zaken et al. 2022)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        self.freeze()
        for name, parameter in model.named_parameters():
            if "bias" in name.rsplit(".", 1)[-1]:
                parameter.requires_grad_(True)


Method = BitFit
