"""Which stage uses what: its module, the parts of it that are found by name, and the settings that its result depends on."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from typing import Any

from components import params
from components.core.config import Block
from components.params.tasks import IN_WORDS
from components.params.text import LIBRARY
from components.stages.resolve.closure import fingerprint


@dataclass(frozen=True)
class Entry:
    """One stage of the pipeline, or one of a group (`pretrain`, `bert`)."""

    stage: str
    name: str
    """`all` for a stage that is no group."""
    modules: tuple[str, ...]
    """What it runs: its own module, and those it finds by name."""
    settings: dict[str, Any]
    """All that its result depends on, as JSON, defaults filled in."""

    @cached_property
    def code(self) -> str:
        """A fingerprint of what the modules run."""
        return fingerprint(self.modules)

    @property
    def key(self) -> str:
        """Of settings and code together, for work that is resumed; what is read is to be added."""
        return hashlib.sha256(f"{self.code} {json.dumps(self.settings, sort_keys=True)}".encode()).hexdigest()[:16]


def entry(all_params: params.Params, stage: str, name: str) -> Entry:
    """That of one stage, which must be declared."""
    return next(own for own in entries(all_params) if (own.stage, own.name) == (stage, name))


def entries(p: params.Params) -> Iterator[Entry]:
    """All stages of both pipelines."""
    yield from _text(p)
    yield from _models(p)
    yield from _tasks(p)
    yield from _spaces(p)
    yield from _generations(p)
    sections = {key: value for key, value in p.settings().items() if key not in params.OF_STUDIES}
    for section in params.SHARED:
        sections[section] = {name: own for name, own in sections[section].items() if name not in p.of_studies(section)}
    studies = {name: study.question for name, study in p.ablations.items()}  # which the page links to
    labels = {
        section: {name: [block.licence, getattr(block, "note", None)] for name, block in getattr(p, section).items()}
        for section in ("corpora", "tasks", "checkpoints", "published_vectors")
    }
    yield Entry("report", "all", ("components.report.__main__",), sections | {"studies": studies, "labels": labels})
    yield from _studies(p)


def _of(*blocks: Block | list[Block]) -> tuple[str, ...]:
    """The modules that read the sources of some blocks."""
    kinds = {source.kind for block in blocks for source in _sources(block)}
    return tuple(f"components.text.sources.{kind}" for kind in sorted(kinds))


def _sources(value: Any) -> Iterator[Any]:
    """Every source in a block, however deep."""
    if isinstance(value, Block):
        if "source" in type(value).model_fields and isinstance(value.source, Block):
            yield value.source
        for name in type(value).model_fields:
            yield from _sources(getattr(value, name))
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _sources(part)


def _text(p: params.Params) -> Iterator[Entry]:
    for name, corpus in p.corpora.items():
        formats = sorted({_corpus_reader(part.reader) for part in corpus.parts})
        readers = tuple(f"components.text.corpora.readers.{kind}" for kind in formats)
        shards = ("components.text.corpora.shards", "components.text.sources.portion") if corpus.shards else ()
        modules = ("components.text.corpora.__main__", *readers, *_of(corpus), *shards)
        yield Entry("corpus", name, modules, {"seed": p.seed, **corpus.settings()})
    for name, task in p.tasks.items():
        readers = (f"components.tasks.readers.{task.reader}",) if task.reader else ()
        yield Entry("task", name, ("components.tasks.__main__", *readers, *_of(task)), {"seed": p.seed, **task.settings()})
    for name, mix in p.mixes.items():
        base = p.corpora[mix.corpus]
        splits = {task: sorted(p.tasks[task].splits) for task in (*mix.tasks, *mix.also_held_out)}
        settings = {"seed": p.seed, **mix.settings(), "base": base.settings(), "splits": splits}
        yield Entry("mix", name, ("components.text.corpora.mix",), settings)
        yield _inputs("mix", name, "tasks", splits)
    for name, tokenizer in p.tokenizers.items():
        drawn = {"seed": p.seed} if tokenizer.sample_sentences else {}
        yield Entry("tokenizer", name, ("components.text.tokenizer.__main__", *_pieces(tokenizer)), drawn | tokenizer.settings())
    for name, encoding in p.encodings.items():
        corpus = p.corpora.get(encoding.corpus)
        shards = ("components.text.encode.shards",) if corpus and corpus.shards else ()
        yield Entry("encode", name, ("components.text.encode.__main__", *_text_of(p, name), *shards), encoding.settings())


def _inputs(stage: str, name: str, folder: str, names: Iterable[str]) -> Entry:
    """What a stage reads of a folder that others write to as well."""
    folders = [f"data/{folder}/{each}" for each in dict.fromkeys(names)]
    return Entry(f"{stage}_inputs", name, ("components.stages.inputs",), {"folders": folders})


def _corpus_reader(reader: params.Reader) -> str:
    return reader.format if reader.format in ("text", "parallel") else "table"


def _pieces(tokenizer: params.Tokenizer) -> tuple[str, ...]:
    """What is found by name where a text is read in these pieces."""
    return ("components.text.tokenizer.trained",) if tokenizer.kind in LIBRARY else ()


def _text_of(p: params.Params, encoding: str) -> tuple[str, ...]:
    return _pieces(p.tokenizers[p.encodings[encoding].tokenizer])


def _family(name: str) -> str:
    return f"components.models.{name}.model"


def _model(p: params.Params, name: str) -> tuple[str, ...]:
    """What is found by name where a model is loaded."""
    root = p.root(name)
    return _family(p.family(name)), *(_text_of(p, p.models[root].encoding) if root in p.models else ())


def _training(p: params.Params, block: params.Training, family: str, encoding: str) -> tuple[str, ...]:
    """What a training on text finds by name."""
    return _family(family), f"components.objectives.{block.objective.name}.objective", *_text_of(p, encoding)


def _models(p: params.Params) -> Iterator[Entry]:
    for name, model in p.models.items():
        modules = ("components.pretrain.__main__", *_training(p, model, model.architecture.name, model.encoding))
        yield Entry("pretrain", name, modules, model.settings())
        if name not in p.of_studies("models"):
            shown = {"objective": model.objective.settings(), "prompts": model.prompts}
            yield Entry("sample", name, ("components.pretrain.sample", *modules[1:]), shown)
    for name, checkpoint in p.checkpoints.items():
        hub = (_family(checkpoint.family), f"components.models.{checkpoint.family}.hub")
        yield Entry("checkpoint", name, ("components.derive.checkpoints.__main__", *hub, *_of(checkpoint)), checkpoint.settings())
    for name, derived in p.derived.items():
        folder, _, read = derived.on.partition("/")
        yield _inputs("derive", name, folder, [read] if read else derived.tasks)
        way, family = ("components.derive.__main__", f"components.derive.{derived.by.name}"), p.family(name)
        way += ("components.objectives.distillation.objective",) if derived.by.name == "distilled" else ()
        if derived.tasks:
            judged = {task: _judging(p.tasks[task], derived.by.recipe) for task in derived.tasks}
            asked = {"task": judged[derived.tasks[0]]} if derived.by.name == "tuned" else {"tasks": judged}
            settings = {"finetune": _common(p), **asked, **derived.settings()}
            yield Entry("derive", name, (*way, *_model(p, name), *_method(derived.by.recipe, family)), settings)
        elif getattr(derived.by, "objective", None):
            yield Entry("derive", name, (*way, *_training(p, derived.by, family, derived.on.partition("/")[2])), derived.settings())
        else:
            yield Entry("derive", name, (*way, *_model(p, name)), derived.settings())


def _method(recipe: params.Recipe, family: str) -> tuple[str, ...]:
    """What a way to adapt a model of a family finds by name."""
    decoding = _decoding(family) if recipe.method == "text_to_text" else ()
    return f"components.finetune.methods.{recipe.method}", *decoding


def _decoding(family: str) -> tuple[str, ...]:
    """How a family writes; nothing of one that doesn't, which the stage says then."""
    module = f"components.models.{family}.decoding"
    return (module,) if find_spec(module) else ()


def _common(p: params.Params) -> dict[str, Any]:
    """What every fine-tuning depends on of what all have in common."""
    finetune = p.finetune.settings()
    return {"seed": p.seed} | {key: finetune[key] for key in ("train_examples", "eval_examples", "precision", "threads")}


def _judging(task: params.Task, *recipes: params.Recipe) -> dict[str, Any]:
    """What of a task is not in its data already: what is asked, and how an answer is judged; in which words, where a recipe uses some."""
    whole = task.settings()
    splits = {name: {"labelled": split.labelled, "metrics": split.metrics} for name, split in task.splits.items()}
    words = ("prompt",) if any(recipe.method in IN_WORDS for recipe in recipes) else ()
    kept = ("kind", "labels", "range", "metrics", "cut", "lowercase", *words)
    return {key: whole[key] for key in kept if key in whole} | {"splits": splits}


def _tasks(p: params.Params) -> Iterator[Entry]:
    seeds, inits = {"seeds": p.finetune.seeds}, {"inits": p.finetune.inits}
    for model, task in product(p.finetune.models, p.finetune.tasks):
        recipe = p.finetune.recipes[model]
        settings = _common(p) | seeds | inits | {"recipe": recipe.settings(), "task": _judging(p.tasks[task], recipe)}
        modules = ("components.finetune.__main__", *_model(p, model), *_method(recipe, p.family(model)))
        yield Entry("finetune", f"{model}-{task}", modules, settings)
    for model, way, task in product(p.adapt.models, p.adapt.methods, p.adapt.tasks):
        recipe = p.adapt.recipes[way]
        settings = _common(p) | seeds | {"recipe": recipe.settings(), "task": _judging(p.tasks[task], recipe)}
        modules = ("components.finetune.adapt", *_model(p, model), *_method(recipe, p.family(model)))
        yield Entry("adapt", f"{model}-{way}-{task}", modules, settings)
    curve = p.learning_curve
    for model, task in product(curve.models, curve.tasks):
        recipe, own = p.finetune.recipes[model], {key: getattr(curve, key) for key in ("train_examples", "min_steps", "baselines")}
        own |= {"baseline": p.baselines.settings()}
        settings = _common(p) | seeds | inits | {"recipe": recipe.settings(), "task": _judging(p.tasks[task], recipe)} | own
        modules = ("components.finetune.learning_curve", *_model(p, model), *_method(recipe, p.family(model)))
        yield Entry("learning_curve", f"{model}-{task}", modules, settings)
    for task in p.finetune.tasks:
        settings = _common(p) | seeds | {"baselines": p.baselines.settings(), "task": _judging(p.tasks[task])}
        yield Entry("baseline", task, ("components.finetune.baseline", *_pieces(p.tokenizers[p.baselines.tokenizer])), settings)


def _spaces(p: params.Params) -> Iterator[Entry]:
    for name, vectors in p.vectors.items():
        trainer = f"components.embeddings.trainers.{vectors.kind}"
        yield Entry("vectors", name, ("components.embeddings.vectors", trainer), vectors.settings())
    for name, published in p.published_vectors.items():
        yield Entry("published_vectors", name, ("components.embeddings.published", *_of(published)), published.settings())
    for name, contextual in p.contextual_vectors.items():
        yield Entry("contextual_vectors", name, ("components.embeddings.contextual", *_model(p, contextual.model)), contextual.settings())
    for name, pair in p.alignments.items():
        dictionary = f"components.embeddings.dictionaries.{pair.dictionary.kind}"
        yield Entry("align", name, ("components.embeddings.align", dictionary, *_of(pair)), pair.settings())
    for name, history in p.histories.items():
        yield Entry("history", name, ("components.embeddings.history",), history.settings())
        yield _inputs("history", name, "vectors", history.periods)
    for name, groups in p.groups.items():
        yield Entry("group", name, ("components.embeddings.group",), groups.settings())


def _generations(p: params.Params) -> Iterator[Entry]:
    for name, block in p.generations.items():
        modules = ("components.generate.__main__", *_model(p, block.model), *_decoding(p.family(block.model)), *_of(block))
        # what it was trained on and by says what is held out, what is new, and how a hole is marked
        trained = [
            {"encoding": encoding, "objective": objective.settings(), "lowercase": p.tokenizers[p.encodings[encoding].tokenizer].lowercase}
            for encoding, objective in p.read_by(block.model)
        ]
        yield Entry("generate", name, modules, {"trained": trained, **block.settings()})


def _studies(p: params.Params) -> Iterator[Entry]:
    for name, study in p.ablations.items():
        common = _common(p) | {"milestones": study.milestones}
        for variant in study.variants:
            model, recipe = params.varied(p.models, study, variant, 0), params.tuned(study, variant)
            family, training = model.architecture.name, model.settings() | {"milestones": study.milestones}
            tuning = {"tasks": {task: _judging(p.tasks[task], recipe) for task in study.tasks}, "recipe": recipe.settings()}
            if study.variants[variant].train_examples:
                tuning |= {"train_examples": study.variants[variant].train_examples}
            if study.variants[variant].init == "random":
                tuning |= {"init": "random"}
            first, by = "variant" if study.variants[variant].start is None else "further", study.variants[variant].by
            for seed in study.seeds:
                own = params.Member(name, variant, seed).name
                if by:
                    way = ("components.studies.intermediate", f"components.derive.{by.name}", *_method(by.recipe, family))
                    asked = {task: _judging(p.tasks[task], by.recipe) for task in study.variants[variant].intermediate}
                    settings = {"finetune": _common(p), "tasks": asked, "by": by.settings(), "seed": seed}
                    yield Entry("intermediate", own, (*way, _family(family), *_text_of(p, model.encoding)), settings)
                elif not study.variants[variant].only_tuned:
                    modules = (f"components.studies.{first}", *_training(p, model, family, model.encoding))
                    yield Entry(first, own, modules, training | {"seed": seed})
                modules = ("components.studies.transfer", _family(family), *_text_of(p, model.encoding), *_method(recipe, family))
                yield Entry("transfer", own, modules, common | tuning | {"own_seed": seed})
    for name, study in p.ablations.items():
        settings = study.settings() | {"judged": {task: _judging(p.tasks[task]) for task in study.tasks}}
        # of a study's page: which text it read, and whether that of its tasks was held out
        settings |= {"encodings": p.settings()["encodings"], "mixes": p.settings()["mixes"], "model": p.models[study.model].settings()}
        yield Entry("study", name, ("components.studies.__main__",), settings)
        tuned_before = (task for variant in study.variants.values() for task in variant.intermediate)
        yield _inputs("study", name, "tasks", (*study.tasks, *tuned_before))
    search = p.search.settings()
    lasting = {key: value for key, value in search.items() if key not in ("models", "tasks", "inits", "confidence")}
    for name, (model, task, init) in p.search.runs.items():
        recipe = p.finetune.recipes[model]
        methods = {recipe.method, *(p.search.space["method"].ends if "method" in p.search.space else ())}
        drawn = (module for method in sorted(methods) for module in _method(recipe.model_copy(update={"method": method}), p.family(model)))
        modules = ("components.labs.search.__main__", *_model(p, model), *drawn)
        asked = _judging(p.tasks[task], *(recipe.model_copy(update={"method": method}) for method in methods))
        settings = _common(p) | {"search": lasting | {"init": init}, "recipe": recipe.settings(), "task": asked}
        yield Entry("search", name, modules, settings)
    yield from _seeds(p)
    yield from _tickets(p)
    yield from _points(p)
    metrics = {task: p.tasks[task].metric for task in p.search.tasks}
    yield Entry("budget", "all", ("components.labs.search.budget",), search | {"metrics": metrics})


def _seeds(p: params.Params) -> Iterator[Entry]:
    grid = p.seed_grid
    own = {"init": grid.init, "orders": grid.orders, "train_examples": grid.train_examples}
    for name, (model, task, seed) in grid.runs.items():
        modules, settings = _tuned_again(p, "components.labs.seeds.row", model, task)
        yield Entry("seed_row", name, modules, settings | own | {"initialisation": seed})
    judged = {task: _judging(p.tasks[task]) for task in grid.tasks}
    yield Entry("seed_grid", "all", ("components.labs.seeds.__main__",), {"grid": grid.settings(), "tasks": judged})


def _tickets(p: params.Params) -> Iterator[Entry]:
    block = p.tickets
    own = {"rounds": block.rounds, "prune": block.prune, "train_examples": block.train_examples}
    for name, (model, task, seed) in block.runs.items():
        modules, settings = _tuned_again(p, "components.labs.tickets.rounds", model, task)
        yield Entry("tickets", name, modules, settings | own | {"own_seed": seed})
    judged = {task: _judging(p.tasks[task]) for task in block.tasks}
    yield Entry("tickets_page", "all", ("components.labs.tickets.__main__",), {"tickets": block.settings(), "tasks": judged})


def _tuned_again(p: params.Params, module: str, model: str, task: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What a stage of a module runs and depends on that tunes a model by its recipe of `finetune`."""
    recipe = p.finetune.recipes[model]
    settings = _common(p) | {"recipe": recipe.settings(), "task": _judging(p.tasks[task], recipe)}
    return (module, *_model(p, model), *_method(recipe, p.family(model))), settings


def _points(p: params.Params) -> Iterator[Entry]:
    block, used = p.efficiency, set()
    for name, (label, task) in block.runs.items():
        point, recipe = block.points[label], block.tuned(label)
        settings = _common(p) | {"seeds": p.finetune.seeds, "task": _judging(p.tasks[task], recipe), "recipe": recipe.settings()}
        settings |= {"point": point.settings(), "thresholds": block.thresholds if recipe.method == "early_exit" else []}
        modules = (*_model(p, point.model), *_method(recipe, p.family(point.model)))
        used |= set(modules)
        stage = "taught" if point.teacher else "point"
        yield Entry(stage, name, (f"components.labs.efficiency.{stage}", *modules), settings)
    if block.points:
        judged = {task: _judging(p.tasks[task]) for task in block.tasks}
        settings = _common(p) | {"efficiency": block.settings(), "tasks": judged, "energy": p.energy.settings()}
        yield Entry("efficiency", "all", ("components.labs.efficiency.__main__", *sorted(used)), settings)
