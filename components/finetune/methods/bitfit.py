"""Trains biases and the head."""

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class BitFit(Full):
    """Trains biases and the head (Ben Zaken et al. 2022)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        if not any(is_bias(name) for layer in model.stacked() for name, _ in layer.named_parameters()):
            raise SesameError("method bitfit tunes biases, and the layers of this model have none; use another method")
        self.freeze()
        for name, parameter in model.named_parameters():
            if is_bias(name):
                parameter.requires_grad_(True)


def is_bias(parameter: str) -> bool:
    return "bias" in parameter.rsplit(".", 1)[-1]


Method = BitFit
