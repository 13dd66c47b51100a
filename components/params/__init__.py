"""`params.yaml` and `studies/params.yaml` as typed, documented models: every knob of the pipeline, its unit and its default.

Unknown keys are errors, and every problem of a file is reported at once with its path. A default is changed in the code, here
or in a family's or an objective's `config.py`, and `components.stages.resolve` sees to it that what used it is stale.
The JSON schemas for editors are written by `python -m components.params`; run it after each change here.

The blocks are here together, or in a `config.py`, and not next to the code that runs, because the command line, DVC's
plan and every light stage read them, and none of those should pay for importing torch. `whole` has the sections,
`reading` the files, `messages` and `references` what can be wrong with them.
"""

from components.params.alignment import Alignment, Groups, History, Method
from components.params.derived import Derived, Distilled, MultiTask, Pretrained, Tuned
from components.params.dictionaries import (
    IdenticalDictionary,
    Pairs,
    PairsDictionary,
    ParallelDictionary,
    WordNetDictionary,
)
from components.params.efficiency import Efficiency, Point, Quantised
from components.params.evaluations import Evaluate, Evaluation
from components.params.expectations import Expectation
from components.params.finetune import Adapt, Baselines, Finetune, LearningCurve
from components.params.generation import Beam, BeginningInputs, Generation, Greedy, HowWritten, ParallelInputs, Sample
from components.params.models import (
    Accelerator,
    Architecture,
    Budget,
    Checkpoint,
    Model,
    Objective,
    Optimizer,
    Phase,
    Precision,
    Rendezvous,
    Running,
    Trainer,
    Training,
)
from components.params.price import Price
from components.params.reading import (
    FILE,
    MOST,
    SHARED,
    STUDIES,
    STUDY_FOLDER,
    check,
    files,
    joined,
    load,
    parse,
    schemas,
    studies_beside,
)
from components.params.recipes import FROZEN, Recipe
from components.params.references import OF_STUDIES
from components.params.search import Draw, Pruner, Search, SearchBudget
from components.params.seeds import SeedGrid
from components.params.smaller import Pruned, Sparsified, Truncated
from components.params.sources import (
    BucketSource,
    FilesSource,
    HubModelSource,
    HubSource,
    ImagesSource,
    PypiSource,
    Source,
    SyntheticSource,
    UrlSource,
)
from components.params.studies import LOSS, Column, Study, Variant
from components.params.tasks import METRICS_OF, Prompt, Task, TaskSplit, TaskTable
from components.params.text import (
    Cleaning,
    Corpus,
    CorpusPart,
    Encoding,
    Mix,
    ParallelReader,
    Reader,
    Splits,
    TableReader,
    TextReader,
    TextRun,
    Tokenizer,
)
from components.params.tickets import Tickets
from components.params.variants import (
    Member,
    RateTrial,
    at_rate,
    begun_by,
    bits_rule,
    loss_target,
    members,
    rate_trials,
    read_by,
    trained_by,
    trained_on_text,
    tried,
    tries_rates,
    tuned,
    varied,
)
from components.params.vectors import ContextualVectors, PpmiSvd, PublishedVectors, SkipGram, Vectors
from components.params.whole import Energy, Params, Resources
