"""The whole of the params: the sections, and what has to fit between them."""

from typing import Annotated, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from components.core.config import Block, Name, RunOnly, Seed
from components.models.common.config import ArchitectureBlock
from components.params.derived import SMALLER, Derived
from components.params.efficiency import Efficiency
from components.params.evaluations import Evaluate, Evaluation
from components.params.generation import Generation
from components.params.messages import first
from components.params.models import Checkpoint, Model, Objective, Training
from components.params.price import Price
from components.params.search import Search
from components.params.seeds import SeedGrid
from components.params.spaces import Alignment, ContextualVectors, Groups, History, PublishedVectors, Vectors
from components.params.studies import LOSS, Study, loss_target, read_by, tuned, varied
from components.params.tasks import ATTACHED, IN_WORDS, ONE_LAYER, Adapt, Baselines, Finetune, LearningCurve, Recipe, Task
from components.params.text import Corpus, Encoding, Mix, TextRun, Tokenizer
from components.params.tickets import Tickets

Watts = Annotated[float, Field(gt=0, le=1e6)]


class Energy(Block):
    """Power figures for the *estimated* energy: kWh = pue * hours * watts / 1000 (Strubell et al. 2019, section 2)."""

    pue: Annotated[float, Field(ge=1, le=100)] = 1.58
    """Power usage effectiveness: a data centre's power for each watt of its computers (1.58 was the mean of 2018,
    Strubell et al. 2019)."""
    watts_per_core: Watts = 10.0
    """The power of a busy core."""
    watts_per_gib: Watts = 0.375
    """The power of a GiB of resident memory."""
    watts_per_gpu: Watts = 300.0
    """The power of a GPU at work."""


class Resources(Block):
    """What a stage takes for itself.

    `gpu` and `cpu` are those of the machine, shared out among all flows and lanes on it: a pre-training takes as many GPUs as its
    `run.devices`, or as many cores as its `trainer.threads` (null: all), a fine-tuning one GPU or `finetune.threads`; with `gpu` eight
    variants train side by side on eight GPUs. Stages that name the same other resource never run side by side in a flow. null lets them
    run beside each other, which on a small machine with one thread each is the faster way.
    """

    pretrain: str | None = None
    """`gpu`, `cpu`, null, or a name of your own."""
    finetune: str | None = None
    """`gpu`, `cpu`, null, or a name of your own."""


WRITE = ("left_to_right", "recurrent", "source_then_target")
"""How models read that write."""


def _recipe_fits(place: str, model: str, architecture: ArchitectureBlock, recipe: Recipe) -> None:
    """Raises ValueError where a recipe, which stands at `place`, can't adapt a model."""
    if not architecture.has_sublayers and recipe.method in ATTACHED:
        raise ValueError(
            f"{place}.method {recipe.method} needs the blocks of a Transformer, and {model} has none; "
            "take another method"
        )
    if recipe.method in ONE_LAYER and not -1 <= recipe.layer <= architecture.num_layers:
        raise ValueError(f"{place}.layer {recipe.layer}: {model} has 0 (embedding) to {architecture.num_layers}, -1 is the last")
    if recipe.method == "early_exit" and architecture.name not in SMALLER:
        raise ValueError(
            f"{place}.method early_exit needs architecture {' or '.join(SMALLER)}, and {model} is {architecture.name}"
        )
    if recipe.exits and recipe.exits[-1] > architecture.num_layers:
        raise ValueError(
            f"{place}.exits: layer {recipe.exits[-1]} does not exist; {model} has {architecture.num_layers}"
        )
    if recipe.method in IN_WORDS and (architecture.reads not in WRITE or getattr(architecture, "backward", False)):
        how = "from the end" if architecture.reads in WRITE else architecture.reads
        raise ValueError(
            f"{place}.method {recipe.method} needs a model that generates text, and {model} does not (it reads {how})"
        )
    if recipe.method == "text_to_text":
        both = architecture.reads != "source_then_target"
        if (longest := recipe.target_length + both * recipe.max_length) > architecture.max_length:
            what = "max_length and target_length together are" if both else "target_length is"
            raise ValueError(f"{place}: {what} {longest}, more than {model} has room for ({architecture.max_length})")
    if recipe.max_length > architecture.max_length:
        raise ValueError(
            f"{place}.max_length {recipe.max_length} is more than the model reads, "
            f"{model}.architecture.max_length {architecture.max_length}"
        )


def _task_fits(place: str, name: str, task: Task, recipe: Recipe) -> None:
    """Raises ValueError where a recipe, which stands at `place`, can't answer what a task asks."""
    if recipe.method in IN_WORDS and task.kind not in (able := IN_WORDS[recipe.method]):
        raise ValueError(f"{place}.method {recipe.method} is for tasks of kind {', '.join(able)}, and {name} is of kind {task.kind}")
    if recipe.calibrated and task.kind != "classification":
        raise ValueError(f"{place}.calibrated has no effect: {name} has no labels; leave it out")
    if recipe.method == "early_exit" and task.kind != "classification":
        raise ValueError(f"{place}.method early_exit is for tasks of kind classification, and {name} is of kind {task.kind}")
    if task.kind == "text" and recipe.method not in IN_WORDS:
        raise ValueError(
            f"{place}.method {recipe.method} generates no text, as the task {name} needs; take text_to_text"
        )


class Params(Block):
    """The whole of `params.yaml`, of `studies/params.yaml`, and of the studies, a file each."""

    seed: Seed
    """Splits and subsets of data, and all that names no seed itself: models, vectors, generations."""
    energy: Energy
    """Watts that the estimated energy is reckoned with."""
    price: Price
    """The money and CO2e that hours and kWh cost."""
    resources: Annotated[Resources, RunOnly()]
    """The resource that a training takes for itself, so that others wait."""
    run_on: Annotated[str, Field(pattern=r"^[\w.-]{1,100}$", description="here, or the name of a work pool"), RunOnly()] = "here"
    """Where stages run: `here`, or the name of a work pool of Prefect, whose machines have clones of their own (`sesame worker`)."""
    text: Annotated[TextRun, RunOnly()] = TextRun()
    """Who works on corpora with `shards`."""
    corpora: dict[Name, Corpus]
    """Name -> text from one or more sources, cleaned and split by document."""
    tasks: dict[Name, Task]
    """Name -> a fine-tuning task, declared whole."""
    mixes: dict[Name, Mix]
    """Name -> a corpus with the training text of tasks."""
    tokenizers: dict[Name, Tokenizer]
    """Name -> how text becomes tokens."""
    encodings: dict[Name, Encoding]
    """Name -> a corpus as token ids."""
    models: dict[Name, Model]
    """Name -> a pre-training: architecture, objective, data, budget."""
    checkpoints: dict[Name, Checkpoint]
    """Name -> pre-trained weights from elsewhere, in the form of `transformers`."""
    derived: dict[Name, Derived]
    """Name -> a model made of another one: tuned, pre-trained on, distilled, pruned."""
    finetune: Finetune
    """Every model on every task: the comparison of the report."""
    adapt: Adapt
    """Several ways to adapt, next to each other."""
    learning_curve: LearningCurve
    """Scores at fewer labelled examples."""
    baselines: Baselines
    """Baselines that need no pre-training, on the same examples."""
    vectors: dict[Name, Vectors]
    """Name -> word vectors trained on a corpus."""
    published_vectors: dict[Name, PublishedVectors]
    """Name -> word vectors from elsewhere."""
    contextual_vectors: dict[Name, ContextualVectors]
    """Name -> word vectors out of a model, by a word's mean over its occurrences."""
    alignments: dict[Name, Alignment]
    """Name -> two vector spaces, a dictionary, and the methods that bring them together."""
    histories: dict[Name, History]
    """Name -> words through several periods."""
    groups: dict[Name, Groups]
    """Name -> words that two sets of writers use differently."""
    generations: dict[Name, Generation]
    """Name -> what a model writes, and how good it is."""
    evaluations: dict[Name, Evaluation]
    """Name -> what models are asked without being tuned."""
    evaluate: Evaluate
    """Which models are asked what."""
    studies: dict[Name, Study] = {}
    """Name -> a study: variants of a model on the same data, tasks, seeds and budget."""
    search: Search = Search()
    """A search for hyperparameters of fine-tuning."""
    seed_grid: SeedGrid = SeedGrid()
    """Every initialisation with every order of the examples."""
    tickets: Tickets = Tickets()
    """Lottery tickets: pruned and rewound models."""
    efficiency: Efficiency = Efficiency()
    """Models compared by what an answer costs."""
    _of_studies: dict[str, frozenset[str]] = PrivateAttr(default_factory=dict)

    @property
    def away(self) -> bool:
        """Whether stages run on other machines."""
        return self.run_on != "here"

    def of_studies(self, section: str) -> frozenset[str]:
        """What of a section, `tokenizers`, `encodings`, `models` or `derived`, the studies' file declares: made when a study reads it."""
        return self._of_studies.get(section, frozenset())

    def main(self, section: str) -> dict[str, Block]:
        """What of a section the main pipeline makes."""
        return {name: block for name, block in getattr(self, section).items() if name not in self.of_studies(section)}

    def root(self, model: str) -> str:
        """The model or checkpoint that one is derived from, over all steps: the name itself where it is no derived one."""
        while model in self.derived:
            model = self.derived[model].start
        return model

    def read_by(self, model: str) -> list[tuple[str, Objective]]:
        """The encodings that a model was pre-trained on, and by what, first to last; none of one from elsewhere that was not."""
        steps, root = [], model
        while root in self.derived:
            block = self.derived[root]
            steps += [(block.on.partition("/")[2], block.by.objective)] if isinstance(block.by, Training) else []
            root = block.start
        steps += [(self.models[root].encoding, self.models[root].objective)] if root in self.models else []
        return steps[::-1]

    def family(self, model: str) -> str:
        """The architecture of a model, whatever made it."""
        root = self.root(model)
        return self.models[root].architecture.name if root in self.models else self.checkpoints[root].family

    def architecture(self, model: str) -> ArchitectureBlock | None:
        """Of a model, whatever made it; None of one from elsewhere, whose files say it. Raises ValueError where it can't be made so."""
        if model in self.derived:
            start = self.architecture(self.derived[model].start)
            return start and self.derived[model].by.architecture(start)
        return self.models[model].architecture if model in self.models else None

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(model, evaluation) of every stage `evaluate`."""
        return [(model, evaluation) for evaluation in self.evaluate.evaluations for model in self.evaluate.models]

    def of_study(self, name: str) -> Self:
        """These params with as many examples as the study says."""
        study = self.studies[name]
        said = {key: value for key in ("train_examples", "eval_examples") if (value := getattr(study, key)) is not None}
        return self.model_copy(update={"finetune": self.finetune.model_copy(update=said)}) if said else self

    @model_validator(mode="after")
    def studies_fit(self):
        for name, study in self.studies.items():
            if study.model not in self.models:
                continue  # told as a wrong name
            for variant in study.variants:
                place = f"studies.{name}.variants.{variant}"
                try:
                    model = varied(self.models, study, variant, 1)
                except ValidationError as error:
                    raise ValueError(f"{place}.change{first(error)}") from None
                try:
                    recipe = tuned(study, variant)
                except ValidationError as error:
                    raise ValueError(f"{place}.recipe{first(error)}") from None
                if recipe:
                    _recipe_fits(f"studies.{name}.recipe", place, model.architecture, recipe)
                asked = [(f"{place}.recipe", recipe, study.tasks)]
                if first_tuned := study.variants[variant].by:
                    _recipe_fits(f"{place}.by.recipe", place, model.architecture, first_tuned.recipe)
                    asked += [(f"{place}.by.recipe", first_tuned.recipe, study.variants[variant].intermediate)]
                for where, own, tasks in asked:
                    for task in self.tasks.keys() & tasks:  # another is told as a wrong name
                        _task_fits(where, task, self.tasks[task], own)
                self._reads_pieces(place, model)
                if start := study.variants[variant].start:
                    self._same_pieces(f"{place}.encoding", read_by(self.models, study, start), model.encoding, f"variant {start}")
            for number, expected in enumerate(study.expects):
                against = expected.against or study.base
                sides = {loss_target(self.models, study, variant) for variant in (expected.variant, against)}
                if expected.task == LOSS and len(sides) > 1:
                    raise ValueError(
                        f"studies.{name}.expects[{number}].task: the {LOSS} of {expected.variant} and {against} do not compare, "
                        "as they differ in text, tokenizer, objective or length of rows; take an evaluation"
                    )
        return self

    def _reads_pieces(self, place: str, model: Model) -> None:
        """Raises ValueError where a model of characters reads other pieces, or spans have no sentinels in the vocabulary."""
        encoding = self.encodings.get(model.encoding)
        tokenizer = self.tokenizers.get(encoding.tokenizer) if encoding else None
        if tokenizer and model.architecture.of_characters and tokenizer.kind != "characters":
            raise ValueError(
                f"{place}: architecture {model.architecture.name} reads characters, and tokenizers.{encoding.tokenizer} is of "
                f"kind {tokenizer.kind}; take kind: characters"
            )
        self._has_sentinels(place, model, model.objective)

    def _has_sentinels(self, place: str, model: Model, objective: Objective) -> None:
        """Raises ValueError where an objective hides more spans than the vocabulary of the model's text has names for."""
        encoding, length = self.encodings.get(model.encoding), model.architecture.max_length
        tokenizer = self.tokenizers.get(encoding.tokenizer) if encoding else None
        if tokenizer and (most := objective.sentinels(length)) > tokenizer.sentinels:
            raise ValueError(
                f"{place}: objective {objective.name} hides up to {most} spans of a row of {length}, and tokenizers.{encoding.tokenizer} "
                f"has {tokenizer.sentinels} sentinels for them; raise its sentinels"
            )

    @model_validator(mode="after")
    def blocks_fit_each_other(self):
        for name, model in self.models.items():
            self._reads_pieces(f"models.{name}", model)
        for name, derived in self.derived.items():
            chain = [name]
            while chain[-1] in self.derived:
                chain.append(self.derived[chain[-1]].start)
                if chain[-1] in chain[:-1]:
                    raise ValueError(
                        f"derived.{chain[-1]}: starts from itself ({' from '.join(chain)}); name another start"
                    )
            self._derived_fits(f"derived.{name}", derived, chain[-1])
        used = [(f"finetune.recipes.{name}", name, recipe) for name, recipe in self.finetune.recipes.items()]
        used += [(f"derived.{name}.by.recipe", block.start, block.by.recipe) for name, block in self.derived.items() if block.tasks]
        ways = [name for name in self.adapt.methods if name in self.adapt.recipes]
        used += [(f"adapt.recipes.{name}", model, self.adapt.recipes[name]) for name in ways for model in self.adapt.models]
        bases = {name: self.finetune.recipes[name] for name in self.search.models if name in self.finetune.recipes}
        for key, draw in self.search.space.items():
            used += [
                ("search.space", name, recipe.model_copy(update={key: value})) for name, recipe in bases.items() for value in draw.ends
            ]
        for place, name, recipe in used:
            if architecture := self.architecture(name):
                _recipe_fits(place, f"{'derived' if name in self.derived else 'models'}.{name}", architecture, recipe)
        tuned_here = [name for name in self.finetune.models if name in self.finetune.recipes]
        asked = [(f"finetune.recipes.{name}", self.finetune.recipes[name], self.finetune.tasks) for name in tuned_here]
        asked += [(f"derived.{name}.by.recipe", block.by.recipe, block.tasks) for name, block in self.derived.items() if block.tasks]
        asked += [(f"adapt.recipes.{name}", self.adapt.recipes[name], self.adapt.tasks) for name in ways]
        curves = [name for name in self.learning_curve.models if name in self.finetune.recipes]
        asked += [(f"finetune.recipes.{name}", self.finetune.recipes[name], self.learning_curve.tasks) for name in curves]
        for name, recipe in bases.items():
            methods = self.search.space["method"].ends if "method" in self.search.space else [recipe.method]
            asked += [("search.space", recipe.model_copy(update={"method": method}), self.search.tasks) for method in methods]
            if "in_context" in methods:
                raise ValueError(f"search.models: by {name}'s recipe nothing is trained (in_context); leave {name} out")
        if self.learning_curve.models and (
            missing := [name for name in self.learning_curve.baselines if name not in self.baselines.methods]
        ):
            raise ValueError(
                f"learning_curve.baselines: {missing[0]} is not in baselines.methods, from which the last "
                "point of the curve is taken; add it there"
            )
        if idle := [name for name in curves if self.finetune.recipes[name].method == "in_context"]:
            raise ValueError(
                f"learning_curve.models: by {idle[0]}'s recipe nothing is trained (in_context); vary its "
                "shots in adapt instead"
            )
        for section, block in (("seed_grid", self.seed_grid), ("tickets", self.tickets)):
            asked += [(f"finetune.recipes.{name}", recipe, block.tasks) for name, recipe in self._tuned_again(section, block)]
        for place, recipe, names in asked:
            for name in self.tasks.keys() & names:  # another is told as a wrong name
                _task_fits(place, name, self.tasks[name], recipe)
        together: dict[tuple[str, str], set[str]] = {}
        for place, recipe, names in asked:
            found = {self.tasks[name].kind for name in names if name in self.tasks}
            together.setdefault((place, recipe.model_dump_json()), set()).update(found)
        recipes = {(place, recipe.model_dump_json()): recipe for place, recipe, _ in asked}
        for (place, key), kinds in together.items():  # a recipe may be for several tasks, of which one at least has classes
            if kinds and (idle := recipes[place, key].idle(kinds)):
                raise ValueError(f"{place}.{idle}")
        self._search_fits(bases)
        self._efficiency_fits()
        for name, pair in self.alignments.items():
            sizes = {self.vectors[side].vector_size for side in (pair.source, pair.target) if side in self.vectors}
            if len(sizes) > 1:
                raise ValueError(f"alignments.{name}: {pair.source} and {pair.target} have different vector_size: {sorted(sizes)}")
        for place, block in (("finetune", self.finetune), *((f"studies.{name}", study) for name, study in self.studies.items())):
            if isinstance(block.eval_examples, dict):
                known = {split for name in self.tasks.keys() & block.tasks for split in self.tasks[name].splits}
                known = known - {"train"} | {"dev", "test"}
                if unknown := sorted(block.eval_examples.keys() - known):
                    raise ValueError(f"{place}.eval_examples: no split {unknown[0]!r} in its tasks (there are: {', '.join(sorted(known))})")
        return self

    def _tuned_again(self, section: str, block: SeedGrid | Tickets) -> list[tuple[str, Recipe]]:
        """The models of a section that tunes some by their recipes of `finetune`. Raises ValueError where one says nothing there."""
        recipes = [(name, self.finetune.recipes[name]) for name in block.models if name in self.finetune.recipes]
        for name, recipe in recipes:
            if section == "tickets" and recipe.method != "full":
                raise ValueError(f"tickets.models: {name}'s recipe trains no weights that could be pruned ({recipe.method}, not full)")
            if recipe.method == "in_context":
                raise ValueError(
                    f"{section}.models: by {name}'s recipe nothing is trained (in_context), so seeds have "
                    f"no effect; leave {name} out"
                )
            if section == "seed_grid" and recipe.patience is not None:
                raise ValueError(
                    f"seed_grid.models: {name}'s recipe has patience, which gives trainings different "
                    "lengths; leave patience out"
                )
        for name in block.tasks:
            if section == "seed_grid" and name in self.tasks and not (self.tasks[name].test and self.tasks[name].test.labelled):
                raise ValueError(
                    f"seed_grid.tasks: {name} has no test split with labels, on which the best run on dev is evaluated"
                )
        return recipes

    def _derived_fits(self, place: str, derived: Derived, root: str) -> None:
        """Raises ValueError where a model can't be made of one so, or not on this text."""
        try:
            self.architecture(place.partition(".")[2])
        except ValueError as error:
            raise ValueError(f"{place}.by: {error}") from None
        begun = derived.start
        while isinstance(derived.by, Training) and begun in self.derived:
            if self.derived[begun].by.name == "sparsified":
                raise ValueError(
                    f"{place}: pre-training would change the zeros of {begun}; make the model sparse after pre-training"
                )
            begun = self.derived[begun].start
        objective = getattr(derived.by, "objective", None)
        if objective is None:
            return
        if root not in self.models:
            raise ValueError(f"{place}: {derived.by.name} on text needs a start from `models`, and {root} is not there")
        model = self.models[root]
        try:
            objective.check_reader(model.architecture)
        except ValueError as error:
            raise ValueError(f"{place}.by.objective: {error}") from None
        self._has_sentinels(place, model, objective)
        self._same_pieces(f"{place}.on", model.encoding, derived.on.partition("/")[2], f"models.{root}")

    def _same_pieces(self, place: str, begun: str, following: str, whose: str) -> None:
        """Raises ValueError where a training would go on with text of another tokenizer."""
        encodings = [self.encodings.get(name) for name in (begun, following)]
        if all(encodings) and encodings[0].tokenizer != encodings[1].tokenizer:
            tokenizers = " and ".join(encoding.tokenizer for encoding in encodings)
            raise ValueError(f"{place}: encoded/{following} has another tokenizer than the text of {whose} ({tokenizers})")

    def _efficiency_fits(self) -> None:
        block = self.efficiency
        for name in block.tasks:
            if name in self.tasks and (kind := self.tasks[name].kind) != "classification":
                raise ValueError(f"efficiency.tasks: {name} is of kind {kind}; name tasks of kind classification")
            if name in self.tasks and not (self.tasks[name].test and self.tasks[name].test.labelled):
                raise ValueError(
                    f"efficiency.tasks: {name} has no test split with labels; name another task, as dev "
                    "is used to fit temperatures"
                )
        for name, point in block.points.items():
            steps, begun = [], point.model
            while begun in self.derived:
                steps, begun = [*steps, self.derived[begun].by.name], self.derived[begun].start
            if point.factorised and "sparsified" in steps:
                raise ValueError(
                    f"efficiency.points.{name}.factorised: a low-rank model can't be made of "
                    f"{point.model}, whose zeros refer to the original matrices"
                )
            if architecture := self.architecture(point.model):
                of = "derived" if point.model in self.derived else "models"
                _recipe_fits(f"efficiency.points.{name}.recipe", f"{of}.{point.model}", architecture, block.tuned(name))

    def _search_fits(self, recipes: dict[str, Recipe]) -> None:
        search = self.search
        for name, recipe in recipes.items():
            if search.pruner.name != "none" and search.pruner.min_epochs >= (longest := search.longest(recipe)):
                raise ValueError(
                    f"search.pruner: {name} has at most {longest} epochs, fewer than min_epochs "
                    f"{search.pruner.min_epochs} leaves to stop; lower min_epochs"
                )
        for name in search.tasks:
            task = self.tasks.get(name)
            if task and search.metric and search.metric not in (there := task.dev.metrics or task.metrics):
                raise ValueError(f"search.metric {search.metric} is not among those of the dev split of tasks.{name} ({', '.join(there)})")
