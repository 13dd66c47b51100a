"""What all trainings on a task share: the examples, the machine, how they are judged, and how a model is made ready for it."""

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


def machine(config: params.Finetune) -> Fabric:
    """Where and in which precision to train. Raises SesameError where that is not to be had."""
    compute.prepare(config.threads)
    try:
        return Fabric(accelerator=config.accelerator, devices=1, precision=compute.precision(config.precision, config.accelerator))
    except RuntimeError as error:
        raise SesameError(f"finetune.accelerator {config.accelerator}: {str(error).splitlines()[0]}") from None


def selection(recipe: params.Recipe) -> str:
    """Which weights count, for every table."""
    if recipe.method == "in_context":
        return f"nothing trained, {recipe.shots} examples in the prompt" + ", calibrated" * recipe.calibrated
    if recipe.patience is None:
        return f"last of {recipe.epochs} epochs, nothing selected on dev"
    return f"best of up to {recipe.epochs} epochs on dev (patience {recipe.patience})"


def judged(task: params.Task) -> str:
    """The split that tables show: test where it has labels, else dev."""
    return "test" if task.test and task.test.labelled else "dev"


def readable(folder: Path, recipe: params.Recipe) -> None:
    """Raises SesameError where the recipe's inputs are longer than what the model reads."""
    longest = store.about(folder).architecture.max_length
    if recipe.max_length > longest:
        raise SesameError(f"max_length {recipe.max_length} of the recipe is more than the {longest} tokens that {folder.name} reads")


@dataclass
class Ready:
    """A model with what a method puts on it, for one task."""

    module: nn.Module
    kind: kinds.Kind
    tokens: Tokenizer | fast.FastTokenizer
    parameters: int
    """Of the model alone."""
    seed: int

    def encode(self, rows: Mapping[str, list[Example]]) -> dict[str, Encoded]:
        """The examples of each split as the module's inputs, before `module.inputs`."""
        self.kind.begin(rows["train"], self.seed)
        return {split: self.kind.encode(examples, self.tokens) for split, examples in rows.items()}


@dataclass(frozen=True)
class Bench:
    """A task on this machine."""

    task: params.Task
    name: str
    rows: dict[str, list[Example]]
    """Of each split: the subset that is learned from, those that are judged, and all that are submitted."""
    fabric: Fabric
    whole: list[Example]
    """The training split, of which each seed draws as many examples as there are in `rows`."""
    drawn_by: int
    """The top-level seed."""

    @classmethod
    def of(cls, all_params: params.Params, name: str, sizes: Mapping[str, int | None] | None = None) -> "Bench":
        """Read the examples: seeded subsets of so many (None: all), by default all splits as `finetune` says.

        Raises SesameError where data or machine are not there, or those to classify from have one label only.
        """
        config, task, folder = all_params.finetune, all_params.tasks[name], Path("data/tasks", name)
        if sizes is None:
            eval_sizes = {split: config.evaluated(split) if block.labelled else None for split, block in task.splits.items()}
            sizes = eval_sizes | {"train": config.train_examples}
        whole = {split: tasks.read(folder, split) for split in sizes}
        rows = {split: tasks.subset(whole[split], size, all_params.seed) for split, size in sizes.items()}
        return cls(task, name, rows, machine(config), whole["train"], all_params.seed).checked()

    def checked(self) -> "Bench":
        """Itself. Raises SesameError where there is one label only to learn."""
        train = self.rows["train"]
        if self.task.kind == "classification" and len({row.label for row in train}) == 1:
            drawn = f"the {len(train)} training examples drawn from {self.name}"
            raise SesameError(f"{drawn} have one label only; raise finetune.train_examples")
        return self

    @property
    def draws(self) -> bool:
        """Whether a seed draws what is learned from, since it is not all that there is."""
        return len(self.rows["train"]) < len(self.whole)

    def of_seed(self, seed: int) -> "Bench":
        """The same with the training examples that this seed draws: which ones these happen to be moves scores as much as first weights
        do, and belongs into their spread. Raises SesameError where these have one label only."""
        if not self.draws:
            return self
        train = tasks.subset(self.whole, len(self.rows["train"]), [self.drawn_by, seed])
        return replace(self, rows=self.rows | {"train": train}).checked()

    @property
    def pair(self) -> bool:
        """Whether an example has two texts."""
        return self.rows["train"][0].text_b is not None

    @property
    def on_gpu(self) -> bool:
        return self.fabric.device.type == "cuda"

    def ready(self, folder: Path, recipe: params.Recipe, seed: int, init: str = "pretrained") -> Ready:
        """A model from its folder with a head for this task, drawn from `seed`. `init`: from its weights, from random ones of its
        architecture, or its token vectors alone. Raises SesameError where these are no table and are to be scaled."""
        torch.manual_seed(seed)
        model, tokens = store.load(folder, init != "random")
        if init == "token_vectors":
            model = TokenVectors(model)
        elif init == "pretrained" and sparse.is_sparse(store.about(folder).lineage):
            sparse.keep_zeros(model)
        if (scale := recipe.embedding_scale(init)) != 1:
            vectors = getattr(model, model.embedding)
            if not isinstance(vectors, nn.Embedding):
                raise SesameError(f"starts.{init}.embedding_scale: {folder.name} makes its token vectors of characters; leave it out")
            with torch.no_grad():
                vectors.weight *= scale
        kind = methods.reading(self.task, recipe, self.name)
        parameters = store.count_parameters(model)  # before a method adds its own
        return Ready(self.fabric.to_device(methods.build(model, tokens, recipe, kind, self.pair)), kind, tokens, parameters, seed)

    def judge(self, metric: str | None = None) -> Callable[[list[Any]], float | None]:
        """What predictions on dev score, by the task's headline if not by another metric; None where that is undefined."""
        return lambda predictions: metrics.evaluate(self.task, "dev", self.rows["dev"], predictions)[metric or self.task.metric]

    def protocol(self, recipe: params.Recipe, split: str | None = None, note: str = "") -> str:
        """On what and how these figures were got, for every table."""
        split = split or judged(self.task)
        reading = f", pairs read {'jointly' if kinds.joined(self.task, recipe) else 'apart'}" if self.pair else ""
        labelled = recipe.shots if recipe.method == "in_context" else len(self.rows["train"])
        shown = metrics.protocol(split, selection(recipe) + reading + note, labelled, len(self.rows[split]))
        return shown + ", others for each seed" * self.draws
