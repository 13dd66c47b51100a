"""Prompt tuning: trained vectors before the text."""

from dataclasses import replace

import torch
from lightning import Fabric
from torch import Tensor, nn
from torch.nn.functional import pad

from components import params
from components.core.errors import SesameError
from components.finetune.data import Encoded, Texts
from components.finetune.kinds import Kind
from components.finetune.methods.full import Full
from components.models.contract import LanguageModel
from components.text.tokenizer import Tokenizer


class PromptedEmbedding(nn.Module):
    """A frozen embedding with trained vectors for ids beyond its vocabulary, initialised from random tokens."""

    def __init__(self, embedding: nn.Module, vocab_size: int, length: int):
        super().__init__()
        self.embedding, self.vocab_size = embedding, vocab_size
        self.num_embeddings = vocab_size + length  # by which a recurrent model drops whole words
        with torch.no_grad():
            self.prompt = nn.Parameter(embedding(torch.randint(vocab_size, (1, length)))[0].clone())

    def forward(self, ids: Tensor) -> Tensor:
        learned = ids >= self.vocab_size
        vectors = self.embedding(ids.masked_fill(learned, 0))
        return torch.where(learned[..., None], self.prompt[(ids - self.vocab_size).clamp(min=0)].to(vectors.dtype), vectors)


class Prompt(Full):
    """Trains vectors before the text, and the head; the model is frozen (Lester et al. 2021)."""

    def __init__(self, model: LanguageModel, tokens: Tokenizer, recipe: params.Recipe, kind: Kind, pair: bool):
        super().__init__(model, tokens, recipe, kind, pair)
        if recipe.max_length + recipe.prompt_length > model.max_length:
            raise SesameError(
                f"max_length {recipe.max_length} + prompt_length {recipe.prompt_length} "
                f"is more than the {model.max_length} tokens that the model reads"
            )
        self.position, self.length, self.first_id = len(tokens.prefix), recipe.prompt_length, tokens.vocab_size
        self.freeze()
        setattr(model, model.embedding, PromptedEmbedding(getattr(model, model.embedding), tokens.vocab_size, recipe.prompt_length))

    def inputs(self, data: Encoded, fabric: Fabric) -> Encoded:
        """Insert ids beyond the vocabulary for the vectors."""
        prompt = torch.arange(self.first_id, self.first_id + self.length)
        texts = [[torch.cat([ids[: self.position], prompt, ids[self.position :]]) for ids in rows] for rows in data.texts]
        segments = [[pad(row, (self.length, 0)) for row in rows] for rows in data.segments]
        return replace(data, texts=texts, segments=segments)

    def forward(self, texts: Texts, segments: Tensor) -> Tensor:
        output = super().forward(texts, segments)
        if not self.per_token:
            return output
        return torch.cat([output[:, : self.position], output[:, self.position + self.length :]], 1)


Method = Prompt
