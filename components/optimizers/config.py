"""Settings that all optimizers of pre-training share."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from components.core.config import Added, Block, LearningRate, Positive, Share

SCHEDULES = ("linear", "cosine", "wsd", "constant", "slanted_triangular", "inverse_sqrt")
"""Modules of `components/optimizers/schedules`."""

FALLING = ("linear", "cosine", "slanted_triangular")
"""Schedules that decay over all steps after the warm-up."""


def check_fall(schedule: str, warmup: float) -> None:
    """Raise ValueError if no step is left for the decay: the schedule would divide by zero."""
    if schedule in FALLING and warmup == 1:
        raise ValueError(f"warmup 1 leaves no steps for the decay of schedule {schedule}: take schedule constant, or a warmup below 1")


def _of_32_bits(decay: float) -> float:
    if decay > 1e38:  # weights would be no numbers after a step, and the learning rate would be blamed
        raise ValueError(f"{decay:g} is beyond 32-bit numbers; most papers have 0.01 to 0.1")
    return decay


WeightDecay = Annotated[float, Field(ge=0), AfterValidator(_of_32_bits)]


class OptimizerBlock(Block):
    """Learning rate, schedule, weight decay and clipping. Parameters of one dimension (biases, norms) are not decayed;
    T5's biases of relative positions are a matrix, and are."""

    learning_rate: LearningRate
    """Highest learning rate, reached after the warm-up. BERT: 1e-4 at batches of 256 (Devlin et al. 2019, appendix
    A.2); models of a few million parameters take 1e-3 to 2e-3."""
    weight_decay: WeightDecay = 0.01
    """Decoupled from the gradient (Loshchilov and Hutter 2019). BERT: 0.01."""
    clip_norm: Positive | None = 1.0
    """Largest Euclidean norm of the gradient over all weights; a larger one is scaled down to it. null: no clipping."""
    schedule: Literal[SCHEDULES] = "linear"
    """`slanted_triangular`: rises from 1/32 and falls back to it (Howard and Ruder 2018, equation 3); `wsd`: warm-up, stable,
    linear decay over the last `decay` share; `inverse_sqrt`: after the warm-up proportional to 1 / sqrt(step) (Vaswani et al.
    2017, section 5.3)."""
    warmup: Share = 0.06
    """Share of the budget."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    """`wsd`: share of the budget, at its end, in which the rate falls to 0."""
    layer_decay: Annotated[float, Field(gt=0, le=1), Added(neutral=1.0)] = 1.0
    """Factor of the learning rate from each layer to the one below: discriminative rates to continue the training of a model
    (Howard and Ruder 2018, section 3.2: 1 / 2.6 = 0.385)."""

    def at_rate(self, factor: float) -> Self:
        """The same settings with all learning rates times a factor. Raise ValidationError where one is too large then."""
        rates = {name: getattr(self, name) * factor for name in type(self).model_fields if name.endswith("learning_rate")}
        return type(self).model_validate(self.model_dump(exclude_unset=True) | rates)

    @model_validator(mode="after")
    def schedule_fits(self):
        check_fall(self.schedule, self.warmup)
        if self.schedule == "inverse_sqrt" and not self.warmup:
            raise ValueError("schedule inverse_sqrt decays from the end of the warm-up: set a warmup above 0")
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup {self.warmup:g} and decay {self.decay:g} of schedule wsd are more than the budget: lower one of them")
        if self.schedule != "wsd" and self.differs("decay"):
            raise ValueError(f"decay has no effect on schedule {self.schedule}: leave it out, or take schedule: wsd")
        return self
