"""The next trial and its pruning: optuna's samplers and pruners, given the trials of the journal."""

import math

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from components import params

optuna.logging.set_verbosity(optuna.logging.WARNING)

SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
PRUNERS = {
    "none": lambda block, longest: optuna.pruners.NopPruner(),
    "successive_halving": lambda block, longest: optuna.pruners.SuccessiveHalvingPruner(block.min_epochs, block.reduction_factor),
    "hyperband": lambda block, longest: optuna.pruners.HyperbandPruner(block.min_epochs, longest, block.reduction_factor),
}
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def distribution(key: str, draw: params.Draw) -> BaseDistribution:
    """The distribution of a recipe's field, for optuna."""
    if draw.choices is not None:
        return CategoricalDistribution(draw.choices)
    if params.Recipe.model_fields[key].annotation is int:
        return IntDistribution(int(draw.low), int(draw.high), log=draw.log)
    return FloatDistribution(draw.low, draw.high, log=draw.log)


class Draws:
    """A search in memory (a study of optuna).

    Its n-th trial depends only on the seed and the trials before it, so that a search restored from these continues in the same
    way.
    """

    def __init__(self, search: params.Search, recipe: params.Recipe):
        self.search = search
        self.space = {key: distribution(key, draw) for key, draw in search.space.items()}
        pruner = PRUNERS[search.pruner.name](search.pruner, search.longest(recipe))
        # Hyperband assigns brackets by study name and trial number
        self.optuna = optuna.create_study(study_name="search", direction="maximize", pruner=pruner)

    def ask(self) -> tuple[optuna.Trial, int]:
        """The next trial, and the seed of its training."""
        draws, training = np.random.SeedSequence([self.search.seed, len(self.optuna.trials)]).generate_state(2)
        self.optuna.sampler = SAMPLERS[self.search.sampler](seed=int(draws))
        return self.optuna.ask(self.space), int(training)

    def stops(self, trial: optuna.Trial, epoch: int, score: float | None) -> bool:
        """Whether the pruner stops a trial with this score after this epoch; an undefined score is the worst."""
        trial.report(math.nan if score is None else score, epoch)
        return trial.should_prune()

    def tell(self, trial: optuna.Trial, state: str, score: float | None) -> dict:
        """Finish a trial, with a score if it is complete. Returns the pruner's notes on it, for the journal."""
        self.optuna.tell(trial, score, STATES[state])
        return self.optuna.trials[trial.number].system_attrs

    def add(self, row: dict) -> None:
        """Add a trial of the journal."""
        self.optuna.add_trial(
            optuna.trial.create_trial(
                state=STATES[row["state"]], value=row["score"], params=row["drawn"], distributions=self.space, system_attrs=row["pruner"],
                intermediate_values={epoch: math.nan if score is None else score for epoch, score in enumerate(row["scores"], 1)},
            )
        )  # fmt: skip
