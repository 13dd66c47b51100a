"""All sections of params. What has to fit between them is in `fits`."""

from typing import Annotated, Self

from pydantic import Field, PrivateAttr

from components.core.config import MODELS, Block, Name, RunOnly, Seed
from components.models.common.config import ArchitectureBlock
from components.models.static.config import StaticArchitecture
from components.params.alignment import Alignment, Groups, History
from components.params.derived import Derived
from components.params.efficiency import Efficiency
from components.params.evaluations import Evaluate, Evaluation
from components.params.finetune import Adapt, Baselines, Finetune, LearningCurve
from components.params.generation import Generation
from components.params.models import Checkpoint, Model, Objective, Training
from components.params.price import Price
from components.params.search import Search
from components.params.seeds import SeedGrid
from components.params.studies import Study
from components.params.tasks import Task
from components.params.text import Corpus, Encoding, Mix, TextRun, Tokenizer
from components.params.tickets import Tickets
from components.params.vectors import ContextualVectors, PublishedVectors, Vectors, WordModel

OF_STUDIES = ("studies", "search", "seed_grid", "tickets", "efficiency")
"""Sections of the studies' file. What they name may be declared in either file."""
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

    `gpu` and `cpu` are those of the machine, shared by all flows and worktree runs on it: a pre-training takes as many
    GPUs as its `run.devices`, or as many cores as its `trainer.threads` (null: all), a fine-tuning one GPU or
    `finetune.threads`; with `gpu` eight variants train side by side on eight GPUs. Stages that name the same other
    resource never run side by side in a flow. null lets them run beside each other, which on a small machine with one
    thread each is the faster way.
    """

    pretrain: str | None = None
    """`gpu`, `cpu`, null, or a name of your own."""
    finetune: str | None = None
    """`gpu`, `cpu`, null, or a name of your own."""


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
    word_models: dict[Name, WordModel]
    """Name -> word vectors as a model, for the same tasks and probes as pre-trained models."""
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
        """The names of a section that only the studies' file declares. They are built when a study needs them."""
        return self._of_studies.get(section, frozenset())

    def main(self, section: str) -> dict[str, Block]:
        """What of a section the main pipeline makes."""
        return {name: block for name, block in getattr(self, section).items() if name not in self.of_studies(section)}

    @property
    def all_models(self) -> list[str]:
        """The names of all models, of whatever section."""
        return [name for section in MODELS for name in getattr(self, section)]

    def root(self, model: str) -> str:
        """The model or checkpoint that one is derived from, over all steps: the name itself where it is no derived one."""
        while model in self.derived:
            model = self.derived[model].start
        return model

    def sparse(self, model: str) -> str:
        """The last step from its root to a model that has set weights to zero; empty where none has."""
        while model in self.derived and self.derived[model].by.name != "sparsified":
            model = self.derived[model].start
        return model if model in self.derived else ""

    def read_by(self, model: str) -> list[tuple[str, Objective]]:
        """The encodings that a model was pre-trained on, and by what, first to last; none of one from elsewhere that was not."""
        steps, root = [], model
        while root in self.derived:
            block = self.derived[root]
            steps += [(block.on.partition("/")[2], block.by.objective)] if isinstance(block.by, Training) else []
            root = block.start
        steps += [(self.models[root].encoding, self.models[root].objective)] if root in self.models else []
        return steps[::-1]

    def corpora_of(self, model: str) -> list[str] | None:
        """The corpora that a model has read, also as word vectors; None for one from elsewhere, whose text is unknown."""
        root, read = self.root(model), [self.encodings[encoding].corpus for encoding, _ in self.read_by(model)]
        if root in self.models:
            return read
        vectors = self.word_models[root].vectors if root in self.word_models else ""
        if vectors in self.vectors:
            return [self.vectors[vectors].corpus, *read]
        if vectors in self.contextual_vectors:
            of_vectors = self.corpora_of(self.contextual_vectors[vectors].model)
            return of_vectors and [*of_vectors, *read]
        return None

    def held_out(self, corpus: str, task: str) -> bool:
        """Whether the dev and test text of a task was held out of a corpus, which only a mix does."""
        mix = self.mixes.get(corpus)
        return mix is not None and task in (*mix.tasks, *mix.also_held_out)

    def family(self, model: str) -> str:
        """The family of any model."""
        root = self.root(model)
        if root in self.word_models:
            return "static"
        return self.models[root].architecture.name if root in self.models else self.checkpoints[root].family

    def architecture(self, model: str) -> ArchitectureBlock | None:
        """The architecture of any model; None for a checkpoint, whose files say it. Raises ValueError if the model can't be derived so."""
        if model in self.derived:
            start = self.architecture(self.derived[model].start)
            return start and self.derived[model].by.architecture(start)
        if model in self.word_models:
            block = self.word_models[model]
            size = getattr(self.vectors.get(block.vectors), "vector_size", 1)  # that of vectors from elsewhere stands in their file
            return StaticArchitecture(name="static", vector_size=size, max_length=block.max_length)
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
