"""The submission formats of GLUE (Wang et al. 2018) and SuperGLUE (Wang et al. 2019), and how their scores are averaged.

Tasks have the names of the profiles of `params.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from components.core.errors import SesameError


@dataclass(frozen=True)
class Submission:
    """One file of a leaderboard's zip."""

    name: str
    """Name of the file, without its extension."""
    task: str
    rows: int
    """Examples in the official test set."""
    words: Mapping[str, str | int] | None
    """Label name -> the leaderboard's label; None for a score (STS-B) or the text of an answer (ReCoRD)."""
    split: str = "test"


def _same(*labels: str) -> dict[str, str]:
    return dict(zip(labels, labels, strict=True))


ENTAILED = _same("entailment", "not_entailment")
NLI = _same("entailment", "neutral", "contradiction")

SUBMISSIONS = {
    "glue": (
        Submission("CoLA", "cola", 1063, {"unacceptable": 0, "acceptable": 1}),
        Submission("SST-2", "sst2", 1821, {"negative": 0, "positive": 1}),
        Submission("MRPC", "mrpc", 1725, {"not_equivalent": 0, "equivalent": 1}),
        Submission("STS-B", "stsb_glue", 1379, None),
        Submission("QQP", "qqp", 390965, {"not_duplicate": 0, "duplicate": 1}),
        Submission("MNLI-m", "mnli", 9796, NLI),
        Submission("MNLI-mm", "mnli", 9847, NLI, "test_mismatched"),
        Submission("QNLI", "qnli", 5463, ENTAILED),
        Submission("RTE", "rte", 3000, ENTAILED),
        Submission("WNLI", "wnli", 146, {"not_entailment": 0, "entailment": 1}),
        Submission("AX", "mnli", 1104, NLI, "ax"),
    ),
    "superglue": (
        Submission("BoolQ", "boolq", 3245, _same("false", "true")),
        Submission("CB", "cb", 250, NLI),
        Submission("COPA", "copa", 500, {"0": 0, "1": 1}),
        Submission("MultiRC", "multirc", 9693, {"false": 0, "true": 1}),
        Submission("ReCoRD", "record", 10000, None),
        Submission("RTE", "rte", 3000, ENTAILED),
        Submission("WiC", "wic", 1400, _same("false", "true")),
        Submission("WSC", "wsc", 146, {"false": "False", "true": "True"}),
        Submission("AX-b", "rte", 1104, ENTAILED, "axb"),
        Submission("AX-g", "rte", 356, ENTAILED, "axg"),
    ),
}

Score = tuple[str, str, str]
"""(task, split, metric); the split `eval` is the reported one, dev or test."""


def _of(task: str, *metrics: str, split: str = "eval") -> tuple[Score, ...]:
    return tuple((task, split, metric) for metric in metrics)


MATCHED, MISMATCHED = _of("mnli", "accuracy"), _of("mnli", "accuracy", split="mismatched")

CONVENTIONS: dict[str, tuple[tuple[Score, ...], ...]] = {
    "glue_official": (
        _of("cola", "matthews_correlation"), _of("sst2", "accuracy"), _of("mrpc", "f1", "accuracy"),
        _of("stsb_glue", "pearson", "spearman"), _of("qqp", "f1", "accuracy"), MATCHED + MISMATCHED,
        _of("qnli", "accuracy"), _of("rte", "accuracy"), _of("wnli", "accuracy"),
    ),
    "glue_bert_paper": (
        MATCHED, MISMATCHED, _of("qqp", "f1"), _of("qnli", "accuracy"), _of("sst2", "accuracy"),
        _of("cola", "matthews_correlation"), _of("stsb_glue", "spearman"), _of("mrpc", "f1"), _of("rte", "accuracy"),
    ),
    "glue_electra": (
        _of("cola", "matthews_correlation"), _of("sst2", "accuracy"), _of("mrpc", "accuracy"), _of("stsb_glue", "spearman"),
        _of("qqp", "accuracy"), MATCHED, _of("qnli", "accuracy"), _of("rte", "accuracy"),
    ),
    "superglue": (
        _of("boolq", "accuracy"), _of("cb", "macro_f1", "accuracy"), _of("copa", "accuracy"), _of("multirc", "f1", "exact_match"),
        _of("record", "f1", "exact_match"), _of("rte", "accuracy"), _of("wic", "accuracy"), _of("wsc", "accuracy"),
    ),
}  # fmt: skip
"""There is no single "GLUE score". Each convention is a mean over tuples, each of which is a mean of scores:
`glue_official` (the leaderboard): nine tasks with WNLI, two metrics of a task and the two of MNLI averaged first;
`glue_bert_paper` (Devlin et al. 2019, table 1): nine numbers without WNLI, both MNLI, one metric per task;
`glue_electra` (Clark et al. 2020): eight numbers on dev, MNLI matched only, accuracy if a task has it;
`superglue` (the leaderboard): eight tasks, two metrics of a task averaged first, without the diagnostics."""


def average(convention: str, scores: Mapping[Score, float | None]) -> float | None:
    """Return the benchmark's score by a convention, in the unit of `scores`; None if one of them is undefined.

    Raise SesameError that names missing scores.
    """
    terms = CONVENTIONS[convention]
    absent = [score for term in terms for score in term if score not in scores]
    if absent:
        names = [f"{task} {metric}" + (f" ({split})" if split != "eval" else "") for task, split, metric in absent]
        raise SesameError(f"{convention} needs {', '.join(names)}")
    values = [[scores[score] for score in term] for term in terms]
    return None if any(None in term for term in values) else fmean(map(fmean, values))  # no mean over fewer tasks
