"""The stages that create models without pre-training: checkpoint, derive, word_model."""

from collections.abc import Iterator

from components.params import Params
from components.pretrain.stages import table
from components.stages.declaration import Entry, Inputs, Stage
from components.stages.parts import (
    family_module,
    judging_settings,
    method_modules,
    model_modules,
    source_modules,
    training_modules,
    tuning_settings,
)


def checkpoints(p: Params) -> Iterator[Entry]:
    for name, checkpoint in p.checkpoints.items():
        hub = (family_module(checkpoint.family), f"components.models.{checkpoint.family}.hub")
        modules = ("components.derive.checkpoints.__main__", *hub, *source_modules(checkpoint))
        yield Entry("checkpoint", name, modules, checkpoint.settings())


def derived_models(p: Params) -> Iterator[Entry]:
    for name, derived in p.derived.items():
        modules, family = ("components.derive.__main__", f"components.derive.{derived.by.name}"), p.family(name)
        modules += ("components.objectives.distillation.objective",) if derived.by.name == "distilled" else ()
        if derived.tasks:
            tasks = {task: judging_settings(p.tasks[task], derived.by.recipe) for task in derived.tasks}
            by_kind = {"task": tasks[derived.tasks[0]]} if derived.by.name == "tuned" else {"tasks": tasks}
            settings = {"finetune": tuning_settings(p), **by_kind, **derived.settings()}
            modules += (*model_modules(p, name), *method_modules(derived.by.recipe, family))
            yield Entry("derive", name, modules, settings)
        elif getattr(derived.by, "objective", None):
            training = training_modules(p, derived.by, family, derived.on.partition("/")[2])
            yield Entry("derive", name, (*modules, *training), derived.settings())
        else:
            yield Entry("derive", name, (*modules, *model_modules(p, name)), derived.settings())


def word_models(p: Params) -> Iterator[Entry]:
    for name, block in p.word_models.items():
        yield Entry("word_model", name, ("components.derive.words", family_module("static")), block.settings())


def inputs(p: Params) -> Iterator[Inputs]:
    for name, derived in p.derived.items():
        yield Inputs(name, [derived.on] if "/" in derived.on else [f"tasks/{task}" for task in derived.tasks])


STAGES = (
    Stage("checkpoint", checkpoints, "models/{0}", section="checkpoints", fetches=True),
    Stage("derive", derived_models, "models/{0}", section="derived", trains="text", inputs=inputs, table=table),
    Stage("word_model", word_models, "models/{0}", section="word_models"),
)
