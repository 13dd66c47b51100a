"""Where the trainings of a study stand: what its stages share. (Tables are apart, so that another table trains nothing
again.)"""

from pathlib import Path

from components import params
from components.core.errors import SesameError

REPORTS = Path("data/report/studies")
LAST = "last"
"""The model at the end of its budget; others are named by the tokens they had read."""


def member(all_params: params.Params, name: str) -> params.Member:
    """The training that a stage is named after. Raises SesameError where there is none."""
    declared = {own.name: own for own in params.members(all_params.studies)}
    if name not in declared:
        raise SesameError(f"no training {name!r} in the studies of {params.STUDY_FOLDER} (there are: {', '.join(declared) or 'none'})")
    return declared[name]


def pretrained_folder(own: params.Member) -> Path:
    """Where its model stands."""
    return Path("data/variants", *map(str, own))


def begun_folder(all_params: params.Params, own: params.Member) -> Path | None:
    """Where the model stands that its training goes on with."""
    begun = params.begun_by(all_params.studies[own.study], own.variant)
    return pretrained_folder(own._replace(variant=begun)) if begun else None


def weights_folder(all_params: params.Params, own: params.Member) -> Path:
    """Where the model stands that it is tuned from."""
    return pretrained_folder(own._replace(variant=params.trained_by(all_params.studies[own.study], own.variant)))


def transferred_folder(own: params.Member) -> Path:
    """Where its fine-tunings stand."""
    return Path("data/studies", *map(str, own))
