"""Models that are made of other ones: tuned, pre-trained further, distilled, made smaller."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from components.core.config import (
    MODELS,
    Added,
    Block,
    Count,
    DrawnSeed,
    ModelName,
    Name,
    Once,
    Refers,
    TaskName,
)
from components.models.common.config import ArchitectureBlock
from components.params.models import Training
from components.params.recipes import Recipe
from components.params.smaller import Pruned, Sparsified, Truncated, layer_groups
from components.params.ways import Way, check_shrinkable, with_changes

Weight = Annotated[float, Field(ge=0, le=1e6)]
"""Of a term of the loss, within the range of 32-bit numbers."""


class OnTasks(Way):
    """All weights tuned before the model meets other tasks."""

    train_examples: Count | dict[Name, Count] | None = None
    """Labelled examples used of each task, a seeded subset; null takes all. With several tasks `{snli: 2000, stsb: 500}` says it of each
    (all of one that is not named)."""
    seed: DrawnSeed
    """The seed of the head's weights, the order of examples and dropout."""
    recipe: Recipe
    """How it is tuned."""

    @model_validator(mode="after")
    def all_weights(self):
        if self.recipe.method not in ("full", "text_to_text"):
            raise ValueError(
                f"recipe.method {self.recipe.method} does not tune all weights; intermediate tuning needs "
                "full or text_to_text"
            )
        for name in ("temperature_scaling", "starts"):
            if self.recipe.differs(name):
                raise ValueError(f"recipe.{name} has no effect: the tuned weights go on to other tasks; leave it out")
        return self

    def examples_of(self, task: str) -> int | None:
        """How many are used of a task at most."""
        return self.train_examples.get(task) if isinstance(self.train_examples, dict) else self.train_examples


class Tuned(OnTasks):
    """All weights tuned on one task before the model meets others (Phang et al. 2018)."""

    needs = "tasks/<task>"

    name: Literal["tuned"]


class MultiTask(OnTasks):
    """All weights tuned on several tasks at once, a head for each (Liu et al. 2019, multi-task deep neural networks);
    with `method: text_to_text` there are no heads, and the prompt names the task (Raffel et al. 2020, section
    3.5.2)."""

    needs = "tasks"

    name: Literal["multitask"]
    tasks: Annotated[list[TaskName], Field(min_length=2), Once]
    """Names of `tasks`, two or more."""
    sampling: Literal["proportional", "annealed", "uniform"] = "proportional"
    """How the task of the next batch is drawn: a task's share is its examples' (MT-DNN), the same for all, or goes from
    the first nearly to the second: the examples to the power 1 - 0.8 * (epoch - 1) / (epochs - 1) (Stickland and Murray
    2019, section 4.1)."""
    cap: Annotated[Count | None, Added(neutral=None)] = None
    """`proportional`: no task's share is of more examples than so many (T5: 2^21)."""
    temperature: Annotated[Annotated[float, Field(ge=1)], Added(neutral=1.0)] = 1.0
    """`proportional`: shares are of the capped examples to the power 1 / temperature (T5 tried 2; multilingual BERT has 1.43)."""

    @model_validator(mode="after")
    def at_once(self):
        if self.recipe.patience is not None or self.recipe.gradual_unfreezing:
            raise ValueError(
                "patience and gradual_unfreezing are not available when several tasks are tuned at once; leave them out"
            )
        if self.sampling != "proportional" and (self.cap is not None or self.temperature != 1):
            raise ValueError(
                f"cap and temperature have no effect with sampling: {self.sampling}; leave them out, or "
                "take proportional"
            )
        return self


class Pretrained(Training, Way):
    """Pre-trained on: on text of a domain or of a task (Gururangan et al. 2020), or ULMFiT's second step (Howard and Ruder 2018)."""

    needs = "encoded/<encoding>"

    name: Literal["pretrained"]


class Distilled(Training, Way):
    """A student trained on text by what a teacher, the model that it starts from, says of it (DistilBERT, Sanh et al. 2019): soft targets
    where something is predicted (the paper's code: at all tokens), the text's own, and the direction of the last layer at each token."""

    needs = "encoded/<encoding>"

    name: Literal["distilled"]
    change: dict[str, Any] = {}
    """The parts of the student's architecture that differ from the teacher's: `{num_layers: 3}`, `{size: tiny}`."""
    layers: Literal["spread", "random"] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = "spread"
    """The teacher's layers that the student starts from, the first is 0: evenly spread (as published), or these.
    Weights of another shape are drawn at random, and with `random` all are."""
    temperature: Annotated[float, Field(ge=0.01, le=1000)] = 2.0
    """The temperature of both distributions where they are compared."""
    soft_weight: Weight = 5.0
    """The weight of the cross-entropy with the teacher's distribution (DistilBERT's code: 5)."""
    hard_weight: Weight = 2.0
    """The weight of the objective's own loss (DistilBERT's code: 2)."""
    cosine_weight: Weight = 1.0
    """The weight of the cosine loss of the hidden states. Each loss is a mean over its targets."""
    layer_weight: Annotated[Weight, Added(neutral=0.0)] = 0.0
    """The weight of the squared distance of each layer's states to those of the corresponding layer of the teacher
    (TinyBERT, Jiao et al. 2020, equation 8, without its projection), a mean over tokens and width, added up over the
    layers."""
    relation_weight: Annotated[Weight, Added(neutral=0.0)] = 0.0
    """The weight of the divergence of the relations between tokens by their queries, by their keys and by their values,
    in the student's last layer and one of the teacher's (MiniLM 2, Wang et al. 2021, equations 4 to 7), a mean over
    tokens and heads, added up over the three. The widths may differ."""
    relation_heads: Annotated[Count | None, Added(neutral=None)] = None
    """The number of heads for these relations; null: as many as the teacher's layer has."""
    relation_layer: Annotated[Count | None, Added(neutral=None)] = None
    """The teacher's layer, the first is 1; null: its last. (The paper takes one above the middle of a large
    teacher.)"""

    @model_validator(mode="after")
    def something_is_taught(self):
        if self.objective.name not in TAUGHT:
            raise ValueError(
                f"objective {self.objective.name}: distillation is made for {' and '.join(TAUGHT)} alone; take one of them"
            )
        if not any(getattr(self, key) for key in TEACHES):
            raise ValueError(f"nothing is learned from the teacher: give {', '.join(TEACHES[:-1])} or {TEACHES[-1]}")
        for key in ("relation_heads", "relation_layer"):
            if getattr(self, key) and not self.relation_weight:
                raise ValueError(f"{key} has no effect: relation_weight is not set; set it, or leave {key} out")
        if not self.soft_weight:
            self.refuse_idle(["temperature"], "soft_weight is 0, and no distributions are compared")
        if (self.relation_weight or self.layer_weight) and self.trainer.compile:
            raise ValueError(
                "trainer.compile: a compiled model does not show its inner states; leave out "
                "compile, or relation_weight and layer_weight"
            )
        return self

    def taken(self, start: ArchitectureBlock, num_layers: int) -> list[int]:
        """The teacher's layers that the student's so many begin with; none where all are drawn."""
        if self.layers == "random":
            return []
        return [i * start.num_layers // num_layers for i in range(num_layers)] if self.layers == "spread" else self.layers

    def architecture(self, start: ArchitectureBlock) -> ArchitectureBlock:
        check_shrinkable(self.name, start)
        if self.change.get("name", start.name) != start.name:
            raise ValueError(f"change.name: a student has its teacher's architecture, {start.name}; leave name out")
        try:
            student = with_changes(start, self.change)
        except ValueError as error:
            raise ValueError(f"change.{error}") from None
        taken = self.taken(start, student.num_layers)
        if student.max_length > start.max_length:
            raise ValueError(
                f"change.max_length: {student.max_length} is more than the {start.max_length} tokens that "
                "the teacher reads"
            )
        if self.cosine_weight and student.hidden_size != start.hidden_size:
            raise ValueError(
                f"cosine_weight needs the same hidden_size, and here it is {student.hidden_size} and "
                f"{start.hidden_size}; set cosine_weight to 0"
            )
        if self.layer_weight and student.hidden_size != start.hidden_size:
            raise ValueError(
                f"layer_weight needs the same hidden_size, and here it is {student.hidden_size} and "
                f"{start.hidden_size}; take relation_weight"
            )
        if self.layer_weight and student.num_layers > start.num_layers:
            raise ValueError(f"layer_weight: the student's {student.num_layers} layers are more than the teacher's {start.num_layers}")
        if self.relation_weight:
            heads, layer = self.relation_heads or start.num_heads, self.relation_layer or start.num_layers
            for whose, width in (("student", student.heads_size), ("teacher", start.heads_size)):
                if width % heads:
                    raise ValueError(
                        f"relation_heads: {heads} does not divide the total width of the {whose}'s heads, {width}"
                    )
            if layer > start.num_layers:
                raise ValueError(f"relation_layer: {layer} does not exist; the teacher has {start.num_layers} layers")
        if taken and student.hidden_size != start.hidden_size:
            raise ValueError(
                f"layers: the teacher's hidden_size is {start.hidden_size}, not {student.hidden_size}; "
                "take layers: random"
            )
        if taken and (len(taken) != student.num_layers or max(taken) >= start.num_layers or student.num_layers > start.num_layers):
            raise ValueError(
                f"layers: {taken} of the teacher's {start.num_layers} do not fit the student's "
                f"{student.num_layers} layers"
            )
        if taken and student.shares_weights and layer_groups(start, taken) != {"layer_groups": student.layer_groups}:
            raise ValueError("layers: student and teacher share weights between different layers; take layers: random")
        return student


TAUGHT = ("mlm", "clm")
TEACHES = ("soft_weight", "cosine_weight", "layer_weight", "relation_weight")
FOLDERS = (("tasks", ("tasks",)), ("encoded", ("encodings",)), ("models", MODELS))
"""Folders of data/ that a derived model reads, each with the sections that declare what is in it."""


class Derived(Block):
    """A model made of another one: `data/models/<name>`, to be named wherever a model is."""

    start: ModelName
    """The name of an entry of `models`, `checkpoints` or `derived`."""
    on: Annotated[str, Field(pattern=r"^(tasks|(tasks|encoded|models)/[a-z][a-z0-9_]*)$"), Refers(folders=FOLDERS)]
    """`tasks/<task>`, `tasks` (then `by` names them) or `encoded/<encoding>`, as under data/; `models/<start>`, the model itself, where no
    data is needed."""
    by: Annotated[Tuned | MultiTask | Pretrained | Truncated | Pruned | Sparsified | Distilled, Field(discriminator="name")]
    """How it is made."""

    @property
    def tasks(self) -> list[str]:
        """That it is tuned on."""
        return tuned_on(self.on, self.by)

    @model_validator(mode="after")
    def on_what_it_needs(self):
        check_on(self.on, self.by, self.start)
        return self


def tuned_on(on: str, by: Way) -> list[str]:
    """The tasks that a way tunes on; none of one that reads text or nothing."""
    return [on.partition("/")[2]] if by.name == "tuned" else by.tasks if by.name == "multitask" else []


def check_on(on: str, by: Way, start: str) -> None:
    """Raises ValueError where a way needs something else than it is done on, or says something of a task that it isn't."""
    needed = by.needs.replace("<start>", start)
    folder, _, name = needed.partition("/")
    if on != needed and ((folder, "<" in name) != (on.partition("/")[0], "/" in on)):
        raise ValueError(f"by {by.name} needs on: {needed}, not {on}")
    sizes = getattr(by, "train_examples", None)
    if isinstance(sizes, dict) and (others := [task for task in sizes if task not in tuned_on(on, by)]):
        raise ValueError(f"by.train_examples: {others[0]} is not among its tasks ({', '.join(tuned_on(on, by))})")
