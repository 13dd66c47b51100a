"""Metrics of a task, computed once on the whole split (never averaged over batches), and their spread over seeds.

One more metric is one function, one line in `METRICS`, and its name in `components.params.tasks`.
"""

import re
import statistics
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from components import params
from components.core.errors import SesameError
from components.core.words import HAN, MARKS, OTHERS, WORD
from components.tasks import Example

Metric = Callable[[params.Task, list[Example], list], float | None]
"""Over (task, examples, predictions), as a fraction; None where it is undefined."""
Value = Callable[[Any, Any], float]
"""Of one prediction, compared with its label."""


def _gold(examples: list[Example]) -> list:
    return [example.label for example in examples]


def _groups(examples: list[Example], predicted: list) -> list[list[tuple[Example, str]]]:
    groups: dict[str, list[tuple[Example, str]]] = {}
    for example, prediction in zip(examples, predicted, strict=True):
        groups.setdefault(example.group, []).append((example, prediction))
    return list(groups.values())


def f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """Of the second label of two: `equivalent`, `duplicate`; F1a of MultiRC over all answers. What is neither label is not the second."""
    return float(f1_score(_gold(examples), predicted, labels=task.labels[1:], average="macro", zero_division=0.0))


def macro_f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The mean over all declared labels, those that do not occur count as 0 (CB)."""
    return float(f1_score(_gold(examples), predicted, labels=task.labels, average="macro", zero_division=0.0))


def matthews_correlation(task: params.Task, examples: list[Example], predicted: list) -> float | None:
    """None where a constant makes it undefined: reported, not faked."""
    if len(set(predicted)) == 1 or len(set(_gold(examples))) == 1:
        return None
    return float(matthews_corrcoef(_gold(examples), predicted))


def all_right(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of groups with every prediction right: exact match of MultiRC, over questions."""
    groups = _groups(examples, predicted)
    return sum(all(prediction == example.label for example, prediction in group) for group in groups) / len(groups)


def gender_parity(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of groups with equal predictions: pairs that differ in a pronoun (Rudinger et al. 2018)."""
    groups = _groups(examples, predicted)
    return sum(len({prediction for _, prediction in group}) == 1 for group in groups) / len(groups)


def _correlation(function: Callable) -> Metric:
    def correlation(task: params.Task, examples: list[Example], predicted: list) -> float | None:
        """Predictions are clipped to the task's range. None where a constant makes the correlation undefined."""
        values = np.clip(np.array(predicted, dtype=float), *(task.range or (-np.inf, np.inf)))
        gold = np.array(_gold(examples), dtype=float)
        return None if np.ptp(values) == 0 or np.ptp(gold) == 0 else float(function(values, gold).statistic)

    return correlation


UNSPACED = re.compile(rf"([{HAN}{OTHERS}][{MARKS}]*)")


def normalised(answer: str) -> str:
    """Lower case, without punctuation, articles and superfluous white space (Rajpurkar et al. 2016); what they leave
    nothing of, as the answers A and +, stays as it is."""
    lower = " ".join(answer.lower().split())
    bare = "".join(character for character in lower if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split()) or lower


def _same(prediction: str, answer: str) -> float:
    return float(normalised(prediction) == normalised(answer))


def _overlap(prediction: str, answer: str) -> float:
    """F1 over the words of two answers, or the characters where no blank parts them; 0 where they share none."""
    ours, theirs = (_apart(normalised(text)) for text in (prediction, answer))
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def _apart(text: str) -> list[str]:
    return UNSPACED.sub(r" \1 ", text).split()


def entity_f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """Micro F1 over entities, type and borders right, as CoNLL's own script counts them."""
    from seqeval.metrics import f1_score as entities_f1

    return float(entities_f1(_gold(examples), predicted, zero_division=0))


def tag_accuracy(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of words with the right tag."""
    pairs = [pair for tags, label in zip(predicted, _gold(examples), strict=True) for pair in zip(tags, label, strict=True)]
    return float(np.mean([prediction == tag for prediction, tag in pairs]))


def _best(match: Callable[[str, str], float]) -> Value:
    """The best match with any of the right answers."""
    return lambda prediction, answers: max(match(prediction, answer) for answer in answers)


def _mean(value: Value) -> Metric:
    return lambda task, examples, predicted: statistics.fmean(value(*pair) for pair in zip(predicted, _gold(examples), strict=True))


WORDS = re.compile(WORD)


class RougeTokens:
    """ROUGE's own tokens, with stems, of English words. Of others, of which it would leave the letters a to z (and of
    Russian nothing), the words as they are, or the characters where no blank parts them."""

    def __init__(self):
        from rouge_score.tokenizers import DefaultTokenizer

        self.english = DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        words = WORDS.findall(UNSPACED.sub(r" \1 ", text.lower()))
        return [token for word in words for token in (self.english.tokenize(word) if word.isascii() else [word])]


@cache
def _rouge(name: str) -> Value:
    """F1 of ROUGE (Lin 2004); of `rouge_l` over the whole text, where T5 and BART report the mean over its sentences (ROUGE-Lsum)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name], tokenizer=RougeTokens())
    return lambda prediction, answers: max(scorer.score(answer, prediction)[name].fmeasure for answer in answers)


@cache
def _sacrebleu(metric: str, lowercase: bool, tokens: str = "13a") -> Any:
    import sacrebleu

    if metric == "chrf":
        return sacrebleu.CHRF(lowercase=lowercase)
    return sacrebleu.BLEU(lowercase=lowercase, tokenize=tokens)


def bleu_tokens(texts: Sequence[str]) -> str:
    """Sacrebleu's name of how such texts are taken apart: `13a` at blanks, of which Chinese (`zh`), Thai or Japanese
    (`char`) have none: a sentence would be one token, right or wrong as a whole."""
    whole = "".join(texts)
    han, others = (len(re.findall(f"[{script}]", whole)) for script in (HAN, OTHERS))
    return "13a" if 2 * (han + others) <= sum(map(str.isalpha, whole)) else "char" if others else "zh"


def counted(task: params.Task, metric: str, examples: Sequence[Example], predicted: Sequence[str]) -> np.ndarray:
    """What a metric of `SUMMED` counts on each example, (examples, counts): the score is one of their sum, not a mean of scores."""
    right = [answer for example in examples for answer in example.label]
    scorer = _sacrebleu(metric, task.lowercase, bleu_tokens(right))
    # sacrebleu's own resampling takes the counts so; a test holds their sum against its score of the whole
    return np.array([
        scorer._extract_corpus_statistics([written], [[answer] for answer in example.label])[0]
        for example, written in zip(examples, predicted, strict=True)
    ])  # fmt: skip


def of_counts(task: params.Task, metric: str, counts: np.ndarray) -> float:
    """The score of counts that were added up, (counts,), as a fraction."""
    return _sacrebleu(metric, task.lowercase)._compute_score_from_stats(counts.tolist()).score / 100


SUMMED = ("bleu", "chrf")
"""Metrics of a task of texts that are one figure of all texts together: BLEU (Papineni et al. 2002), chrF (Popović 2015), by sacrebleu."""


def _summed(metric: str) -> Metric:
    return lambda task, examples, predicted: of_counts(task, metric, counted(task, metric, examples, predicted).sum(0))


MEANS: dict[str, dict[str, Value]] = {
    "classification": {"accuracy": lambda prediction, label: float(prediction == label)},
    "regression": {},
    "choice": {
        "accuracy": lambda prediction, right: float(prediction in right), "f1": _best(_overlap), "exact_match": _best(_same),
    },
    "extraction": {"f1": _best(_overlap), "exact_match": _best(_same)},
    "tagging": {},
    "text": {
        **{name: lambda prediction, answers, own=own: _rouge(own)(prediction, answers)
           for name, own in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeL"))},
        "f1": _best(_overlap), "exact_match": _best(_same),
    },
}  # fmt: skip
"""Metrics that are means over the examples: what one prediction counts."""

METRICS: dict[str, dict[str, Metric]] = {
    kind: {metric: _mean(value) for metric, value in MEANS[kind].items()} | others
    for kind, others in {
        "classification": {
            "f1": f1, "macro_f1": macro_f1, "matthews_correlation": matthews_correlation, "exact_match": all_right,
            "gender_parity": gender_parity,
        },
        "regression": {"pearson": _correlation(pearsonr), "spearman": _correlation(spearmanr)},
        "choice": {},
        "extraction": {},
        "tagging": {"f1": entity_f1, "accuracy": tag_accuracy},
        "text": {metric: _summed(metric) for metric in SUMMED},
    }.items()
}  # fmt: skip
"""By kind of task. A prediction is a label's name; a score; a choice's name; an answer; a tag per word; a text. Where the
model wrote it, it may be no label or choice: that is wrong."""


def evaluate(task: params.Task, split: str, examples: list[Example], predicted: list) -> dict[str, float | None]:
    """The metrics that the split is judged by, headline first. Raises SesameError where the split has no labels."""
    declared = task.splits[split]
    if not declared.labelled:
        raise SesameError(f"the split {split} has no labels: it is for submission only")
    return {metric: METRICS[task.kind][metric](task, examples, predicted) for metric in declared.metrics or task.metrics}


def summary(scores: list[dict[str, float | None]]) -> dict[str, dict]:
    """Each metric's mean, median, sample standard deviation (None for one seed), n and values; undefined where a value is."""
    metrics = {}
    for metric in scores[0]:
        values = [score[metric] for score in scores]
        defined = None not in values
        metrics[metric] = {
            "mean": statistics.fmean(values) if defined else None,
            "median": statistics.median(values) if defined else None,
            "std": statistics.stdev(values) if defined and len(values) > 1 else None,
            "n": len(values),
            "values": values,
        }
    return metrics


def protocol(split: str, selection: str, train: int, size: int) -> str:
    """How a score came about, for every table that shows it."""
    return f"{split} split ({size} examples); {selection}; {train} labelled examples"


def shown(value: float | None) -> str:
    """A score for the terminal."""
    return "undefined (constant predictions)" if value is None else f"{value:.3f}"
