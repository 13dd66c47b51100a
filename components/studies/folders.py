"""The folders of a study's trainings. In a module of its own, so that a change of the tables makes no training stale."""

from pathlib import Path

from components import params
from components.core.errors import SesameError
from components.stages.outputs import read_json

REPORTS = Path("data/report/studies")
RATES = "rates"
"""The folder of the trainings that try learning rates, beside those of the seeds."""
LAST = "last"
"""The model at the end of its budget; earlier ones are named after the number of tokens they had read."""


def member(all_params: params.Params, name: str) -> params.Member:
    """The training that a stage is named after. Raises SesameError where it is not declared."""
    declared = {member.name: member for member in params.members(all_params.studies)}
    if name not in declared:
        raise SesameError(f"no training {name!r} in the studies of {params.STUDY_FOLDER} (there are: {', '.join(declared) or 'none'})")
    return declared[name]


def rate_trial(all_params: params.Params, name: str) -> params.RateTrial:
    """The training that tries a learning rate, by the name of its stage. Raises SesameError where it is not declared."""
    declared = {trial.name: trial for trial in params.rate_trials(all_params.studies)}
    if name not in declared:
        raise SesameError(f"no learning rate {name!r} is tried in {params.STUDY_FOLDER} (there are: {', '.join(declared) or 'none'})")
    return declared[name]


def pretrained_folder(member: params.Member) -> Path:
    """The folder of its model."""
    return Path("data/variants", *map(str, member))


def rate_trials(study: str, variant: str) -> Path:
    """The folder with the figures of the trainings that try learning rates for a variant."""
    return Path("data/variants", study, variant, RATES)


def chosen_rate(study: str, variant: str) -> Path:
    """The file with the factor of its learning rate that was chosen."""
    return Path("data/variants", study, variant, "rate.json")


def training_block(all_params: params.Params, member: params.Member) -> params.Model:
    """The block by which a seed of a variant is pre-trained: at the learning rate that was chosen, where its study tries several."""
    study = all_params.studies[member.study]
    block = params.varied(all_params.models, study, member.variant, member.seed)
    if not params.tries_rates(study, params.trained_by(study, member.variant)):
        return block
    return params.at_rate(block, read_json(chosen_rate(member.study, params.trained_by(study, member.variant)))["factor"])


def start_folder(all_params: params.Params, member: params.Member) -> Path | None:
    """The folder of the model that its training continues; None for one from scratch."""
    start = params.begun_by(all_params.studies[member.study], member.variant)
    return pretrained_folder(member._replace(variant=start)) if start else None


def weights_folder(all_params: params.Params, member: params.Member) -> Path:
    """The folder of the model that is fine-tuned."""
    return pretrained_folder(member._replace(variant=params.trained_by(all_params.studies[member.study], member.variant)))


def transferred_folder(member: params.Member) -> Path:
    """The folder of its fine-tunings."""
    return Path("data/studies", *map(str, member))
