"""A training's steps, phase after phase: short rows before long ones, small batches before large ones."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.objectives.examples.windows import Batches, Window


@dataclass(frozen=True)
class Phase:
    """Steps with rows of one length, in batches of one size."""

    batches: Batches
    steps: int | None
    """None: without end."""
    flops_per_token: float
    """Of forward and backward."""

    @property
    def tokens(self) -> int:
        """Real ones, padding not counted."""
        return sum(map(self.batches.tokens, range(self.steps)))


class Phases:
    """What is read in a training. Only the last phase may be without end."""

    def __init__(self, phases: Sequence[Phase]):
        self.phases, self.starts, self.tokens = phases, [0], [0]
        for phase in phases[:-1]:
            self.starts.append(self.starts[-1] + phase.steps)
            self.tokens.append(self.tokens[-1] + phase.tokens)

    @property
    def steps(self) -> int | None:
        """In all; None: without end."""
        last = self.phases[-1].steps
        return None if last is None else self.starts[-1] + last

    def at(self, step: int) -> tuple[Phase, int]:
        """The phase that a step is of, and its first step."""
        i = bisect_right(self.starts, step) - 1
        return self.phases[i], self.starts[i]

    def flops(self, tokens: int) -> int:
        """Spent when so many tokens are read."""
        bounds = [*self.tokens[1:], max(tokens, self.tokens[-1])]
        read = [max(0, min(tokens, end) - start) for start, end in zip(self.tokens, bounds, strict=True)]
        return int(sum(phase.flops_per_token * own for phase, own in zip(self.phases, read, strict=True)))

    def bounds(self, step: int) -> tuple[int, int]:
        """The steps first, ..., last - 1 that are drawn together with this one."""
        phase, start = self.at(step)
        first, last = phase.batches.bounds(step - start)
        # the last one goes on without end: steps are drawn ahead of the one that is the training's last
        return start + first, start + (last if phase is self.phases[-1] else min(last, phase.steps))

    def draw(self, first: int, last: int) -> Window:
        """The steps between two bounds."""
        phase, start = self.at(first)
        return replace(phase.batches.draw(first - start, last - start), first=first)
