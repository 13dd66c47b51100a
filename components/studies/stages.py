"""The stages of studies: pre-training of each variant and seed, its fine-tuning, and the study's page."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from components import params
from components.params import Model, Params, Study
from components.stages.declaration import Entry, Inputs, Stage
from components.stages.parts import (
    encoding_modules,
    family_module,
    judging_settings,
    method_modules,
    training_modules,
    tuning_settings,
)


def _members(p: Params) -> Iterator[tuple[str, Study, str, Model, int]]:
    """The name of each stage with its study, variant, model and seed."""
    for member in params.members(p.studies):
        study = p.studies[member.study]
        yield member.name, study, member.variant, params.varied(p.models, study, member.variant, 0), member.seed


def _study_params(p: Params, member: str) -> Params:
    """The params with the numbers of examples of a stage's study."""
    return p.of_study(member.partition("-")[0])


def _text_trainings(p: Params, stage: str, continued: bool = False, chosen_rate: bool = False) -> Iterator[Entry]:
    for name, study, variant, model, seed in _members(p):
        block = study.variants[variant]
        if block.by or block.only_tuned or (block.start is not None) != continued or params.tries_rates(study, variant) != chosen_rate:
            continue
        modules = (f"components.studies.{stage}", *training_modules(p, model, model.architecture.name, model.encoding))
        yield Entry(stage, name, modules, model.settings() | {"milestones": study.milestones, "seed": seed})


def rate_trials(p: Params) -> Iterator[Entry]:
    for trial in params.rate_trials(p.studies):
        model = params.tried(p.models, p.studies, trial)
        modules = ("components.studies.rate_trial", *training_modules(p, model, model.architecture.name, model.encoding))
        yield Entry("rate_trial", trial.name, modules, model.settings())


def rates(p: Params) -> Iterator[Entry]:
    factors: dict[str, list[float]] = {}
    for trial in params.rate_trials(p.studies):
        factors.setdefault(f"{trial.study}-{trial.variant}", []).append(trial.factor)
    for name, tried in factors.items():
        yield Entry("rate", name, ("components.studies.rate",), {"factors": tried})


def intermediate(p: Params) -> Iterator[Entry]:
    for name, study, variant, model, seed in _members(p):
        if (block := study.variants[variant]).by:
            family, by = model.architecture.name, block.by
            modules = ("components.studies.intermediate", f"components.derive.{by.name}", *method_modules(by.recipe, family))
            tasks = {task: judging_settings(p.tasks[task], by.recipe) for task in block.intermediate}
            settings = {"finetune": tuning_settings(_study_params(p, name)), "tasks": tasks, "by": by.settings(), "seed": seed}
            modules += (family_module(family), *encoding_modules(p, model.encoding))
            yield Entry("intermediate", name, modules, settings)


def transfers(p: Params) -> Iterator[Entry]:
    for name, study, variant, model, seed in _members(p):
        recipe, family, block = params.tuned(study, variant), model.architecture.name, study.variants[variant]
        modules = ("components.studies.transfer", family_module(family), *encoding_modules(p, model.encoding))
        settings: dict[str, Any] = {"milestones": study.milestones, "own_seed": seed}
        if recipe:
            settings |= tuning_settings(_study_params(p, name)) | {"recipe": recipe.settings()}
            settings |= {"tasks": {task: judging_settings(p.tasks[task], recipe) for task in study.tasks}}
            modules += ("components.studies.finetuned", *method_modules(recipe, family))
        if block.train_examples:
            settings |= {"train_examples": block.train_examples}
        if block.init == "random":
            settings |= {"init": "random"}
        if study.evaluations:
            kinds = {evaluation: p.evaluations[evaluation].kind for evaluation in study.evaluations}
            settings |= {"evaluations": kinds}
            modules += ("components.studies.evaluated",)
            modules += tuple(f"components.evaluations.{kind}.evaluation" for kind in sorted({*kinds.values()}))
        yield Entry("transfer", name, modules, settings)


def pages(p: Params) -> Iterator[Entry]:
    for name, study in p.studies.items():
        settings = study.settings() | {"judged": {task: judging_settings(p.tasks[task]) for task in study.tasks}}
        # the text that the variants read decides whether the tasks' examples were held out
        encodings = {params.read_by(p.models, study, variant) for variant in study.variants}
        mixes = {p.encodings[encoding].corpus for encoding in encodings}
        sections = (("encodings", encodings), ("mixes", mixes))
        read = {key: {one: block for one, block in p.settings()[key].items() if one in names} for key, names in sections}
        yield Entry("study", name, ("components.studies.__main__",), settings | read | {"model": p.models[study.model].settings()})


def inputs(p: Params) -> Iterator[Inputs]:
    for name, study in p.studies.items():
        tuned_before = (task for variant in study.variants.values() for task in variant.intermediate)
        tasks = (f"tasks/{task}" for task in (*study.tasks, *tuned_before))
        yield Inputs(name, (*tasks, *(f"evaluations/{evaluation}" for evaluation in study.evaluations)))


STAGES = (
    Stage("variant", partial(_text_trainings, stage="variant"), "variants", trains="text"),
    Stage("rate_trial", rate_trials, "variants", trains="text"),
    Stage("rate", rates, "variants"),
    Stage(
        "variant_at_rate", partial(_text_trainings, stage="variant_at_rate", chosen_rate=True), "variants", trains="text"
    ),
    Stage("further", partial(_text_trainings, stage="further", continued=True), "variants", trains="text"),
    Stage("intermediate", intermediate, "variants", trains="tasks"),
    Stage("transfer", transfers, "studies", trains="tasks"),
    Stage("study", pages, "report/studies", section="studies", inputs=inputs),
)
