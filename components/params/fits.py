"""What has to fit between the sections of params: a recipe its model and task, an objective its vocabulary, a study its text.

Each check raises ValueError with the place and the way to mend it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

from pydantic import ValidationError

from components.core.config import MODELS, Block
from components.params.derived import Derived
from components.params.evaluations import Evaluation
from components.params.generation import Generation
from components.params.messages import first
from components.params.models import Model, Objective, Training
from components.params.patch_fits import images_fit, patches_fit
from components.params.recipe_fits import keeps_zeros, reads_otherwise, recipe_fits, task_fits
from components.params.recipes import Recipe
from components.params.studies import LOSS, Study
from components.params.tasks import Task
from components.params.text import Tokenizer
from components.params.variants import (
    at_rate,
    begun_by,
    bits_rule,
    loss_target,
    read_by,
    trained_by,
    tries_rates,
    tuned,
    varied,
)
from components.params.whole import Params


def _generation_fits(p: Params, place: str, generation: Generation) -> None:
    """Raises ValueError where a model can't write what is asked, before it is trained for that."""
    architecture, inputs = p.architecture(generation.model), generation.inputs
    if architecture is None:  # a checkpoint's files say it, or a wrong name, which is reported by `references`
        return
    if how := reads_otherwise(architecture):
        raise ValueError(f"{place}.model: {generation.model} does not write from left to right (it reads {how})")
    if inputs.kind == "parallel" and architecture.reads != "source_then_target":
        raise ValueError(f"{place}.inputs: {generation.model} goes on with a text and has no source; take kind: beginnings")
    if inputs.kind == "beginnings" and inputs.tokens >= architecture.max_length:
        raise ValueError(
            f"{place}.inputs.tokens {inputs.tokens}: {generation.model} reads {architecture.max_length} "
            "and has no room to go on; give fewer"
        )


def check(p: Params) -> None:
    """Raises ValueError for the first thing that does not fit."""
    for name, study in p.studies.items():
        if study.model in p.models:  # a wrong name is reported by `references`
            _study_fits(p, name, study)
    for name, model in p.models.items():
        _text_fits(p, f"models.{name}", model)
    for name, derived in p.derived.items():
        _derived_fits(p, name, derived)
    for name in p.word_models:
        _word_model_fits(p, name)
    uses = [*_uses(p)]
    for use in uses:
        if architecture := use.model and p.architecture(use.model):
            section = next(section for section in MODELS if use.model in getattr(p, section))
            recipe_fits(use.place, f"{section}.{use.model}", architecture, use.recipe)
        keeps_zeros(p, use.place, use.model, use.recipe)
    for name, generation in p.generations.items():
        _generation_fits(p, f"generations.{name}", generation)
    _tasks_fit(p, uses)
    _seeds_are_independent(p)
    for name, evaluation in p.evaluations.items():
        if task := p.tasks.get(getattr(evaluation, "task", None)):
            _probed_task_fits(f"evaluations.{name}", evaluation, task)
    for name, pair in p.alignments.items():
        sizes = {p.vectors[side].vector_size for side in (pair.source, pair.target) if side in p.vectors}
        if len(sizes) > 1:
            raise ValueError(
                f"alignments.{name}: {pair.source} and {pair.target} have different vector_size: {sorted(sizes)}"
            )
    for place, section in (("finetune", p.finetune), *((f"studies.{name}", each) for name, each in p.studies.items())):
        _splits_are_there(p, f"{place}.eval_examples", section.eval_examples, section.tasks)


class Use(NamedTuple):
    """A recipe where it adapts a model to tasks."""

    place: str
    model: str
    """Empty where only the tasks are to be compared with the recipe."""
    recipe: Recipe
    tasks: Collection[str]


def _uses(p: Params) -> Iterator[Use]:
    """Every recipe of the file with the model and the tasks that it is for. A recipe that nothing uses has no tasks."""
    recipes = p.finetune.recipes
    for name, recipe in recipes.items():
        place = f"finetune.recipes.{name}"
        yield Use(place, name, recipe, p.finetune.tasks if name in p.finetune.models else ())
        for section in (p.learning_curve, p.seed_grid, p.tickets):
            if name in section.models:
                yield Use(place, name, recipe, section.tasks)
    for name, derived in p.derived.items():
        if derived.tasks:
            yield Use(f"derived.{name}.by.recipe", derived.start, derived.by.recipe, derived.tasks)
    for method in p.adapt.methods:
        for model in p.adapt.models if method in p.adapt.recipes else ():
            yield Use(f"adapt.recipes.{method}", model, p.adapt.recipes[method], p.adapt.tasks)
    for name in p.search.models:
        if name in recipes:
            yield from (Use("search.space", name, recipe, ()) for recipe in _searched(p, name, recipes[name]))
            for method in searched_methods(p, recipes[name]):
                yield Use("search.space", "", recipes[name].model_copy(update={"method": method}), p.search.tasks)


def _searched(p: Params, name: str, recipe: Recipe) -> Iterator[Recipe]:
    """The recipes that values of one field or two of the space make of a model's. Raises ValueError where they do not go together."""
    values = [{key: value} for key, draw in p.search.space.items() for value in draw.ends]
    for one, other in combinations_with_replacement(values, 2):
        drawn = one | other
        if one == other or one.keys() != other.keys():
            try:
                yield recipe.drawn(drawn)
            except ValidationError as error:
                shown = " with ".join(f"{key} {value}" for key, value in drawn.items())
                raise ValueError(f"search.space: {shown} does not fit the recipe of {name}{first(error)}") from None


def searched_methods(p: Params, recipe: Recipe) -> list[str]:
    return p.search.space["method"].ends if "method" in p.search.space else [recipe.method]


def _tasks_fit(p: Params, uses: Collection[Use]) -> None:
    """Raises ValueError where a recipe does not suit one of its tasks, or sets what none of its tasks can use."""
    kinds = defaultdict(set)
    recipes = {}
    for use in uses:
        key = use.place, use.recipe.model_dump_json()
        recipes[key] = use.recipe
        for name in p.tasks.keys() & use.tasks:
            task_fits(use.place, name, p.tasks[name], use.recipe)
            if architecture := use.model and p.architecture(use.model):
                images_fit(use.place, use.model, architecture, use.recipe.max_length, name, p.tasks[name])
            kinds[key].add(p.tasks[name].kind)
    for key, of_tasks in kinds.items():  # a recipe may be for several tasks, of which one at least has classes
        if idle := recipes[key].idle(of_tasks):
            raise ValueError(f"{key[0]}.{idle}")


def _study_fits(p: Params, name: str, study: Study) -> None:
    seen: dict[tuple, str] = {}  # all that a variant runs -> its name
    for variant, declared in study.variants.items():
        place = f"studies.{name}.variants.{variant}"
        try:
            model = varied(p.models, study, variant, 1)
        except ValidationError as error:
            raise ValueError(f"{place}.change{first(error)}") from None
        if tries_rates(study, variant):
            for factor in study.learning_rates.factors:
                try:
                    at_rate(model, factor)
                except ValidationError as error:
                    raise ValueError(f"studies.{name}.learning_rates: {factor:g} times the rate of {variant}{first(error)}") from None
        try:
            recipe = tuned(study, variant)
        except ValidationError as error:
            raise ValueError(f"{place}.recipe{first(error)}") from None
        source = trained_by(study, variant)
        begins, trained = begun_by(study, source), study.variants[source]
        examples = declared.train_examples or study.train_examples or p.finetune.train_examples
        run = (model, recipe, begins, declared.init, examples, trained.on, trained.by)
        key = tuple(part.model_dump_json() if isinstance(part, Block) else part for part in run)
        if (same := seen.setdefault(key, variant)) != variant:
            raise ValueError(f"{place}: it is the same as {same}, so that their difference is noise; leave one of them out")
        if recipe:
            recipe_fits(f"studies.{name}.recipe", place, model.architecture, recipe)
        uses = [(f"{place}.recipe", recipe, study.tasks)]
        if declared.by:
            recipe_fits(f"{place}.by.recipe", place, model.architecture, declared.by.recipe)
            uses.append((f"{place}.by.recipe", declared.by.recipe, declared.intermediate))
        for recipe_place, used, tasks in uses:
            for task in p.tasks.keys() & tasks:
                task_fits(recipe_place, task, p.tasks[task], used)
        _text_fits(p, place, model)
        if declared.start:
            before = read_by(p.models, study, declared.start)
            _same_tokenizer(p, f"{place}.encoding", before, model.encoding, f"variant {declared.start}")
    for number, expected in enumerate(study.expects):
        against = expected.against or study.base
        targets = {loss_target(p.models, study, variant) for variant in (expected.variant, against)}
        if expected.task == LOSS and len(targets) > 1:
            raise ValueError(
                f"studies.{name}.expects[{number}].task: the {LOSS} of {expected.variant} and {against} do not compare, "
                "as they differ in text, tokenizer, objective or length of rows; take an evaluation"
            )
        evaluation = p.evaluations.get(expected.task)
        rules = {bits_rule(p, study, variant) for variant in (expected.variant, against)}
        if evaluation and evaluation.within_one_rule and len(rules) > 1:
            raise ValueError(
                f"studies.{name}.expects[{number}].task: the bits of {expected.variant} and {against} do not compare, as one is masked "
                "and the other is not, or one has lower-cased text; take another evaluation"
            )


def _text_fits(p: Params, place: str, model: Model) -> None:
    """Raises ValueError where a model of characters reads other tokens, or the vocabulary has too few sentinels."""
    name, tokenizer = _tokenizer(p, model.encoding)
    if tokenizer and model.architecture.of_characters and tokenizer.kind != "characters":
        raise ValueError(
            f"{place}: architecture {model.architecture.name} reads characters, and tokenizers.{name} is of "
            f"kind {tokenizer.kind}; take kind: characters"
        )
    patches_fit(p, place, model, tokenizer)
    _has_sentinels(p, place, model, model.objective)


def _has_sentinels(p: Params, place: str, model: Model, objective: Objective) -> None:
    """Raises ValueError where an objective hides more spans than the vocabulary of the model's text has names for."""
    length = model.architecture.max_length
    name, tokenizer = _tokenizer(p, model.encoding)
    if tokenizer and (most := objective.sentinels(length)) > tokenizer.sentinels:
        raise ValueError(
            f"{place}: objective {objective.name} hides up to {most} spans of a row of {length}, and tokenizers.{name} "
            f"has {tokenizer.sentinels} sentinels for them; raise its sentinels"
        )


def _word_model_fits(p: Params, name: str) -> None:
    """Raises ValueError where a model is made of its own vectors in context."""
    chain = [name]
    while (root := p.root(chain[-1])) in p.word_models and (vectors := p.word_models[root].vectors) in p.contextual_vectors:
        chain += [vectors, p.contextual_vectors[vectors].model]
        if chain[-1] in chain[:-1]:
            raise ValueError(f"word_models.{name}: is made of itself ({' from '.join(chain)}); name other vectors")


def _derived_fits(p: Params, name: str, derived: Derived) -> None:
    """Raises ValueError where a model can't be made of its start in this way, or not on this text."""
    place, chain = f"derived.{name}", [name]
    while chain[-1] in p.derived:
        chain.append(p.derived[chain[-1]].start)
        if chain[-1] in chain[:-1]:
            raise ValueError(f"derived.{chain[-1]}: starts from itself ({' from '.join(chain)}); name another start")
    try:
        p.architecture(name)
    except ValueError as error:
        raise ValueError(f"{place}.by: {error}") from None
    if isinstance(derived.by, Training) and (start := p.sparse(derived.start)):
        raise ValueError(
            f"{place}: pre-training would change the zeros of {start}; make the model sparse after pre-training"
        )
    objective = getattr(derived.by, "objective", None)
    if objective is None:
        return
    root = chain[-1]
    if root not in p.models:
        raise ValueError(f"{place}: {derived.by.name} on text needs a start from `models`, and {root} is not there")
    model = p.models[root]
    try:
        objective.check_reader(model.architecture)
    except ValueError as error:
        raise ValueError(f"{place}.by.objective: {error}") from None
    _has_sentinels(p, place, model, objective)
    _same_tokenizer(p, f"{place}.on", model.encoding, derived.on.partition("/")[2], f"models.{root}")


def _same_tokenizer(p: Params, place: str, before: str, after: str, whose: str) -> None:
    """Raises ValueError where a training would continue on text of another tokenizer."""
    tokenizers = [_tokenizer(p, encoding)[0] for encoding in (before, after)]
    if all(tokenizers) and tokenizers[0] != tokenizers[1]:
        raise ValueError(f"{place}: encoded/{after} has another tokenizer than the text of {whose} ({' and '.join(tokenizers)})")


def _tokenizer(p: Params, encoding: str) -> tuple[str, Tokenizer | None]:
    """The tokenizer of an encoding, by its name; empty and None where names lead nowhere, which `references` reports."""
    name = p.encodings[encoding].tokenizer if encoding in p.encodings else ""
    return name, p.tokenizers.get(name)


def _probed_task_fits(place: str, evaluation: Evaluation, task: Task) -> None:
    if task.kind not in ("classification", "regression"):
        raise ValueError(f"{place}.task: {evaluation.task} is of kind {task.kind}; take a classification or a regression")
    if evaluation.split not in task.splits or not task.splits[evaluation.split].labelled:
        raise ValueError(f"{place}.split: {evaluation.task} has no labelled split {evaluation.split}; take one that has labels")


def _seeds_are_independent(p: Params) -> None:
    """Raises ValueError where seeds of fine-tuning share the pre-trainings of a model: counted as runs of their own, ten seeds over three
    pre-trainings would show a difference where there is none in one case of six."""
    seeds = len(p.finetune.seeds)
    for name in dict.fromkeys((*p.finetune.models, *p.adapt.models, *p.learning_curve.models)):
        if name in p.models and 1 < (pretrainings := p.models[name].pretrainings) < seeds:
            raise ValueError(
                f"finetune.seeds: {seeds} seeds share the {pretrainings} pre-trainings of {name}, and are not independent; list "
                f"{pretrainings} seeds, or set models.{name}.pretrainings to {seeds}"
            )


def _splits_are_there(p: Params, place: str, examples: object, tasks: Collection[str]) -> None:
    """Raises ValueError where numbers of examples are given for a split that none of the tasks has."""
    if isinstance(examples, dict):
        splits = {split for name in p.tasks.keys() & tasks for split in p.tasks[name].splits} - {"train"} | {"dev", "test"}
        if unknown := sorted(examples.keys() - splits):
            raise ValueError(f"{place}: no split {unknown[0]!r} in its tasks (there are: {', '.join(sorted(splits))})")
