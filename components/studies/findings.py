"""What the studies found, each comparison beside the paper that it is of: for the page of all studies and docs/findings.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components import params
from components.core import storage
from components.params import LOSS
from components.studies.folders import REPORTS

REPRODUCED, OPPOSITE, ABSENT, OPEN = "reproduced", "the opposite", "absent", "can't tell"


@dataclass(frozen=True)
class Finding:
    """A comparison of a study that was run, and the paper's."""

    study: str
    question: str
    expected: params.Expectation
    base: str
    difference: float
    low: float
    high: float
    """Of the 95 % interval."""
    beyond_noise: bool
    """After Holm's correction over the comparisons of the study's page."""

    @property
    def against(self) -> str:
        return self.expected.against or self.base

    @property
    def verdict(self) -> str:
        """Whether the paper's effect came out. It is absent where the interval leaves out every difference that would matter."""
        paper, matters = self.expected.paper.direction, self.expected.matters
        small = -matters < self.low and self.high < matters
        if paper == "same":
            return REPRODUCED if small else OPPOSITE if self.beyond_noise else OPEN
        if self.beyond_noise:
            return REPRODUCED if (self.difference > 0) == (paper == "higher") else OPPOSITE
        return ABSENT if small else OPEN

    @property
    def sentence(self) -> str:
        """`learned has 0.035 [0.019, 0.052] more bits per byte than gpt`."""
        more = self.difference > 0
        low, high = (self.low, self.high) if more else (-self.high, -self.low)
        name = LOSS.replace("_", " ") if self.expected.task == LOSS else self.expected.task
        interval = f"[{low:.3f}, {high:.3f}]"
        return f"{self.expected.variant} has {abs(self.difference):.3f} {interval} {'more' if more else 'less'} {name} than {self.against}"


def findings(studies: Mapping[str, params.Study], figures: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Of the studies that name papers and have run; `figures` has what the JSON of a study has."""
    made = [
        _of(name, study, expected, figures[name])
        for name, study in studies.items() if name in figures for expected in study.expects if expected.paper
    ]  # fmt: skip
    return [own for own in made if own]


def committed(studies: Mapping[str, params.Study]) -> dict[str, dict]:
    """The figures of every study that has run."""
    files = {name: REPORTS / f"{name}.json" for name in studies}
    return {name: storage.read_json(file) for name, file in files.items() if file.exists()}


def _of(name: str, study: params.Study, expected: params.Expectation, figures: Mapping[str, Any]) -> Finding | None:
    """None where the study ran in another form, without this comparison."""
    wanted = expected.task, expected.variant, expected.against or study.base
    for own in figures.get("comparisons", ()):
        if (own["task"], own["variant"], own["against"]) == wanted and own["low"] is not None:
            beyond = own["verdict"] in ("higher", "lower")
            return Finding(name, study.question, expected, study.base, own["difference"], own["low"], own["high"], beyond)
    return None
