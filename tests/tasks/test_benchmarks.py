"""The averages of GLUE and SuperGLUE on published rows, each under its own convention."""

import pytest

from components.core.errors import SesameError
from components.tasks.benchmarks import CONVENTIONS, SUBMISSIONS, average


def row(convention: str, *values: float) -> dict:
    """The numbers of a published row, in the convention's order."""
    return dict(zip((score for part in CONVENTIONS[convention] for score in part), values, strict=True))


@pytest.mark.parametrize(
    ("values", "published"),  # Devlin et al. 2019, table 1: MNLI-m, MNLI-mm, QQP, QNLI, SST-2, CoLA, STS-B, MRPC, RTE
    [
        ((84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4), 79.6),
        ((86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1), 82.1),
        ((82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0), 75.1),
        ((80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7), 74.0),
    ],
)
def test_the_bert_papers_average(values, published):
    assert round(average("glue_bert_paper", row("glue_bert_paper", *values)), 1) == published


def test_the_leaderboards_average():
    """BERT-large on the leaderboard: CoLA, SST-2, MRPC F1/accuracy, STS-B Pearson/Spearman, QQP F1/accuracy, MNLI m/mm, QNLI, RTE, WNLI."""
    values = (60.5, 94.9, 89.3, 85.4, 87.6, 86.5, 72.1, 89.3, 86.7, 85.9, 92.7, 70.1, 65.1)
    assert round(average("glue_official", row("glue_official", *values)), 1) == 80.5


def test_electras_average():
    """ELECTRA-1.75M (Clark et al. 2020, table 3, dev): CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE."""
    assert round(average("glue_electra", row("glue_electra", 69.1, 96.9, 90.8, 92.6, 92.4, 90.9, 95.0, 88.0)), 1) == 89.5


@pytest.mark.parametrize(
    ("values", "published"),  # leaderboard: BoolQ, CB F1/accuracy, COPA, MultiRC F1a/EM, ReCoRD F1/EM, RTE, WiC, WSC
    [
        ((89.0, 95.8, 98.9, 100.0, 81.8, 51.9, 91.7, 91.3, 93.6, 80.0, 100.0), 89.8),  # human
        ((87.1, 90.5, 95.2, 90.6, 84.4, 52.5, 90.6, 90.0, 88.2, 69.9, 89.0), 84.6),  # RoBERTa
    ],
)
def test_superglues_average(values, published):
    assert average("superglue", row("superglue", *values)) == pytest.approx(published, abs=0.051)


def test_an_undefined_or_missing_number():
    scores = row("glue_bert_paper", *[80.0] * 9)
    assert average("glue_bert_paper", scores | {("cola", "eval", "matthews_correlation"): None}) is None
    with pytest.raises(SesameError, match=r"glue_official needs mrpc accuracy, stsb_glue pearson, qqp accuracy, wnli accuracy$"):
        average("glue_official", scores)
    del scores["mnli", "mismatched", "accuracy"]
    with pytest.raises(SesameError, match=r"glue_bert_paper needs mnli accuracy \(mismatched\)$"):
        average("glue_bert_paper", scores)


def test_the_official_test_sets():
    rows = {file.name: file.rows for file in SUBMISSIONS["glue"]}
    assert rows == {
        "CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "STS-B": 1379, "QQP": 390965, "MNLI-m": 9796, "MNLI-mm": 9847, "QNLI": 5463,
        "RTE": 3000, "WNLI": 146, "AX": 1104,
    }  # fmt: skip
    assert {file.name: file.rows for file in SUBMISSIONS["superglue"]} == {
        "BoolQ": 3245, "CB": 250, "COPA": 500, "MultiRC": 9693, "ReCoRD": 10000, "RTE": 3000, "WiC": 1400, "WSC": 146,
        "AX-b": 1104, "AX-g": 356,
    }  # fmt: skip
