"""Models compared by the cost of an answer. The section is in `studies/params.yaml`."""

from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from components.core.config import Added, Block, Count, ModelName, Once, RowName, Share, TaskName
from components.params.messages import first
from components.params.recipes import Recipe


class Quantised(Block):
    """Weights of the layers' and the head's matrices in fewer bits; embeddings stay as they are."""

    weights: Literal["int8", "int4", "ternary"]
    """`int8`: a scale a row, inputs rounded too as they come, in steps of the largest of a batch, multiplied as
    integers; scores are of examples read one at a time. `int4` (a scale for 32 weights) and `ternary` (-a, 0, a in a
    row; Li and Liu 2016) are rounded and multiplied as before: smaller, and no faster."""
    trained: bool = False
    """Rounded in every step of the tuning, too (Jacob et al. 2018; Q8BERT, Zafrir et al. 2019, which rounds what goes in as well)."""


Threshold = Annotated[float, Field(gt=0, le=1)]


class Point(Block):
    """A model as it answers. One more is one more line."""

    model: ModelName
    """The name of an entry of `models`, `checkpoints` or `derived`, of either file."""
    init: Literal["pretrained", "random"] = "pretrained"
    """From the model's weights, or from random ones of the same architecture."""
    recipe: dict[str, Any] = {}
    """Laid over that of all points."""
    teacher: RowName | None = None
    """Another point, whose probabilities of the training examples are learned besides their labels (Hinton et al.
    2015)."""
    teacher_weight: Share = 0.5
    """The weight of the loss against the teacher; the rest is the weight of the loss against the labels."""
    teacher_temperature: Annotated[float, Field(ge=0.01, le=1000)] = 2.0
    """The temperature that softens the probabilities of both."""
    factorised: Annotated[Annotated[float, Field(ge=0.01, lt=1)] | None, Added(neutral=None)] = None
    """The matrices of the layers as products of two thin ones, with this share of their weights together, before the tuning."""
    quantised: Quantised | None = None
    """Weights in fewer bits; null: as they were trained."""

    @model_validator(mode="after")
    def teacher_settings_have_one(self):
        for name in ("teacher_weight", "teacher_temperature"):
            if self.teacher is None and self.differs(name):
                raise ValueError(f"{name} has no effect: teacher is not set; set it, or leave {name} out")
        if self.teacher is not None and not self.teacher_weight:
            raise ValueError("teacher has no effect: teacher_weight is 0; raise it, or leave teacher out")
        return self


class Efficiency(Block):
    """Points tuned on the same tasks, examples and seeds (those of `finetune`), and what an answer costs with each: the score against
    FLOPs, time, energy and bytes."""

    tasks: Annotated[list[TaskName], Once] = []
    """Classification: probabilities are what is taught, calibrated and left early by."""
    base: RowName | None = None
    """The baseline: the point that the others are compared with."""
    recipe: Recipe | None = None
    """The recipe of all points."""
    thresholds: Annotated[list[Threshold], Field(min_length=1), Once] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    """`early_exit`: how likely an answer must be for the rest of the layers to be left out; 1: none is."""
    examples: Count = 200
    """The number of examples on which time is measured, one at a time and 32 together."""
    points: dict[RowName, Point] = {}
    """Name -> a model as it answers."""

    @property
    def runs(self) -> dict[str, tuple[str, str]]:
        """Name of a stage -> the point that it tunes, and the task."""
        return {f"{point}-{task}": (point, task) for point in self.points for task in self.tasks}

    def tuned(self, point: str) -> Recipe:
        """How a point is tuned. Raises ValidationError where what it lays over the recipe of all does not fit."""
        settings = self.points[point].recipe
        return Recipe.model_validate(self.recipe.under(settings) | settings)

    def method(self, point: str) -> str:
        """How a point is tuned, in a word."""
        return self.points[point].recipe.get("method", self.recipe.method)

    @model_validator(mode="after")
    def points_differ(self):
        for one, other in combinations(self.points, 2):
            if self.points[one] == self.points[other]:
                raise ValueError(f"points: {one} and {other} are the same; leave one out")
        return self

    @model_validator(mode="after")
    def points_fit_each_other(self):
        if not self.points:
            return self
        if self.recipe is None or not self.tasks:
            raise ValueError("points need a recipe and tasks")
        if self.base not in self.points:
            raise ValueError(f"base: {self.base!r} is not a point (there are: {', '.join(self.points)})")
        if all(self.method(name) != "early_exit" for name in self.points):
            self.refuse_idle(["thresholds"], "no point has method early_exit")
        for name, point in self.points.items():
            try:
                recipe = self.tuned(name)
            except ValidationError as error:
                raise ValueError(f"points.{name}.recipe{first(error)}") from None
            if name == self.base and recipe.method == "early_exit":
                raise ValueError(
                    f"base: {name} exits at several thresholds, and the baseline needs one score; take another point"
                )
            if recipe.temperature_scaling:
                raise ValueError(
                    f"points.{name}.recipe.temperature_scaling has no effect: every point is calibrated; leave it out"
                )
            if point.teacher is not None and (taught := self.points.get(point.teacher)) is None:
                raise ValueError(
                    f"points.{name}.teacher: {point.teacher!r} is not a point (there are: {', '.join(self.points)})"
                )
            if point.teacher is not None and taught.teacher is not None:
                raise ValueError(
                    f"points.{name}.teacher: {point.teacher} has a teacher itself; name a point without one"
                )
            early = [each for each in (name, point.teacher) if each and self.tuned(each).method == "early_exit"]
            if early and point.teacher:
                raise ValueError(
                    f"points.{name}.teacher: {early[0]} has several classifiers (early_exit), and "
                    "distillation is from one to one; take another method"
                )
            if early and point.quantised:
                raise ValueError(
                    f"points.{name}.quantised: early_exit is compared with models that are not quantised; "
                    "leave quantised out"
                )
            if recipe.method in ("text_to_text", "in_context"):
                raise ValueError(
                    f"points.{name}.recipe.method {recipe.method} generates text and gives no "
                    "probabilities of labels; take another method"
                )
            if recipe.method not in ("full", "early_exit") and point.factorised:
                raise ValueError(
                    f"points.{name}.factorised: low-rank factors must be tuned, and method "
                    f"{recipe.method} does not tune the weights; take full"
                )
            if recipe.method not in ("full", "early_exit") and point.quantised and point.quantised.trained:
                raise ValueError(
                    f"points.{name}.quantised.trained: method {recipe.method} does not tune the model's "
                    "weights; take full"
                )
        return self
