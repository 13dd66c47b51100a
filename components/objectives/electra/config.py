"""Settings of ReplacedTokens."""

from typing import Annotated, Literal

from pydantic import Field

from components.core.config import Added, Positive, Share
from components.objectives.examples.config import MaskedInputs


class ReplacedTokens(MaskedInputs):
    """A small masked LM fills hidden places, and the model tells which tokens are not the text's (ELECTRA, Clark et al. 2020)."""

    shares_weights = True
    samples_title = "tokens taken for replaced"

    name: Literal["electra"]
    mask_share: Share = 0.85
    """As in the paper's code: the other targets stay as they are."""
    random_share: Share = 0.0
    """Share of the targets that become a random token before the generator reads them (paper's code: 0)."""
    generator_size: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Width, heads and inner width of the generator, as shares of the model's; 1 where a family's embeddings are as wide as its layers."""
    generator_layers: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Its layers, as a share of the model's. DeBERTa's third version has half of them, of full width (He et al. 2023, section 3.1)."""
    embeddings: Annotated[Literal["shared", "apart", "disentangled"], Added(neutral="shared")] = "shared"
    """The token embeddings of generator and model: one matrix, two, or DeBERTa 3's (He et al. 2023, section 3.3), where
    the model's is the generator's, through which nothing flows back, and what it has learned itself. Weight decay is on
    their sum."""
    detector_weight: Positive = 50.0
    """The weight of the loss over replaced tokens; that of the generator has weight 1 (Clark et al. 2020: 50)."""
    learns: Literal["replaced", "replaced_of_targets", "targets", "tokens"] = "replaced"
    """The paper's ablation (section 3.4): which tokens are replaced, over all tokens or over the targets alone (ELECTRA 15 %); which tokens
    stood there, over the targets (Replace MLM) or over all (All-Tokens MLM, without its copy mechanism)."""

    def check_prompt(self, prompt: str) -> None:
        raise ValueError(
            f"prompts: objective {self.name} predicts with a head that is not kept after training; leave prompts out"
        )


Objective = ReplacedTokens
