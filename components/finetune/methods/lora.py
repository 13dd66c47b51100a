"""Low-rank updates of a frozen model."""

from torch import nn

from components import params
from components.core.errors import SesameError
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class LoRA(Full):
    """Low-rank updates of the attention's query, key and value (Hu et al. 2022), with `peft`."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        from peft import LoraConfig, inject_adapter_in_model  # takes seconds to import

        if not model.low_rank:
            raise SesameError(f"method lora needs a Transformer, which {type(model).__name__} is not; use another method")
        config = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=recipe.dropout, target_modules=list(model.low_rank))
        super().__init__(inject_adapter_in_model(config, model), tokens, recipe, kind, pair)
        self.freeze()
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.requires_grad_(True)


def merge(module: nn.Module) -> None:
    """Add the updates to their weights: the answers stay, and cost what they cost without them (Hu et al. 2022, section 4.1)."""
    from peft.tuners.lora import LoraLayer

    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoraLayer):
                layer.merge()
                setattr(parent, name, layer.get_base_layer())


Method = LoRA
