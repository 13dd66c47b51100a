"""Settings of ReplacedTokens."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import Added, Positive, Share
from components.objectives.examples.config import MaskedInputs


class ReplacedTokens(MaskedInputs):
    """A small masked LM replaces masked tokens, and the model detects which tokens are replaced (ELECTRA, Clark et al. 2020)."""

    reads_layers = True
    shares_weights = True
    samples_title = "tokens taken for replaced"

    name: Literal["electra"]
    mask_share: Share = 0.85
    """Share of the targets that become [MASK] (paper's code: 0.85); the others stay unchanged."""
    random_share: Share = 0.0
    """Share of the targets that become a random token before the generator reads them (paper's code: 0)."""
    generator_size: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Width, heads and inner width of the generator, as shares of the model's; 1 if a family's embeddings are as wide as its layers."""
    generator_layers: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Layers of the generator, as a share of the model's. DeBERTa's third version: half, of full width (He et al. 2023, section 3.1)."""
    embeddings: Annotated[Literal["shared", "apart", "disentangled"], Added(neutral="shared")] = "shared"
    """The token embeddings of generator and model: one matrix, two, or DeBERTa 3's (He et al. 2023, section 3.3), where the
    model's is the generator's without gradient plus a trained difference. Weight decay is on their sum."""
    detector_weight: Positive = 50.0
    """The weight of the loss over replaced tokens; that of the generator has weight 1 (Clark et al. 2020: 50)."""
    learns: Literal["replaced", "replaced_of_targets", "targets", "tokens"] = "replaced"
    """The paper's ablation (section 3.4): detect replaced tokens, among all tokens or only the targets (ELECTRA 15 %); or predict
    the original tokens, at the targets (Replace MLM) or everywhere (All-Tokens MLM, without its copy mechanism)."""

    @model_validator(mode="after")
    def weight_is_of_a_detector(self):
        if not self.learns.startswith("replaced"):
            self.refuse_idle(["detector_weight"], f"learns: {self.learns} detects nothing")
        return self

    def check_prompt(self, prompt: str) -> None:
        raise ValueError(f"prompts: objective {self.name} predicts with a head that is not kept after training; leave prompts out")


Objective = ReplacedTokens
