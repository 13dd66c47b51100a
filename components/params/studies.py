"""Studies: variants of one pre-training on the same text, tasks, seeds and budget."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from components.core.config import (
    Added,
    Block,
    Count,
    EncodingName,
    EvaluationName,
    Name,
    Once,
    Refers,
    RowName,
    Seed,
    TaskName,
)
from components.params.derived import MultiTask, Tuned, check_on, tuned_on
from components.params.expectations import Expectation
from components.params.models import Budget
from components.params.recipes import Recipe

LOSS = "bits_per_byte"
"""The held-out loss of a pre-training. Variants of one objective are compared by it, too."""
Column = Literal["parameters", "tokens", "flops", "seconds", "loss", "perplexity", "bits_per_byte"]


class Plot(Block):
    """The axes of the study's plot."""

    x: Column
    """A figure of the pre-training, for the horizontal axis."""
    y: Annotated[list[Column | Name], Field(min_length=1), Once]
    """Figures of the pre-training, or names of tasks: a panel each."""


RUNGS = 6
"""The number of variants that a ladder's fit needs at least."""


class Variant(Block):
    """One variant of a study. One more is one more line."""

    change: dict[str, Any] = {}
    """Laid over the model's block: `{objective: {mlm_probability: 0.4}}`.
    A part of another `name` keeps only what the new kind has, too."""
    recipe: dict[str, Any] = {}
    """Laid over the study's recipe."""
    encoding: EncodingName | None = None
    """The encoding that is read, if not that of the study."""
    start: Annotated[RowName | None, Added(neutral=None)] = None
    """Another variant, whose models this one begins with: with a budget of its own they are trained on, as `change` and `encoding` say;
    else they are only tuned otherwise."""
    budget: Annotated[Budget | None, Added(neutral=None)] = None
    """The budget of a training that continues from `start`; in a study with a ladder, of any training."""
    init: Annotated[Literal["pretrained", "random"], Added(neutral="pretrained")] = "pretrained"
    """`random`: tuned from random weights of the architecture of `start`."""
    train_examples: Annotated[Count | None, Added(neutral=None)] = None
    """Labelled examples, if not as many as `finetune` says."""
    on: Annotated[
        str | None, Field(pattern=r"^tasks(/[a-z][a-z0-9_]*)?$"), Refers(folders=(("tasks", ("tasks",)),)), Added(neutral=None)
    ] = None
    """With `by`: `tasks/<task>`, or `tasks`, which `by` names."""
    by: Annotated[Annotated[Tuned | MultiTask, Field(discriminator="name")] | None, Added(neutral=None)] = None
    """A training of the models of `start` before they are tuned on the tasks of the study: tuned on another task (Phang
    et al. 2018) or on several at once (Liu et al. 2019), as under `derived`. The seed is the study's."""

    @property
    def only_tuned(self) -> bool:
        """Whether it pre-trains nothing, and only tunes models of another variant."""
        return self.start is not None and self.budget is None and self.by is None

    @property
    def intermediate(self) -> list[str]:
        """The tasks that come before those of the study."""
        return tuned_on(self.on, self.by) if self.by else []

    @model_validator(mode="after")
    def tasks_before(self):
        if (self.on is None) != (self.by is None):
            raise ValueError(
                "give both `on` and `by`, or neither: the tasks on which the models of `start` are tuned first, and how"
            )
        if self.by:
            check_on(self.on, self.by, "")
            if self.start is None or self.budget or self.change or self.encoding or self.init == "random":
                raise ValueError(
                    f"by {self.by.name} needs `start`, and its models unchanged: leave budget, change, "
                    "encoding and init out"
                )
            if "seed" in self.by.model_fields_set:
                raise ValueError("by.seed has no effect: the seeds are those of the study; leave it out")
        return self

    @model_validator(mode="after")
    def goes_on(self):
        if self.only_tuned and (self.change or self.encoding):
            raise ValueError("a variant with `start` and no budget is only tuned: give it one, or leave change and encoding out")
        if self.init == "random" and not self.only_tuned:
            raise ValueError("init: random needs `start`, for its architecture, and can't have a budget")
        if self.budget and self.start and "architecture" in self.change:
            raise ValueError(
                "change.architecture: a variant that continues from `start` keeps its architecture; leave it out"
            )
        return self

    @model_validator(mode="after")
    def change_is_of_the_model(self):
        elsewhere = {
            "budget": "the study's", "seed": "the study's seeds", "pretrainings": "the study's seeds", "encoding": "the variant's own",
            "prompts": "not used here", "run": "the model's",
        }  # fmt: skip
        for key, place in elsewhere.items():
            if key in self.change:
                raise ValueError(
                    f"change.{key}: can't differ between variants, or is set elsewhere ({place}); leave it out"
                )
        return self


class LearningRates(Block):
    """The learning rates that each variant tries. It is trained once at each, and its seeds have the one with the lowest loss on the
    validation text: the same effort for every variant."""

    factors: Annotated[list[Annotated[float, Field(ge=0.001, le=1000)]], Field(min_length=2), Once]
    """Times the variant's own learning rate (of Muon: both rates): `[0.5, 1, 2]`."""
    seed: Seed
    """The seed of these trainings. None of the study's: the chosen rate would be one that suits a seed that is compared."""

    @staticmethod
    def label(factor: float) -> str:
        """A factor, as stages and files can be called: 0.5 is `0_5`."""
        return f"{factor:g}".replace(".", "_")

    @model_validator(mode="after")
    def trials_have_names_of_their_own(self):
        labels = [self.label(factor) for factor in self.factors]
        if twice := next((factor for factor in self.factors if labels.count(self.label(factor)) > 1), None):
            raise ValueError(f"factors: two of {self.factors} are {twice:g} when written with six digits; list one of them")
        return self


class Study(Block):
    """A study: variants of a model on the same data, tasks, seeds and budget. `sesame study NAME` runs it."""

    question: Annotated[str, Field(min_length=1)]
    """The question of the study, for its page."""
    model: Annotated[Name, Refers(("models",))]
    """The name of an entry of `models`: the model that is varied."""
    encoding: EncodingName | None = None
    """The encoding that is read, if not that of the model."""
    base: RowName
    """The baseline: the variant that the others are compared with."""
    contrasts: list[tuple[RowName, RowName]] = []
    """Further pairs of variants to compare: the first minus the second, `[[ltr, no_nsp]]`."""
    tasks: list[TaskName] = []
    """Names of `tasks` on which every variant is fine-tuned."""
    evaluations: Annotated[list[EvaluationName], Once, Added(neutral=[])] = []
    """Names of `evaluations`: each variant is evaluated without tuning. This takes seconds, so the time goes into
    seeds."""
    seeds: Annotated[list[Seed], Field(min_length=1)]
    """Each seed pre-trains every variant and fine-tunes it once on every task: the spread covers both."""
    budget: Budget
    """The budget of each pre-training."""
    milestones: list[Count] = []
    """Models are also kept after these numbers of tokens, and fine-tuned like the last. Their learning rate has not
    decayed yet."""
    learning_rates: Annotated[LearningRates | None, Added(neutral=None)] = None
    """Each variant's learning rate is chosen among several; null: all have the one that is written."""
    train_examples: Annotated[Count | None, Added(neutral=None)] = None
    """Labelled examples of a fine-tuning; null: as many as `finetune` says."""
    eval_examples: Annotated[Count | dict[Name, Count] | None, Added(neutral=None)] = None
    """As in `finetune`; null: the value there."""
    recipe: Recipe | None = None
    """How every variant is fine-tuned; none where there are no tasks."""
    ladder: Annotated[list[RowName], Once, Added(neutral=[])] = []
    """Variants whose loss is predicted: loss = E + A / parameters^a + B / tokens^b (Hoffmann et al. 2022) is fitted to
    the others. All must have the same encoding; here each variant may have its own budget."""
    plot: Plot
    """The study's picture."""
    expects: list[Expectation] = []
    """Said and committed before the first run, with the seeds."""
    published: (
        Literal[
            "objective", "size", "inputs", "sharing", "electra", "t5_objectives", "t5_spans", "t5_architectures", "tune_or_freeze",
            "ulmfit", "adaptive",
        ]
        | None
    ) = None
    """A table of components/studies/published.yaml, printed next to ours."""
    variants: Annotated[dict[RowName, Variant], Field(min_length=1)]
    """Name -> what is different in it."""

    @property
    def measures(self) -> list[str]:
        """What variants are compared by: tasks and evaluations, each a column of the table."""
        return [*self.tasks, *self.evaluations]

    @model_validator(mode="after")
    def measures_fit(self):
        for key in ("seeds", "tasks"):
            if len(set(getattr(self, key))) < len(getattr(self, key)):
                raise ValueError(f"{key} lists one twice; list each once")
        if not self.measures:
            raise ValueError("neither tasks nor evaluations; name some, by which the variants are compared")
        if both := [name for name in self.evaluations if name in self.tasks]:
            raise ValueError(f"evaluations: {both[0]} is a task of this study, too; rename one of them")
        if self.tasks and not self.recipe:
            raise ValueError("recipe: missing; it says how variants are tuned on the study's tasks")
        if self.recipe and not self.tasks:
            raise ValueError("recipe has no effect: the study has no tasks; leave it out")
        if not self.tasks:
            self._nothing_is_tuned()
        if taken := [task for task in self.measures if task in (*get_args(Column), "variant", "milestone", "n", "finetune_seconds")]:
            raise ValueError(f"a task or an evaluation can't be called {taken[0]}: that is a column of the study's table")
        return self

    def _nothing_is_tuned(self) -> None:
        """Raises ValueError for settings of fine-tuning in a study without any: variants would differ in them alone."""
        self.refuse_idle(["train_examples", "eval_examples"], "the study has no tasks")
        for name, variant in self.variants.items():
            if variant.recipe or variant.train_examples:
                key = "recipe" if variant.recipe else "train_examples"
                raise ValueError(f"variants.{name}.{key} has no effect: the study has no tasks; leave it out")
            if variant.only_tuned and variant.init == "pretrained":
                raise ValueError(
                    f"variants.{name}: with `start` alone it is only tuned, and the study has no tasks: it would be "
                    f"{variant.start} again; give it a budget, or leave it out"
                )

    @model_validator(mode="after")
    def milestones_and_base_fit(self):
        if self.milestones and not self.budget.tokens:
            raise ValueError("milestones are numbers of tokens, so the budget must be in tokens too: set budget.tokens")
        if self.milestones and (sorted(set(self.milestones)) != self.milestones or self.milestones[-1] >= self.budget.tokens):
            raise ValueError(f"milestones {self.milestones} must be ascending and below budget.tokens")
        if self.base not in self.variants:
            raise ValueError(
                f"base: {self.base!r} is not a variant of this study (there are: {', '.join(self.variants)})"
            )
        if self.variants[self.base].init == "random":
            raise ValueError(f"base: {self.base} is tuned from random weights; take another variant as the baseline")
        return self

    @model_validator(mode="after")
    def ladder_fits(self):
        if unknown := [rung for rung in self.ladder if rung not in self.variants]:
            raise ValueError(
                f"ladder: {unknown[0]!r} is not a variant of this study (there are: {', '.join(self.variants)})"
            )
        if self.ladder and len(self.seeds) < 2:
            raise ValueError("ladder: prediction intervals need the spread over seeds, and there is one seed; add some")
        if self.ladder and len(self.variants) - len(self.ladder) < RUNGS:
            raise ValueError(
                f"ladder: the fit has five parameters and needs {RUNGS} variants or more besides those "
                "that are predicted"
            )
        if self.ladder and self.milestones:
            raise ValueError(
                "ladder: at a milestone the learning rate has not decayed yet; leave milestones out, "
                "and give the variants budgets"
            )
        return self

    @model_validator(mode="after")
    def starts_fit(self):
        for name, variant in self.variants.items():
            if variant.budget and variant.start is None and not self.ladder:
                raise ValueError(
                    f"variants.{name}: budget is for a training that continues from `start`; other "
                    "variants have the budget of the study"
                )
            if self.ladder and variant.start is not None:
                raise ValueError(
                    f"variants.{name}.start: every variant of a ladder is trained from scratch; leave start out"
                )
            if variant.start is None:
                continue
            if variant.start not in self.variants:
                raise ValueError(f"variants.{name}.start: no {variant.start!r} in this study (there are: {', '.join(self.variants)})")
            if self.milestones:
                raise ValueError(
                    f"variants.{name}.start: a study with milestones trains every variant from scratch; "
                    "leave start or milestones out"
                )
            chain = [name]
            while (following := self.variants[chain[-1]].start) is not None:
                chain.append(following)
                if following in chain[:-1]:
                    raise ValueError(f"variants.{name}.start: starts from itself ({' from '.join(chain)}); name another variant")
            if any(self.variants[name].init == "random" for name in chain[1:]):
                raise ValueError(f"variants.{name}.start: {chain[1]} has no trained weights, as its init is random; name another variant")
        return self

    @model_validator(mode="after")
    def learning_rates_fit(self):
        if self.learning_rates is None:
            return self
        if self.learning_rates.seed in self.seeds:
            raise ValueError(f"learning_rates.seed: {self.learning_rates.seed} is one of the study's seeds; take another")
        for name, variant in self.variants.items():
            if variant.start and variant.budget:
                raise ValueError(
                    f"variants.{name}: its training continues from {variant.start}, which learning_rates does not choose for; "
                    "leave learning_rates or the variant out"
                )
        return self

    @model_validator(mode="after")
    def contrasts_fit(self):
        for number, pair in enumerate(self.contrasts):
            if unknown := [variant for variant in pair if variant not in self.variants]:
                raise ValueError(
                    f"contrasts[{number}]: {unknown[0]!r} is not a variant of this study (there are: "
                    f"{', '.join(self.variants)})"
                )
            if self.base in pair or pair[0] == pair[1] or pair in self.contrasts[:number] or pair[::-1] in self.contrasts[:number]:
                raise ValueError(f"contrasts[{number}]: give two variants, each pair once, without the base, which is compared with all")
        return self

    @model_validator(mode="after")
    def expectations_fit(self):
        for number, expected in enumerate(self.expects):
            if expected.task not in (LOSS, *self.measures):
                known = ", ".join((LOSS, *self.measures))
                raise ValueError(
                    f"expects[{number}].task: {expected.task!r} is neither {LOSS} nor a task or evaluation of this study "
                    f"(there are: {known})"
                )
            against = expected.against or self.base
            known = [(variant, self.base) for variant in self.variants if variant != self.base] + self.contrasts
            if (expected.variant, against) not in known:
                pairs = ", ".join(f"{variant} against {other}" for variant, other in known)
                raise ValueError(f"expects[{number}]: {expected.variant} is not compared with {against} here (compared are: {pairs})")
        about = [(expected.variant, expected.against or self.base, expected.task) for expected in self.expects]
        if twice := next((number for number, one in enumerate(about) if one in about[:number]), None):
            first = about.index(about[twice])
            raise ValueError(f"expects[{twice}]: the comparison of expects[{first}], {' '.join(about[twice])}; leave one of them out")
        return self

    @model_validator(mode="after")
    def plot_fits(self):
        columns = (self.plot.x, *self.plot.y)
        if unknown := [column for column in columns if column not in (*get_args(Column), *self.measures)]:
            raise ValueError(f"plot: {unknown[0]!r} is neither a task or evaluation of the study nor one of {', '.join(get_args(Column))}")
        return self
