"""`python -m components.studies.rate STUDY-VARIANT`: choose the learning rate with the lowest validation loss
-> data/variants/<study>/<variant>/rate.json. The file has the factor alone, so that a further trial which loses trains nothing anew."""

import sys

from components import params
from components.core.errors import SesameError
from components.core.storage import write_json
from components.stages.outputs import read_json
from components.studies import folders


def choose(all_params: params.Params, study: str, variant: str) -> float:
    """The factor whose training has the lowest loss. Raise SesameError where all have diverged."""
    trials = [trial for trial in params.rate_trials(all_params.studies) if (trial.study, trial.variant) == (study, variant)]
    if not trials:
        raise SesameError(f"no learning rates are tried for a variant {variant!r} of a study {study!r} in {params.STUDY_FOLDER}")
    tried = {}
    for trial in trials:
        loss = read_json(folders.rate_trials(study, variant) / f"{trial.label}.json")["loss"]
        print(f"{trial.factor:g} times the learning rate: " + ("diverged" if loss is None else f"loss {loss:.4f}"), flush=True)
        tried |= {} if loss is None else {trial.factor: loss}
    if not tried:
        raise SesameError(f"every learning rate of {variant} diverged; give lower learning_rates.factors in the study {study}")
    return min(tried, key=tried.__getitem__)


def main() -> None:
    name = sys.argv[1]
    study, _, variant = name.partition("-")
    try:
        write_json(folders.chosen_rate(study, variant), {"factor": choose(params.load(), study, variant)})
    except SesameError as error:
        print(f"rate@{name}: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
