"""What all trainings on a task share: its examples, the device, the metrics, and how a model is prepared for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning import Fabric
from torch import nn

from components import params, tasks
from components.core import compute
from components.core.errors import SesameError
from components.finetune import kinds, methods
from components.finetune.data import Encoded
from components.models import sparse, store
from components.models.token_vectors import TokenVectors
from components.tasks import Example, metrics
from components.text.tokenizer import Tokenizer, fast


def build_fabric(config: params.Finetune) -> Fabric:
    """The device and the precision to train with. Raises SesameError where the accelerator is not available."""
    compute.prepare(config.threads)
    try:
        return Fabric(accelerator=config.accelerator, devices=1, precision=compute.precision(config.precision, config.accelerator))
    except RuntimeError as error:
        raise SesameError(f"finetune.accelerator {config.accelerator}: {str(error).splitlines()[0]}") from None


def selection(recipe: params.Recipe) -> str:
    """Describe, for every table, which weights are evaluated."""
    if recipe.method == "in_context":
        return f"nothing trained, {recipe.shots} examples in the prompt" + ", calibrated" * recipe.calibrated
    if recipe.patience is None:
        return f"last of {recipe.epochs} epochs, nothing selected on dev"
    return f"best of up to {recipe.epochs} epochs on dev (patience {recipe.patience})"


def reported_split(task: params.Task) -> str:
    """The split that tables show: test where it has labels, else dev."""
    return "test" if task.test and task.test.labelled else "dev"


def check_max_length(folder: Path, recipe: params.Recipe) -> None:
    """Raises SesameError where the recipe's inputs are longer than the model's max_length."""
    longest = store.about(folder).architecture.max_length
    if recipe.max_length > longest:
        raise SesameError(f"max_length {recipe.max_length} of the recipe is more than the {longest} tokens that {folder.name} reads")


@dataclass
class PreparedModel:
    """A model inside the module of a method, for one task."""

    module: nn.Module
    kind: kinds.Kind
    tokens: Tokenizer | fast.FastTokenizer
    seed: int

    def encode(self, examples: Mapping[str, list[Example]]) -> dict[str, Encoded]:
        """Encode the examples of each split, before `module.inputs`."""
        self.kind.prepare_inputs(examples["train"], self.seed)
        return {split: self.kind.encode(rows, self.tokens) for split, rows in examples.items()}


@dataclass(frozen=True)
class TaskSetup:
    """A task with its examples and the device."""

    task: params.Task
    name: str
    examples: dict[str, list[Example]]
    """Split -> the subset to train on, to evaluate, or all to submit."""
    fabric: Fabric
    train_pool: list[Example]
    """The full training split, from which each seed draws."""
    train_size: int | None
    """How many it draws at most: groups of examples stay complete, so that it may be fewer. None: all."""
    subset_seed: int
    """The top-level seed."""

    @classmethod
    def load(cls, all_params: params.Params, name: str, sizes: Mapping[str, int | None] | None = None) -> "TaskSetup":
        """Read the examples: seeded subsets of the given sizes (None: all), by default all splits with the sizes of `finetune`.

        Raises SesameError where data or accelerator are missing, or where all training examples have the same label.
        """
        config, task, folder = all_params.finetune, all_params.tasks[name], Path("data/tasks", name)
        if sizes is None:
            eval_sizes = {split: config.evaluated(split) if data.labelled else None for split, data in task.splits.items()}
            sizes = eval_sizes | {"train": config.train_examples}
        pools = {split: tasks.read(folder, split) for split in sizes}
        examples = {split: tasks.subset(pools[split], size, all_params.seed) for split, size in sizes.items()}
        return cls(task, name, examples, build_fabric(config), pools["train"], sizes["train"], all_params.seed)

    def __post_init__(self) -> None:
        if not self.samples_train:  # else each seed draws its own
            self._check_labels(self.examples["train"], "")

    @property
    def samples_train(self) -> bool:
        """Whether each seed draws its training examples from a larger split."""
        return len(self.examples["train"]) < len(self.train_pool)

    def for_seed(self, seed: int) -> "TaskSetup":
        """Replace the training examples by those that this seed draws: their choice moves scores as much as the initial weights do,
        and belongs to their deviation. Raises SesameError where all have the same label."""
        if not self.samples_train:
            return self
        train = tasks.subset(self.train_pool, self.train_size, [self.subset_seed, seed])
        self._check_labels(train, f" for seed {seed}")
        return replace(self, examples=self.examples | {"train": train})

    def _check_labels(self, train: list[Example], drawn: str) -> None:
        """Raise SesameError where all examples have the same label."""
        if self.task.kind == "classification" and len({example.label for example in train}) == 1:
            raise SesameError(
                f"the {len(train)} training examples drawn from {self.name}{drawn} have one label only; raise train_examples"
            )

    @property
    def pair(self) -> bool:
        """Whether an example has two texts."""
        return self.examples["train"][0].text_b is not None

    @property
    def on_gpu(self) -> bool:
        return self.fabric.device.type == "cuda"

    def prepare(self, folder: Path, recipe: params.Recipe, seed: int, init: str = "pretrained") -> PreparedModel:
        """Load a model and add a head for this task, initialised with `seed`. `init`: pretrained, random (the architecture only) or
        token_vectors. Raises SesameError where token vectors are not a table and are to be scaled."""
        torch.manual_seed(seed)
        model, tokens = store.load(folder, init != "random")
        if init == "token_vectors":
            model = TokenVectors(model)
        elif init == "pretrained" and sparse.is_sparse(store.about(folder).lineage):
            sparse.keep_zeros(model)
        if (scale := recipe.embedding_scale(init)) != 1:
            vectors = getattr(model, model.embedding)
            if not isinstance(vectors, nn.Embedding):
                raise SesameError(f"starts.{init}.embedding_scale: {folder.name} computes its token vectors from characters; leave it out")
            with torch.no_grad():
                vectors.weight *= scale
        kind = methods.build_kind(self.task, recipe, self.name)
        module = self.fabric.to_device(methods.build(model, tokens, recipe, kind, self.pair))
        return PreparedModel(module, kind, tokens, seed)

    def dev_score(self, metric: str | None = None) -> Callable[[list[Any]], float | None]:
        """A function that scores predictions on dev, by default with the task's main metric; None where that is undefined."""
        return lambda predictions: metrics.evaluate(self.task, "dev", self.examples["dev"], predictions)[metric or self.task.metric]

    def protocol(
        self, recipe: params.Recipe, split: str | None = None, note: str = "", each_seed_draws: bool = True
    ) -> str:  # fmt: skip
        """Describe, for every table, the examples and settings behind the scores.

        `each_seed_draws`: whether each seed trains on examples of its own, those of `for_seed`.
        """
        split = split or reported_split(self.task)
        pairs = f", pairs read {'jointly' if kinds.joined(self.task, recipe) else 'apart'}" if self.pair else ""
        sampled, at_most = self.samples_train and each_seed_draws, False
        if recipe.method == "in_context":
            labelled = recipe.shots
        elif sampled:
            labelled, at_most = self.train_size, any(example.group is not None for example in self.train_pool)
        else:
            labelled = len(self.examples["train"])
        shown = metrics.protocol(split, selection(recipe) + pairs + note, labelled, len(self.examples[split]), at_most)
        return shown + ", others for each seed" * sampled
