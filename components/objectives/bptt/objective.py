"""Language modelling by truncated back-propagation through time (Merity et al. 2018; step one and two of Howard and Ruder 2018)."""

import torch
from torch import Tensor

from components.models.contract import LanguageModel
from components.objectives.bptt import config
from components.objectives.contract import Losses
from components.objectives.contract import Objective as Contract
from components.objectives.examples.lanes import LaneBatches, validation_lanes
from components.objectives.examples.stream import explained, labels, of_streams
from components.objectives.examples.windows import Rows, Window
from components.objectives.scoring import score_tokens
from components.objectives.writing import NEW_TOKENS, written
from components.text.encode import Split
from components.text.tokenizer import CLS, SEP, Tokenizer


class RecurrentLM(Contract):
    """Predicts each token from what the state keeps of all before it."""

    main = "bptt"
    chain_rule = True

    def __init__(self, config: config.RecurrentLM, tokens: Tokenizer):
        self.config, self.tokenizer = config, tokens

    def batches(self, text: Split, batch_size: int, max_length: int, seed: int) -> "OneDirection":
        return OneDirection(self.config, self.tokenizer, text, batch_size, seed)

    def validation(self, text: Split, batch_size: int, max_length: int) -> "OneDirection":
        return self.batches(text, validation_lanes(text), max_length, seed=0)

    def losses(self, model: LanguageModel, rows: Rows, carry: Tensor | None) -> tuple[Losses, Tensor]:
        hidden, states = model(rows["ids"][:, :-1], unpack(carry, model) if carry is not None else None)
        loss = score_tokens(model, hidden.flatten(0, 1), labels(rows["ids"], self.config.backward))
        return {"bptt": loss}, torch.cat([part.detach() for state in states for part in state], 1)

    def asked(self, rows: Rows) -> tuple[Tensor, None]:
        return labels(rows["ids"], self.config.backward), None

    def explain(self, batches: "OneDirection", step: int) -> list[dict[str, str]]:
        """Also what is read backwards stands as people read it."""
        rows, backward = batches[step].rows["ids"], self.config.backward
        return explained(rows.flip(1) if backward else rows, batches.documents(step, backward), self.tokenizer)

    def samples(self, model: LanguageModel, text: Split, prompts: list[str]) -> list[dict[str, str]]:
        """A continuation of each prompt, or what stands before it, drawn."""
        generator, shown = torch.Generator().manual_seed(0), []
        # what is read backwards opens with its last [SEP]; before a sentence stands the end of another one, or the document's [CLS]
        opening, ends, turn = (SEP, [SEP, CLS], -1) if self.config.backward else (CLS, [SEP], 1)
        for prompt, ids in zip(prompts, self.tokenizer.encode(prompts), strict=True):
            begun = [opening, *ids[::turn]]
            made = written(
                lambda text, begun=begun: model.logits(model(torch.tensor([begun + text]))[0][0, -1]), ends, NEW_TOKENS, generator
            )
            shown.append({"prompt": prompt, "output": self.tokenizer.decode(made[::turn])})
        return shown


class OneDirection(LaneBatches):
    """Row i of every step goes on where row i of the step before has ended."""

    def __init__(self, config: config.RecurrentLM, tokens: Tokenizer, text: Split, batch_size: int, seed: int):
        super().__init__(tokens, text, batch_size, config.window, seed)
        self.backward = config.backward

    def draw(self, first: int, last: int) -> Window:
        ids = self.back(first, last) if self.backward else self.ahead(first, last)
        return of_streams(first, self.batch_size, "bptt", {"ids": ids}, self.byte_lengths, backward=["ids"] if self.backward else ())


def unpack(carry: Tensor, model: LanguageModel) -> list[tuple[Tensor, ...]]:
    """The layers' states out of one tensor (batch, sum of their widths)."""
    parts = 2 if model.config.cell == "lstm" else 1
    split = carry.split([cell.hidden_size for cell in model.cells for _ in range(parts)], 1)
    return [tuple(split[i : i + parts]) for i in range(0, len(split), parts)]


Objective = RecurrentLM
