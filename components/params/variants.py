"""The model, recipe and stages of each variant of a study."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from components.core.config import named_blocks
from components.models.common.config import SIZED
from components.params.models import Architecture, Model, Objective
from components.params.recipes import Recipe
from components.params.studies import LearningRates, Study

if TYPE_CHECKING:
    from components.params.whole import Params


class Member(NamedTuple):
    """One training of a study: a seed of a variant."""

    study: str
    variant: str
    seed: int

    @property
    def name(self) -> str:
        """As its stages are called."""
        return "-".join(map(str, self))


def members(studies: Mapping[str, Study]) -> Iterator[Member]:
    """All trainings of all studies."""
    for name, study in studies.items():
        for variant in study.variants:
            for seed in study.seeds:
                yield Member(name, variant, seed)


class RateTrial(NamedTuple):
    """A training of a variant at one of the learning rates that its study tries."""

    study: str
    variant: str
    factor: float

    @property
    def label(self) -> str:
        """The factor, as in the name of its stage."""
        return LearningRates.label(self.factor)

    @property
    def name(self) -> str:
        """As its stage is called."""
        return f"{self.study}-{self.variant}-{self.label}"


def tries_rates(study: Study, variant: str) -> bool:
    """Whether the learning rate of a variant is chosen among several. One that begins with another's models has that one's."""
    return study.learning_rates is not None and study.variants[variant].start is None


def rate_trials(studies: Mapping[str, Study]) -> Iterator[RateTrial]:
    """All trainings of all studies that choose a learning rate."""
    for name, study in studies.items():
        for variant in study.variants:
            if tries_rates(study, variant):
                for factor in study.learning_rates.factors:
                    yield RateTrial(name, variant, factor)


KINDS = {
    part: named_blocks(union) for part, union in (("architecture", Architecture), ("objective", Objective))
}  # fmt: skip
"""Part of a model's block -> name -> its block."""


def laid_over(block: Mapping[str, Any], change: Mapping[str, Any], part: str = "") -> dict[str, Any]:
    """A section with the values of a change merged into it, at any depth. `part` is the key of the section."""
    merged = dict(block)
    kind = change.get("name", block.get("name"))
    if kind != block.get("name") and (kinds := KINDS.get(part, {})) and isinstance(kind, str) and kind in kinds:
        merged = {key: value for key, value in merged.items() if key in kinds[kind].model_fields}
    if part == "architecture" and change.get("size"):  # which is in place of these
        merged = {key: value for key, value in merged.items() if key not in SIZED}
    for key, value in change.items():
        merged[key] = laid_over(merged[key], value, key) if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping) else value
    return merged


def trained_by(study: Study, variant: str) -> str:
    """The variant whose training made the weights that a variant is tuned from."""
    declared = study.variants[variant]
    return trained_by(study, declared.start) if declared.only_tuned else variant


def begun_by(study: Study, variant: str) -> str | None:
    """The variant whose models the training of a variant goes on with; None where it begins with random weights."""
    start = study.variants[variant].start
    return trained_by(study, start) if start else None


def read_by(models: Mapping[str, Model], study: Study, variant: str) -> str:
    """The encoding that a variant was trained on last."""
    declared = study.variants[variant]
    if declared.encoding or not declared.start:
        return declared.encoding or study.encoding or models[study.model].encoding
    return read_by(models, study, declared.start)


def varied(models: Mapping[str, Model], study: Study, variant: str, seed: int) -> Model:
    """The block of one training of a variant. Raises ValidationError where the change does not fit."""
    declared = study.variants[variant]
    if declared.only_tuned:
        return varied(models, study, declared.start, seed)
    start = varied(models, study, declared.start, seed) if declared.start else models[study.model]
    given = {"encoding": read_by(models, study, variant), "seed": seed, "budget": declared.budget or study.budget}
    given |= {"pretrainings": 1, "prompts": []}
    return Model.model_validate(laid_over(start.model_dump(exclude_unset=True), declared.change) | given)


def at_rate(model: Model, factor: float) -> Model:
    """A model's block with its learning rates times a factor. Raises ValidationError where one is too large then."""
    return model.model_copy(update={"optimizer": model.optimizer.at_rate(factor)})


def tried(models: Mapping[str, Model], studies: Mapping[str, Study], trial: RateTrial) -> Model:
    """The block of a training that tries a learning rate."""
    study = studies[trial.study]
    return at_rate(varied(models, study, trial.variant, study.learning_rates.seed), trial.factor)


def trained_on_text(models: Mapping[str, Model], studies: Mapping[str, Study], stage: str, name: str) -> Model | None:
    """The block that a stage of a study pre-trains by, at the learning rate that is written; None for another stage."""
    if stage in ("variant", "variant_at_rate", "further"):
        member = next((member for member in members(studies) if member.name == name), None)
        return member and varied(models, studies[member.study], member.variant, member.seed)
    if stage == "rate_trial":
        trial = next((trial for trial in rate_trials(studies) if trial.name == name), None)
        return trial and tried(models, studies, trial)
    return None


def loss_target(models: Mapping[str, Model], study: Study, variant: str) -> str:
    """What the loss of a variant is asked of: text, tokenizer, objective and length of rows. Losses of other targets don't
    compare."""
    model = varied(models, study, variant, study.seeds[0])
    return json.dumps([model.encoding, model.objective.settings(), model.architecture.max_length], sort_keys=True)


MASKED = ("both_sides", "any_order")
"""How models read of which a sentence has a pseudo-log-likelihood, not a probability."""


def bits_rule(all_params: "Params", study: Study, variant: str) -> tuple[bool, bool]:
    """Whether the bits of a sentence are a pseudo-log-likelihood, and whether they leave out which letters are capitals. The bits of
    variants of two rules don't compare."""
    model = varied(all_params.models, study, variant, study.seeds[0])
    encoding = all_params.encodings.get(model.encoding)
    tokenizer = encoding and all_params.tokenizers.get(encoding.tokenizer)
    return model.architecture.reads in MASKED, bool(tokenizer and tokenizer.lowercase)


def tuned(study: Study, variant: str) -> Recipe | None:
    """How a variant is fine-tuned; None where the study has no tasks. Raises ValidationError where its own values do not fit."""
    if study.recipe is None:
        return None
    changes = study.variants[variant].recipe
    return Recipe.model_validate(laid_over(study.recipe.under(changes), changes))
