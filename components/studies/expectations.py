"""The expectations of a study compared with its results; and the commit that fixed them."""

import subprocess
from dataclasses import dataclass
from math import isnan, sqrt

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from components import params
from components.comparison import verdicts
from components.comparison.detection import detectable_errors
from components.studies.folders import REPORTS
from components.studies.tables import UNTRAINED, Comparison

MAX_SEEDS = 200
"""Per side, in an estimate of the seeds needed."""


@dataclass(frozen=True)
class Outcome:
    """An expectation of a study and its outcome."""

    expected: params.Expectation
    comparison: Comparison
    said: str


def outcome(expected: params.Expectation, comparison: Comparison) -> Outcome:
    """An interval inside the smallest difference that matters excludes one of that size; a wider one with 0 in it is not resolved."""
    difference, verdict = comparison.difference, comparison.verdict
    if verdict in ("higher", "lower"):
        said = "as expected" if verdict == expected.direction else "the opposite"
    elif verdict == UNTRAINED:
        said = "not resolved: a model that has not learned to read"
    elif verdict in ("undefined", "one run"):
        said = f"not resolved: {'one seed' if verdict == 'one run' else 'the score is undefined'}"
    elif -expected.matters < difference.low and difference.high < expected.matters:
        said = "no difference of that size"
    else:
        said = f"not resolved: {needed(difference, expected.matters)} would be needed"
    return Outcome(expected, comparison, said)


def needed(difference: verdicts.Difference, size: float) -> str:
    """The seeds per side with which a difference of `size` is detected in four of five cases, estimated from the observed variances; more
    test examples where no number of seeds is enough with these."""
    of_examples = (difference.of_examples, verdicts.BLOCKS - 1)

    def detected(terms: list[tuple[float, int]]) -> bool:
        variance = sum(term for term, _ in terms)
        degrees = verdicts.freedom(terms) if variance else 1.0
        return detectable_errors(degrees) * sqrt(variance) <= size

    if isnan(difference.of_runs) or not detected([of_examples]):
        return "more test examples"
    of_run = difference.of_runs / sum(1 / n for n in difference.runs)  # variance of one run, averaged over both sides
    seeds = next((n for n in range(2, MAX_SEEDS + 1) if detected([(of_run / n, n - 1)] * 2 + [of_examples])), None)
    return f"{seeds} seeds" if seeds else f"more than {MAX_SEEDS} seeds"


def fixed(name: str, study: params.Study) -> str:
    """Describe which commit fixed the study's seeds and expectations, and whether that was before its results were first committed."""
    what = "seeds and expectations" if study.expects else "seeds"
    fields = _fixed_fields(study.model_dump(mode="json"))
    since = None
    written_in = (params.STUDY_FOLDER / f"{name}.yaml", params.STUDIES)
    for commit in _git("log", "--format=%h %cs", "--", *map(str, written_in)).splitlines():  # newest first
        if _fixed_fields(_study_at(commit.split()[0], name)) != fields:
            break
        since = commit
    if since is None:
        return f"The study's file is not committed as it is: nothing proves that its {what} were fixed before the run."
    commit, day = since.split()
    results = _git("log", "--format=%h", "--diff-filter=A", "--", str(REPORTS / f"{name}.json")).splitlines()
    if not results:
        return f"Its {what} were fixed in commit {commit} ({day}); no results had been committed."
    first = results[-1]
    before = subprocess.run(["git", "merge-base", "--is-ancestor", commit, first], capture_output=True).returncode == 0
    if commit != first and before:
        return f"Its {what} were fixed in commit {commit} ({day}), before its first results ({first})."
    return (
        f"Its {what} were changed in commit {commit} ({day}), when results had been committed ({first}); p-values assume that they "
        "were fixed before."
    )


def _fixed_fields(block: dict | None) -> dict | None:
    """What is fixed beforehand: seeds, expectations, budget, learning rates, tasks and evaluations. None without a valid study."""
    if not block:
        return None
    try:
        checked = params.Study.model_validate(block)
    except ValueError:  # an earlier form of the file
        return None
    fields = {"seeds", "expects", "budget", "learning_rates", "tasks", "evaluations", "base", "contrasts"}
    return checked.model_dump(mode="json", include=fields)


def _study_at(commit: str, name: str) -> dict | None:
    """A study in a commit; None where it did not exist. Until November 2026 all were sections of one file."""
    try:
        if text := _git("show", f"{commit}:{params.STUDY_FOLDER}/{name}.yaml"):
            return YAML(typ="safe").load(text)
        return YAML(typ="safe").load(_git("show", f"{commit}:{params.STUDIES}"))["ablations"].get(name)
    except (YAMLError, TypeError, KeyError, AttributeError):
        return None


def _git(*args: str) -> str:
    """The output of git; empty where there is no repository, or no such file."""
    return subprocess.run(["git", *args], capture_output=True, text=True).stdout
