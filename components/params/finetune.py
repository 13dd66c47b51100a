"""What is fine-tuned on what: the sections `finetune`, `adapt`, `learning_curve` and `baselines`."""

from math import ceil
from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.core.config import (
    Block,
    Count,
    ModelName,
    Name,
    Once,
    Positive,
    RunOnly,
    Seed,
    Size,
    TaskName,
    Threads,
    TokenizerName,
)
from components.params.models import Accelerator, Precision
from components.params.recipes import Recipe

Init = Literal["pretrained", "random", "token_vectors"]
"""Where a tuning starts."""
STARTED = ("full", "features", "mix", "decomposable_attention")
"""Methods that can start from a model's token vectors alone."""


class Finetune(Block):
    """Every model on every task; what all adaptations have in common: the seeds, the examples, the machine."""

    models: Annotated[list[ModelName], Once]
    """Names of `models`, `checkpoints` or `derived`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    inits: Annotated[list[Init], Field(min_length=1), Once]
    """From the model's weights; from random ones of the same architecture; from the model's own token vectors alone, without positions
    and layers: what these add is what the context brings."""
    seeds: Annotated[list[Seed], Field(min_length=1)]
    """Each draws the training examples, the head's and the random model's weights, their order and dropout."""
    train_examples: Count | None = None
    """Labelled examples used, another subset for each seed, the same for every model; null takes all."""
    eval_examples: Count | dict[Name, Count] | None = None
    """Size of the seeded subset of each evaluation split; null takes all. `{dev: 2000}`: 2000 of dev, all of the
    others."""
    accelerator: Annotated[Accelerator, RunOnly()] = "auto"
    """`auto`: a GPU where there is one."""
    precision: Precision = "auto"
    """`auto`: bf16-mixed where the hardware multiplies bf16, else 32-true."""
    threads: Threads | None = None
    """CPU threads of torch; null leaves torch's own choice."""
    recipes: dict[Name, Recipe]
    """The recipe of each model, by the model's name."""

    def evaluated(self, split: str) -> int | None:
        """How many examples of a split are judged; None for all."""
        return self.eval_examples.get(split) if isinstance(self.eval_examples, dict) else self.eval_examples

    @model_validator(mode="after")
    def begins_pretrained(self):
        if "pretrained" not in self.inits:
            raise ValueError("inits lacks pretrained, with which random weights are compared; add it")
        if "token_vectors" in self.inits:
            for name, recipe in self.recipes.items():
                if recipe.method not in STARTED:
                    raise ValueError(
                        f"recipes.{name}: method {recipe.method} reads layers, and the start "
                        "token_vectors has none; take one of "
                        f"{', '.join(STARTED)}, or leave token_vectors out of inits"
                    )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: one is listed twice and would count as two runs; list each once")
        return self


class Adapt(Block):
    """Ways to adapt, side by side: every model by every recipe on every task, under the seeds and examples of `finetune`."""

    models: Annotated[list[ModelName], Once]
    """Names of `models`, `checkpoints` or `derived`."""
    methods: Annotated[list[Name], Once]
    """Names of `recipes`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    recipes: dict[Name, Recipe]
    """Name of a way to adapt -> its recipe."""


BASELINES = (
    "majority", "tfidf_cosine", "second_text", "logistic_regression", "linear_svm", "averaging",
    "decomposable_attention", "bilstm",
)  # fmt: skip


class LearningCurve(Block):
    """Scores at fewer labelled examples: models of `finetune` under their recipes, from both starts, beside baselines.

    With all that `finetune` uses, the scores are those of `finetune`, if its recipe has `min_steps`.
    """

    models: Annotated[list[ModelName], Once]
    """Names of `finetune.models`."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks`."""
    train_examples: Annotated[list[Size], Field(min_length=1), Once] = [100, 500]
    """Sizes of the training set, each a seeded subset of the next."""
    baselines: Annotated[list[Literal[BASELINES]], Once] = ["logistic_regression"]
    """Names of `baselines.methods` to compare with."""
    min_steps: Size = 160
    """Epochs are added until there are so many: few examples need more of them (Mosbach et al. 2021)."""

    def lengthened(self, recipe: Recipe, examples: int) -> Recipe:
        """The recipe with as many epochs as `min_steps` takes."""
        return recipe.model_copy(update={"epochs": max(recipe.epochs, ceil(self.min_steps / ceil(examples / recipe.batch_size)))})


class Baselines(Block):
    """Baselines that need no pre-training, on the same examples."""

    methods: Annotated[list[Literal[BASELINES]], Once]
    """`majority`: the commonest label (for `text`: the source unchanged). `tfidf_cosine`: the cosine of the two bags of
    words. `logistic_regression`, `linear_svm`: over bags of words; `second_text`: over the second text's alone.
    `averaging`: a deep averaging network (Iyyer et al. 2015). `decomposable_attention`: for pairs (Parikh et al. 2016).
    `bilstm`: with attention."""
    tokenizer: TokenizerName
    """The tokenizer of the networks, whose vectors start at random."""
    embedding_size: Size = 100
    """Width of these vectors."""
    embedding_std: Positive = 1.0
    """Deviation that the vectors start with; on few examples they hardly move, and small ones let the head learn faster."""
    recipe: Recipe
    """The recipe of the networks; its `method` has no effect."""

    @model_validator(mode="after")
    def pairs_are_apart(self):
        if "decomposable_attention" in self.methods and self.recipe.pair == "joined":
            raise ValueError("methods: decomposable_attention needs two separate texts; set pair: apart in the recipe")
        for name in ("head", "layer_decay", "gradual_unfreezing", "starts"):
            if self.recipe.differs(name):
                why = "these networks have no pre-trained layers"
                raise ValueError(f"recipe.{name} has no effect: {why}; leave it out")
        return self
