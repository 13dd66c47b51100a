"""A classifier on each of several layers, so that easy examples need fewer layers (Schwartz et al. 2020); all weights are trained."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from lightning import Fabric
from torch import Tensor, nn

from components import params
from components.core.errors import SesameError
from components.finetune.data import Batch, Encoded, Texts, stacked
from components.finetune.kinds import Classification, Kind
from components.models.common.heads import MeanHead
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class EarlyExitKind(Classification):
    """Outputs are (batch, exits, labels). All classifiers are trained together; the last one predicts."""

    outputs_are_labels = False

    def __init__(self, task: params.Task, recipe: params.Recipe, name: str):
        super().__init__(task, recipe)

    def loss(self, output: Tensor, data: Encoded, batch: Batch) -> Tensor:
        """The sum over the exits (section 3.1)."""
        targets = [data.targets[i] for i in batch.index]
        return sum(self.label_loss(targets, logits) for logits in output.unbind(1))

    def predict(self, output: Tensor, data: Encoded, batch: Batch) -> list[str]:
        return super().predict(output[:, -1], data, batch)


class ExitTaken(Exception):  # noqa: N818 - not an error: stops a forward pass between two layers
    """A classifier is confident enough."""

    def __init__(self, exit: int, logits: Tensor):
        self.exit, self.logits = exit, logits


class EarlyExit(nn.Module):
    """A linear layer on the mean over the tokens of each chosen layer, and of the last."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model = model
        chosen = recipe.exits or range(1, model.num_layers)
        if max(chosen, default=0) > model.num_layers or len(model.stacked()) != model.num_layers:
            raise SesameError(
                f"method early_exit: {type(model).__name__} cannot exit after layers {list(chosen)} of its {model.num_layers}"
            )
        self.layers = [layer for layer in chosen if layer < model.num_layers] + [model.num_layers]
        apart = pair and not kind.joined
        self.head = nn.ModuleList(
            MeanHead(nn.Flatten(2), model.width, kind.outputs, recipe.dropout, apart, per_token=False) for _ in self.layers
        )

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One or two texts (ids (batch, length), lengths (batch,)) -> (batch, exits, labels)."""
        ids, lengths, segments = self._stack(texts, segments)
        states = self.model.layers(ids, lengths, segments)
        heads = zip(self.head, self.layers, strict=True)
        return torch.stack([head(states[layer][:, :, None], lengths, len(texts)) for head, layer in heads], 1)

    def predict_until(self, confident: Callable[[int, Tensor], bool], texts: Texts, segments: Tensor) -> tuple[int, Tensor]:
        """Run layer by layer until `confident(exit, logits (batch, labels))`, or to the end. Returns the exit and its logits; layers
        above it are not computed."""
        ids, lengths, segments = self._stack(texts, segments)
        blocks = self.model.stacked()

        def classify(exit: int, state: Tensor) -> None:
            logits = self.head[exit](state[:, :, None], lengths, len(texts))
            if confident(exit, logits):
                raise ExitTaken(exit, logits)

        with ExitStack() as hooks:
            for exit, layer in enumerate(self.layers[:-1]):
                handle = blocks[layer - 1].register_forward_hook(lambda _, __, state, exit=exit: classify(exit, state))
                hooks.callback(handle.remove)
            try:
                last = self.model.top(ids, lengths, segments)
            except ExitTaken as taken:
                return taken.exit, taken.logits
        return len(self.layers) - 1, self.head[-1](last[:, :, None], lengths, len(texts))

    def _stack(self, texts: Texts, segments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ids, lengths = stacked(texts)
        return ids, lengths, segments if len(texts) == 1 else torch.zeros_like(ids)


Method, TaskKind = EarlyExit, EarlyExitKind
