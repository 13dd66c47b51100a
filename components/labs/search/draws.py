"""What the next trial is, and whether it goes on: optuna's samplers and pruners, fed with the trials that the journal has."""

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
    """What a field of the recipe is drawn from, as optuna has it."""
    if draw.choices is not None:
        return CategoricalDistribution(draw.choices)
    if params.Recipe.model_fields[key].annotation is int:
        return IntDistribution(int(draw.low), int(draw.high), log=draw.log)
    return FloatDistribution(draw.low, draw.high, log=draw.log)


class Draws:
    """A search in memory (a study, in optuna's words).

    Its n-th trial depends on the seed and the trials before it alone, so that one made again from these goes on as the
    first.
    """

    def __init__(self, search: params.Search, recipe: params.Recipe):
        self.search = search
        self.space = {key: distribution(key, draw) for key, draw in search.space.items()}
        pruner = PRUNERS[search.pruner.name](search.pruner, search.longest(recipe))
        # Hyperband deals out brackets by name and number
        self.optuna = optuna.create_study(study_name="search", direction="maximize", pruner=pruner)

    def ask(self) -> tuple[optuna.Trial, int]:
        """The next trial, and the seed that it trains with."""
        draws, training = np.random.SeedSequence([self.search.seed, len(self.optuna.trials)]).generate_state(2)
        self.optuna.sampler = SAMPLERS[self.search.sampler](seed=int(draws))
        return self.optuna.ask(self.space), int(training)

    def stops(self, trial: optuna.Trial, epoch: int, score: float | None) -> bool:
        """Whether the pruner ends a trial that scored so after this epoch; an undefined score is the worst."""
        trial.report(math.nan if score is None else score, epoch)
        return trial.should_prune()

    def tell(self, trial: optuna.Trial, state: str, score: float | None) -> dict:
        """Close a trial, with a score where it is complete. Returns what the pruner noted of it, for the journal."""
        self.optuna.tell(trial, score, STATES[state])
        return self.optuna.trials[trial.number].system_attrs

    def add(self, row: dict) -> None:
        """A trial that the journal has."""
        self.optuna.add_trial(
            optuna.trial.create_trial(
                state=STATES[row["state"]], value=row["score"], params=row["drawn"], distributions=self.space, system_attrs=row["pruner"],
                intermediate_values={epoch: math.nan if score is None else score for epoch, score in enumerate(row["scores"], 1)},
            )
        )  # fmt: skip
