"""The results of studies next to those of their papers: for the page of all studies and docs/findings.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components import params
from components.params import LOSS
from components.stages.outputs import read_json
from components.studies.folders import REPORTS

REPRODUCED, OPPOSITE, ABSENT, OPEN = "reproduced", "the opposite", "absent", "can't tell"


@dataclass(frozen=True)
class Finding:
    """A comparison of a study that has run, and its paper's."""

    study: str
    question: str
    expected: params.Expectation
    base: str
    difference: float
    low: float
    high: float
    """The ends of the 95 % interval."""
    beyond_noise: bool
    """After Holm's correction over the comparisons of the study's page."""

    @property
    def against(self) -> str:
        return self.expected.against or self.base

    @property
    def verdict(self) -> str:
        """Whether the paper's effect is reproduced. It is absent where the interval excludes every difference that matters."""
        paper, matters = self.expected.paper.direction, self.expected.matters
        small = -matters < self.low and self.high < matters
        if paper == "same":
            return REPRODUCED if small else OPPOSITE if self.beyond_noise else OPEN
        if self.beyond_noise:
            return REPRODUCED if (self.difference > 0) == (paper == "higher") else OPPOSITE
        return ABSENT if small else OPEN

    @property
    def sentence(self) -> str:
        """`learned: bits per byte 0.035 [0.019, 0.052] higher than gpt`."""
        higher = self.difference > 0
        low, high = (self.low, self.high) if higher else (-self.high, -self.low)
        name = LOSS.replace("_", " ") if self.expected.task == LOSS else self.expected.task
        compared = f"{abs(self.difference):.3f} [{low:.3f}, {high:.3f}] {'higher' if higher else 'lower'}"
        return f"{self.expected.variant}: {name} {compared} than {self.against}"


def findings(studies: Mapping[str, params.Study], figures: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """The findings of studies that name papers and have run; `figures` has the JSON of each study."""
    results = [
        _finding(name, study, expected, figures[name])
        for name, study in studies.items() if name in figures for expected in study.expects if expected.paper
    ]  # fmt: skip
    return [finding for finding in results if finding]


def committed(studies: Mapping[str, params.Study]) -> dict[str, dict]:
    """The figures of every study that has run."""
    files = {name: REPORTS / f"{name}.json" for name in studies}
    return {name: read_json(file) for name, file in files.items() if file.exists()}


def _finding(name: str, study: params.Study, expected: params.Expectation, figures: Mapping[str, Any]) -> Finding | None:
    """None where the study ran in an earlier form, without this comparison."""
    key = expected.task, expected.variant, expected.against or study.base
    for row in figures.get("comparisons", ()):
        if (row["task"], row["variant"], row["against"]) == key and row["low"] is not None:
            beyond = row["verdict"] in ("higher", "lower")
            return Finding(name, study.question, expected, study.base, row["difference"], row["low"], row["high"], beyond)
    return None
