"""Findings: a study's comparison beside the paper's effect, and whether that came out."""

import pytest

from components import params
from components.core.errors import SesameError
from components.studies.findings import ABSENT, OPEN, OPPOSITE, REPRODUCED, findings
from tests.conftest import tiny_params

BASE = {"question": "?", "model": "bert", "base": "15", "evaluations": ["pairs"], "seeds": [1], "budget": {"steps": 1},
        "plot": {"x": "loss", "y": ["pairs"]}, "variants": {"15": {}, "40": {}}}  # fmt: skip


def study(paper: str, task: str = "bits_per_byte") -> params.Study:
    expects = {"variant": "40", "task": task, "direction": "lower", "matters": 0.02}
    return params.Study.model_validate(BASE | {"expects": [expects | {"paper": {"source": "S", "found": "F", "direction": paper}}]})


def figures(difference: float, reach: float, verdict: str, task: str = "bits_per_byte") -> dict:
    own = {"task": task, "variant": "40", "against": "15", "verdict": verdict}
    return {"comparisons": [own | {"difference": difference, "low": difference - reach, "high": difference + reach}]}


@pytest.mark.parametrize(
    ("paper", "difference", "reach", "verdict", "said"),
    [
        ("lower", -0.1, 0.01, "lower", REPRODUCED),
        ("higher", -0.1, 0.01, "lower", OPPOSITE),
        ("lower", 0.001, 0.01, "not beyond noise", ABSENT),
        ("lower", -0.01, 0.05, "not beyond noise", OPEN),
        ("lower", -0.01, 0.005, "lower", REPRODUCED),  # beyond noise, though it is smaller than what matters
        ("same", 0.001, 0.01, "not beyond noise", REPRODUCED),
        ("same", -0.1, 0.01, "lower", OPPOSITE),
        ("same", -0.01, 0.05, "not beyond noise", OPEN),
    ],
)
def test_the_verdict_is_of_the_paper_and_not_of_what_was_expected(paper, difference, reach, verdict, said):
    [found] = findings({"masks": study(paper)}, {"masks": figures(difference, reach, verdict)})
    assert found.verdict == said
    size, direction = abs(difference), "higher" if difference > 0 else "lower"
    assert found.sentence == f"40: bits per byte {size:.3f} [{size - reach:.3f}, {size + reach:.3f}] {direction} than 15"


def test_what_has_not_run_or_ran_in_another_form_is_no_finding():
    assert findings({"masks": study("lower")}, {}) == []
    assert findings({"masks": study("lower")}, {"masks": figures(-0.1, 0.01, "lower", task="pairs")}) == []


def test_losses_of_other_targets_are_no_expectation():
    recipe = tiny_params()["finetune"]["recipes"]["bert"]
    block = BASE | {"tasks": ["same"], "evaluations": [], "recipe": recipe, "plot": {"x": "loss", "y": ["same"]}}
    block |= {"variants": {"15": {}, "40": {"change": {"objective": {"mlm_probability": 0.4}}}}}
    expected = {"variant": "40", "task": "bits_per_byte", "direction": "lower", "matters": 0.02}
    with pytest.raises(SesameError, match=r"studies\.masks\.expects\[0\]\.task: the bits_per_byte of 40 and 15 do not compare"):
        params.check(tiny_params(studies={"masks": block | {"expects": [expected]}}))
    block["variants"]["40"] = {"change": {"architecture": {"dropout": 0.0}}}
    params.check(tiny_params(studies={"masks": block | {"expects": [expected]}}))
