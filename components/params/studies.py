"""Studies: variants of one pre-training held against each other."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from components.params.block import Block, Count, Name, Seed
from components.params.models import Architecture, Budget, Model, Objective
from components.params.tasks import Recipe

Column = Literal["parameters", "tokens", "flops", "seconds", "loss", "perplexity", "bits_per_byte"]


class Plot(Block):
    """What to plot against what."""

    x: Column
    y: Annotated[list[Column | Name], Field(min_length=1)]
    """Figures of the pre-training, or names of tasks: a panel each."""


class Ablation(Block):
    """A study: the variants that name it, on the same data, tasks, seeds and budget. `sesame study NAME` runs it."""

    question: str
    """What it asks, for its page."""
    base: Name
    """The variant that the others are held against."""
    tasks: Annotated[list[Name], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)]
    """Each trains every variant anew, and fine-tunes it once on every task: the spread is that of both."""
    budget: Budget
    """Of each pre-training."""
    checkpoints: list[Count]
    """Models kept on the way, after so many tokens, and fine-tuned like the last one; [] keeps none. Their learning rate has not yet come down."""
    recipe: Recipe
    """How every variant is fine-tuned."""
    plot: Plot
    published: Literal["objective", "size"] | None = None
    """A table of components/ablations/published.yaml to be printed beside ours."""

    @model_validator(mode="after")
    def parts_fit(self):
        for key in ("seeds", "tasks"):
            if len(set(getattr(self, key))) < len(getattr(self, key)):
                raise ValueError(f"{key} has one twice")
        if taken := [task for task in self.tasks if task in (*get_args(Column), "variant", "checkpoint", "n", "finetune_seconds")]:
            raise ValueError(f"a task can't be called {taken[0]}: that is a column of the study's table")
        if self.checkpoints and not self.budget.tokens:
            raise ValueError("checkpoints are counted in tokens, and so must the budget be")
        if self.checkpoints and (sorted(set(self.checkpoints)) != self.checkpoints or self.checkpoints[-1] >= self.budget.tokens):
            raise ValueError("checkpoints: ascending, and less than budget.tokens")
        return self


class Variant(Block):
    """One variant of a study. Its name begins with the study's: `objective_no_nsp` of `objective`."""

    study: Name
    model: Name
    """Of `models`: what is varied."""
    encoding: Name
    """What is read."""
    change: dict[str, Any]
    """Laid over the model's block: `{objective: {mlm_probability: 0.4}}`. A part of another `name` keeps only what the new kind has, too."""
    recipe: dict[str, Any] = {}
    """Laid over the study's recipe."""

    @model_validator(mode="after")
    def change_is_of_the_model(self):
        for key, place in {"budget": "the study's", "seed": "the study's seeds", "encoding": "the variant's own", "prompts": "not used here"}.items():
            if key in self.change:
                raise ValueError(f"change.{key}: the same for all variants of a study or set elsewhere ({place})")
        return self


KINDS = {kind.model_fields["name"].annotation.__args__[0]: kind for union in (Architecture, Objective) for kind in get_args(get_args(union)[0])}


def laid_over(block: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A block with the values of a change put in, however deep."""
    merged = dict(block)
    kind = change.get("name", block.get("name"))
    if kind != block.get("name") and isinstance(kind, str) and kind in KINDS:
        merged = {key: value for key, value in merged.items() if key in KINDS[kind].model_fields}
    for key, value in change.items():
        merged[key] = laid_over(merged[key], value) if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping) else value
    return merged


def varied(models: Mapping[str, Model], study: Ablation, variant: Variant, seed: int) -> Model:
    """The block of one training of a variant. Raises ValidationError where the change does not fit."""
    own = {"encoding": variant.encoding, "seed": seed, "budget": study.budget, "prompts": []}
    return Model.model_validate(laid_over(models[variant.model].model_dump(exclude_unset=True), variant.change) | own)


def tuned(study: Ablation, variant: Variant) -> Recipe:
    """How a variant is fine-tuned. Raises ValidationError where its own values do not fit."""
    return Recipe.model_validate(laid_over(study.recipe.model_dump(exclude_unset=True), variant.recipe))
