"""Ways to adapt a pre-trained model: which weights learn, and what is put on top.

A method is a module built from a model; its parameters that require gradients are trained. `joined` says whether a pair
is one input of two segments or two inputs; `inputs` turns encoded texts into what its `forward` wants, once.
"""

import re
from dataclasses import replace

import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import pad

from components import params
from components.errors import SesameError
from components.finetune.data import Encoded, batches
from components.finetune.kinds import Kind
from components.flops import counted
from components.models.blocks import Adapter
from components.models.heads import BiLSTMAttentionHead, MeanHead, PooledHead, ScalarMix
from components.tokenizer import Tokenizer

Texts = list[tuple[Tensor, Tensor]]
FEATURE_BATCH_SIZE = 256


class Full(nn.Module):
    """All weights are tuned; a linear layer on the pooled output, or on every token (Devlin et al. 2019), or the recipe's other head."""

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model, self.recipe, self.per_token, self.joined = model, recipe, kind.per_token, True
        if recipe.head == "bilstm":
            self.head = BiLSTMAttentionHead(nn.Flatten(2), model.width, recipe.hidden_size, kind.outputs, recipe.dropout, False, kind.per_token)
        else:
            self.head = PooledHead(model.width, kind.outputs, recipe.dropout)

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        return data

    def freeze(self) -> None:
        """All of the model but the parts that no pre-training has touched, as a pooler without next-sentence prediction."""
        self.model.requires_grad_(False)
        for part in self.model.absent:
            getattr(self.model, part).requires_grad_(True)

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One text (ids (batch, length), lengths (batch,)) -> (batch, outputs), or (batch, length, outputs)."""
        [(ids, lengths)] = texts
        hidden = self.model.top(ids, lengths, segments)
        if self.recipe.head == "bilstm":
            return self.head(hidden[:, :, None], lengths, 1)
        return self.head(hidden if self.per_token else self.model.pool(hidden, lengths))


class BitFit(Full):
    """Biases and the head alone (Ben Zaken et al. 2022)."""

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        self.freeze()
        for name, parameter in model.named_parameters():
            if "bias" in name.rsplit(".", 1)[-1]:
                parameter.requires_grad_(True)


class Adapters(Full):
    """Bottlenecks after attention and feed-forward, the layer norms and the head (Houlsby et al. 2019)."""

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        self.freeze()
        for block in blocks(model, "adapters"):
            block.attention.output = nn.Sequential(block.attention.output, Adapter(model.width, recipe.bottleneck))
            block.feed_forward.append(Adapter(model.width, recipe.bottleneck))
        for part in model.modules():
            if isinstance(part, nn.LayerNorm | nn.RMSNorm | Adapter):
                part.requires_grad_(True)


class LoRA(Full):
    """Low-rank updates of the attention's query, key and value (Hu et al. 2022), through `peft`."""

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        from peft import LoraConfig, inject_adapter_in_model  # takes seconds to import

        blocks(model, "lora")
        config = LoraConfig(r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=recipe.dropout, target_modules=["query_key_value"])
        super().__init__(inject_adapter_in_model(config, model), tokens, recipe, kind, pair)
        self.freeze()
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.requires_grad_(True)


class Prompt(Full):
    """Vectors put before the text, and the head; the model is frozen (Lester et al. 2021)."""

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        if recipe.max_length + recipe.prompt_length > model.max_length:
            raise SesameError(
                f"max_length {recipe.max_length} + prompt_length {recipe.prompt_length} is more than the {model.max_length} tokens that the model reads"
            )
        self.at, self.length, self.first = len(tokens.prefix), recipe.prompt_length, tokens.vocab_size
        self.freeze()
        name = "token_embedding" if hasattr(model, "token_embedding") else "token_vectors"
        setattr(model, name, PromptedEmbedding(getattr(model, name), tokens.vocab_size, recipe.prompt_length))

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """Ids that are past the vocabulary stand for the vectors."""
        prompt = torch.arange(self.first, self.first + self.length)
        texts = [[torch.cat([ids[: self.at], prompt, ids[self.at :]]) for ids in rows] for rows in data.texts]
        segments = [[pad(row, (self.length, 0)) for row in rows] for rows in data.segments]
        return replace(data, texts=texts, segments=segments)

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        output = super().forward(texts, segments)
        return torch.cat([output[:, : self.at], output[:, self.at + self.length :]], 1) if self.per_token else output


class PromptedEmbedding(nn.Module):
    """A frozen embedding with learned vectors for the ids past its vocabulary, at first those of drawn tokens."""

    def __init__(self, embedding: nn.Module, vocab_size: int, length: int):
        super().__init__()
        self.embedding, self.vocab_size = embedding, vocab_size
        with torch.no_grad():
            self.prompt = nn.Parameter(embedding(torch.randint(vocab_size, (1, length)))[0].clone())

    def forward(self, ids: Tensor) -> Tensor:
        learned = ids >= self.vocab_size
        vectors = self.embedding(ids.masked_fill(learned, 0))
        return torch.where(learned[..., None], self.prompt[(ids - self.vocab_size).clamp(min=0)].to(vectors.dtype), vectors)


class Frozen(nn.Module):
    """Weights frozen; the layers' outputs are computed once and kept in bf16: 2 * layers * width bytes a token.

    A model that was not trained on pairs reads the two texts one by one, and the head compares them.
    """

    def __init__(self, model: nn.Module, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__()
        self.model, self.per_token = model.requires_grad_(False), kind.per_token
        self.joined = model.pairs or not kind.apart
        self.head = self.build(model, recipe, kind, pair and not self.joined)

    def build(self, model: nn.Module, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        """The head: (batch, length, layers, width) of each text, and lengths, -> (batch, outputs) or (batch, length, outputs)."""
        raise NotImplementedError

    def kept(self, layers: Tensor) -> Tensor:
        """The layers that the head reads."""
        return layers

    @torch.no_grad()
    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        self.model.eval()  # frozen features have no dropout
        found: list[list[Tensor]] = [[] for _ in range(len(data))]
        flops = 0
        for batch in batches(data, FEATURE_BATCH_SIZE, None):
            for ids, lengths in batch.texts:
                segments = batch.segments if len(batch.texts) == 1 else torch.zeros_like(ids)
                ids, lengths, segments = fabric.to_device((ids, lengths, segments))
                if not flops:
                    with counted() as counter:
                        self.model.features(ids[:1, : lengths[0]], lengths[:1])
                    flops = counter.get_total_flops() / int(lengths[0]) * sum(len(text) for row in data.texts for text in row)
                with fabric.autocast():
                    layers = self.kept(self.model.features(ids, lengths, segments)).bfloat16().cpu()
                owners = [i for i, size in zip(batch.index, batch.sizes, strict=True) for _ in range(size if data.choices else 1)]
                for i, row, length in zip(owners, layers, lengths.tolist(), strict=True):
                    found[i].append(row[:length].clone())
        return replace(data, texts=found, flops=int(flops))

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        """One or two texts (features (batch, length, layers, width), lengths (batch,)) -> (batch, outputs) or (batch, length, outputs)."""
        longest = max(layers.shape[1] for layers, _ in texts)
        layers = torch.cat([pad(layers.float(), (0, 0, 0, 0, 0, longest - layers.shape[1])) for layers, _ in texts])  # one pass over both texts
        return self.head(layers, torch.cat([lengths for _, lengths in texts]), len(texts))


class Features(Frozen):
    """Layers mixed, biLSTM and attention on top (Peters et al. 2018; Wang et al. 2018)."""

    def build(self, model: nn.Module, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        mix = ScalarMix(model.num_layers + 1)
        return BiLSTMAttentionHead(mix, model.width, recipe.hidden_size, kind.outputs, recipe.dropout, pair, kind.per_token)


class Mix(Frozen):
    """Layers mixed, the mean over the tokens, a linear layer (Peters et al. 2018, equation 1)."""

    def build(self, model: nn.Module, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        return MeanHead(ScalarMix(model.num_layers + 1), model.width, kind.outputs, recipe.dropout, pair, kind.per_token)


class LinearProbe(Frozen):
    """One layer, the mean over the tokens, a linear layer: what that layer makes easy to read (Alain and Bengio 2017)."""

    def build(self, model: nn.Module, recipe: params.Recipe, kind: Kind, pair: bool) -> nn.Module:
        if not -model.num_layers - 1 <= recipe.layer <= model.num_layers:
            raise SesameError(f"layer {recipe.layer}: the model has 0 (embedding) to {model.num_layers}")
        self.layer = recipe.layer
        return MeanHead(nn.Flatten(2), model.width, kind.outputs, recipe.dropout, pair, kind.per_token)

    def kept(self, layers: Tensor) -> Tensor:
        return layers[:, :, self.layer, None]


METHODS = {
    "full": Full, "bitfit": BitFit, "adapters": Adapters, "lora": LoRA, "prompt": Prompt,
    "features": Features, "mix": Mix, "linear_probe": LinearProbe,
}  # fmt: skip


def blocks(model: nn.Module, method: str) -> nn.ModuleList:
    """The Transformer's blocks. Raises SesameError for a model without."""
    if not hasattr(model, "blocks"):
        raise SesameError(f"method {method} goes into a Transformer's blocks, and {type(model).__name__} has none; use full, bitfit, prompt or frozen features")
    return model.blocks


def distance(name: str, num_layers: int) -> int:
    """How far below the head a parameter stands: 0 for the head and what is above the layers, 1 for the top layer, num_layers + 1 for embeddings."""
    if not name.startswith("model.") or name.endswith(".prompt"):
        return 0
    if layer := re.search(r"\.(?:blocks|lstms)\.(\d+)\.", name):
        return num_layers - int(layer[1])
    return num_layers + 1 if re.search(r"embedding|token_vectors|positions", name) else 0
