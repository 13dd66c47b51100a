"""The steps of a training in phases: short sequences before long ones, small batches before large ones."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.objectives.examples.batches import Batches, Chunk


@dataclass(frozen=True)
class Phase:
    """Steps with one sequence length and one batch size."""

    batches: Batches
    steps: int | None
    """None: endless."""
    flops_per_token: float
    """Of forward and backward."""

    @property
    def tokens(self) -> int:
        """Tokens of all steps, without padding."""
        return sum(map(self.batches.tokens, range(self.steps)))


class Phases:
    """All phases of a training. Only the last one may be endless."""

    def __init__(self, phases: Sequence[Phase]):
        self.phases, self.starts, self.tokens = phases, [0], [0]
        for phase in phases[:-1]:
            self.starts.append(self.starts[-1] + phase.steps)
            self.tokens.append(self.tokens[-1] + phase.tokens)

    @property
    def steps(self) -> int | None:
        """Steps of all phases; None: endless."""
        last = self.phases[-1].steps
        return None if last is None else self.starts[-1] + last

    def at(self, step: int) -> tuple[Phase, int]:
        """Return the phase of a step, and its first step."""
        i = bisect_right(self.starts, step) - 1
        return self.phases[i], self.starts[i]

    def flops(self, tokens: int) -> int:
        """Return the FLOPs of reading so many tokens."""
        bounds = [*self.tokens[1:], max(tokens, self.tokens[-1])]
        read = [max(0, min(tokens, end) - start) for start, end in zip(self.tokens, bounds, strict=True)]
        return int(sum(phase.flops_per_token * count for phase, count in zip(self.phases, read, strict=True)))

    def bounds(self, step: int) -> tuple[int, int]:
        """Return the steps [first, last) of the chunk with this step."""
        phase, start = self.at(step)
        first, last = phase.batches.bounds(step - start)
        # the last phase is read beyond the end of the training: batches are built in advance
        return start + first, start + (last if phase is self.phases[-1] else min(last, phase.steps))

    def draw(self, first: int, last: int) -> Chunk:
        """Build the chunk of the steps [first, last)."""
        phase, start = self.at(first)
        return replace(phase.batches.draw(first - start, last - start), first=first)
