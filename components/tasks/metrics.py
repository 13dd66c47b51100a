"""Metrics of a task, computed once on the complete split (never averaged over batches), and their spread over seeds.

To add a metric, add a function, a line in `METRICS`, and its name in `components.params.tasks`.
"""

import re
import statistics
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import comb
from typing import Any
from unicodedata import category, normalize

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef, ndcg_score

from components import params
from components.core.errors import SesameError
from components.core.words import HAN, NON_JOINER, OTHERS, WORD, ZERO_WIDTH, characters_apart
from components.tasks import Example

Metric = Callable[[params.Task, list[Example], list], float | None]
"""(task, examples, predictions) -> the metric as a fraction; None if it is undefined."""
Value = Callable[[params.Task, Example, Any], float]
"""(task, example, prediction) -> the value of one prediction."""


def _gold(examples: list[Example]) -> list:
    return [example.label for example in examples]


def groups(examples: list[Example], predicted: list) -> list[list[tuple[Example, Any]]]:
    """Return the examples of each group with their predictions."""
    by_group: dict[str, list[tuple[Example, Any]]] = {}
    for example, prediction in zip(examples, predicted, strict=True):
        by_group.setdefault(example.group, []).append((example, prediction))
    return list(by_group.values())


def f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """F1 of the second of two labels: `equivalent`, `duplicate`; F1a of MultiRC over all answers. Invalid labels count as the first."""
    return float(f1_score(_gold(examples), predicted, labels=task.labels[1:], average="macro", zero_division=0.0))


def macro_f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """Mean F1 over all declared labels; labels that do not occur count as 0 (CB)."""
    return float(f1_score(_gold(examples), predicted, labels=task.labels, average="macro", zero_division=0.0))


def matthews_correlation(task: params.Task, examples: list[Example], predicted: list) -> float | None:
    """Matthews correlation; None if predictions or labels are constant."""
    if len(set(predicted)) == 1 or len(set(_gold(examples))) == 1:
        return None
    return float(matthews_corrcoef(_gold(examples), predicted))


def group_exact_match(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of groups in which all predictions are correct: exact match of MultiRC, over questions."""
    judged = groups(examples, predicted)
    return sum(all(prediction == example.label for example, prediction in group) for group in judged) / len(judged)


def gender_parity(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of groups with equal predictions: pairs that differ in a pronoun (Rudinger et al. 2018)."""
    judged = groups(examples, predicted)
    return sum(len({prediction for _, prediction in group}) == 1 for group in judged) / len(judged)


def has_ranks(group: list[tuple[Example, Any]]) -> bool:
    """Whether some candidates of a group are more relevant than others; else no order is better than any other."""
    return len({example.label for example, _ in group}) > 1


Relevance = tuple[float, ...]
Scores = tuple[float, ...]


@lru_cache(maxsize=2**17)  # intervals score the same groups a hundred times
def reciprocal_rank(relevance: Relevance, scores: Scores) -> float:
    """Return the expected 1 / rank of the first relevant candidate.

    Candidates of one score come in a random order, so a model that scores all alike has what a random order has.
    """
    candidates = list(zip(relevance, scores, strict=True))
    best = max(score for label, score in candidates if label > 0)
    before, tied = sum(score > best for score in scores), [label > 0 for label, score in candidates if score == best]
    n, right = len(tied), sum(tied)
    return sum(comb(n - k, right - 1) / comb(n, right) / (before + k) for k in range(1, n - right + 2))


@lru_cache(maxsize=2**17)
def discounted_gain(relevance: Relevance, scores: Scores) -> float:
    """Return the NDCG of all candidates, with linear gains and the mean over the orders of equal scores."""
    return float(ndcg_score([relevance], [scores]))


def _over_rankings(value: Callable[[Relevance, Scores], float]) -> Metric:
    def mean(task: params.Task, examples: list[Example], predicted: list) -> float | None:
        """The mean over the groups that can be ranked; None if there is none."""
        ranked = [group for group in groups(examples, predicted) if has_ranks(group)]
        columns = [((example.label for example, _ in group), (score for _, score in group)) for group in ranked]
        return statistics.fmean(value(*map(tuple, both)) for both in columns) if columns else None

    return mean


mrr = _over_rankings(reciprocal_rank)
"""Mean reciprocal rank (Voorhees 1999)."""
ndcg = _over_rankings(discounted_gain)
"""Normalised discounted cumulative gain (Järvelin and Kekäläinen 2002)."""


def _correlation(function: Callable) -> Metric:
    def correlation(task: params.Task, examples: list[Example], predicted: list) -> float | None:
        """The correlation with predictions clipped to the task's range; None if one side is constant."""
        values = np.clip(np.array(predicted, dtype=float), *(task.range or (-np.inf, np.inf)))
        gold = np.array(_gold(examples), dtype=float)
        return None if np.ptp(values) == 0 or np.ptp(gold) == 0 else float(function(values, gold).statistic)

    return correlation


INVISIBLE = re.compile(f"[{ZERO_WIDTH}{NON_JOINER}]")
"""Zero-width characters, but the joiner: between the parts of a Persian word, or marks of a direction."""


def as_tokenizers_write(text: str) -> str:
    """A text in NFKC, with blanks for zero-width characters: a target in another form could not be met."""
    return INVISIBLE.sub(" ", normalize("NFKC", text))


def normalised(answer: str, language: str) -> str:
    """Return an answer in lower case, without punctuation and extra white space, an English one as SQuAD's script does it: without
    articles, and with the punctuation of ASCII only (Rajpurkar et al. 2016). In other languages punctuation is that of Unicode, too, and
    `a` may be any word (Lewis et al. 2020, MLQA, whose script leaves out articles of some).

    An answer of which nothing would be left, e.g. A or +, stays as it is. Forms of a character that look alike are one.
    """
    english, lower = language == "en", " ".join(as_tokenizers_write(answer).lower().split())
    bare = "".join(
        character
        for character in lower
        if character not in string.punctuation and (english or not category(character).startswith("P"))
    )
    return " ".join((re.sub(r"\b(a|an|the)\b", " ", bare) if english else bare).split()) or lower


def _same(prediction: str, answer: str, language: str) -> float:
    return float(normalised(prediction, language) == normalised(answer, language))


def _overlap(prediction: str, answer: str, language: str) -> float:
    """F1 over the words of two answers, or over characters in scripts without blanks."""
    predicted, correct = (characters_apart(normalised(text, language)).split() for text in (prediction, answer))
    if predicted == correct:
        return 1.0
    common = sum((Counter(predicted) & Counter(correct)).values())
    return 2 * common / (len(predicted) + len(correct)) if common else 0.0


def entity_f1(task: params.Task, examples: list[Example], predicted: list) -> float:
    """Micro F1 over entities with correct type and boundaries, as in CoNLL's script."""
    from seqeval.metrics import f1_score as entities_f1

    return float(entities_f1(_gold(examples), predicted, zero_division=0))


def tag_accuracy(task: params.Task, examples: list[Example], predicted: list) -> float:
    """The share of words with the correct tag."""
    pairs = [pair for tags, label in zip(predicted, _gold(examples), strict=True) for pair in zip(tags, label, strict=True)]
    return float(np.mean([prediction == tag for prediction, tag in pairs]))


def _best(match: Callable[[str, str, str], float]) -> Value:
    """Return the best match with any of the correct answers, by the rules of the task's language. Of choices, which are predicted by name,
    the texts are compared; of ReCoRD's the names, which are the entities, while the texts are the query with each."""

    def best(task: params.Task, example: Example, prediction: str) -> float:
        texts = {} if task.reader == "record" else example.choices or {}
        written, *answers = [texts.get(name, name) for name in (prediction, *example.label)]
        return max(match(written, answer, task.language) for answer in answers)

    return best


def _mean(value: Value) -> Metric:
    return lambda task, examples, predicted: statistics.fmean(
        value(task, example, prediction) for example, prediction in zip(examples, predicted, strict=True)
    )


WORDS = re.compile(WORD)


class RougeTokens:
    """ROUGE's tokens of a text, with stems, for words in ASCII. Other words stay as they are, or are split into characters
    in scripts without blanks: ROUGE would keep only the letters a to z (and of Russian nothing)."""

    def __init__(self):
        from rouge_score.tokenizers import DefaultTokenizer

        self.english = DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        words = WORDS.findall(characters_apart(as_tokenizers_write(text).lower()))
        return [token for word in words for token in (self.english.tokenize(word) if word.isascii() else [word])]


@cache
def _rouge(name: str) -> Value:
    """F1 of ROUGE (Lin 2004); `rouge_l` over the complete text, while T5 and BART report the mean over its sentences (ROUGE-Lsum)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name], tokenizer=RougeTokens())
    return lambda task, example, prediction: max(scorer.score(answer, prediction)[name].fmeasure for answer in example.label)


@cache
def _sacrebleu(metric: str, lowercase: bool, tokens: str = "13a") -> Any:
    import sacrebleu

    if metric == "chrf":
        return sacrebleu.CHRF(lowercase=lowercase)
    return sacrebleu.BLEU(lowercase=lowercase, tokenize=tokens)


def bleu_tokens(texts: Sequence[str]) -> str:
    """Return sacrebleu's tokenizer for such texts: `13a` splits at blanks, which Chinese (`zh`), Thai and Japanese (`char`) lack, so
    that a sentence would be one token."""
    text = "".join(texts)
    han, others = (len(re.findall(f"[{script}]", text)) for script in (HAN, OTHERS))
    return "13a" if 2 * (han + others) <= sum(map(str.isalpha, text)) else "char" if others else "zh"


def corpus_counts(task: params.Task, metric: str, examples: Sequence[Example], predicted: Sequence[str]) -> np.ndarray:
    """Return a corpus-level metric's statistics for each example, (examples, counts); the score is a function of their sum."""
    answers = [[as_tokenizers_write(answer) for answer in example.label] for example in examples]
    scorer = _sacrebleu(metric, task.lowercase, bleu_tokens([answer for texts in answers for answer in texts]))
    # like sacrebleu's own resampling; a test compares the score of the sum with sacrebleu's
    return np.array([
        scorer._extract_corpus_statistics([as_tokenizers_write(prediction)], [[answer] for answer in texts])[0]
        for texts, prediction in zip(answers, predicted, strict=True)
    ])  # fmt: skip


def score_of_counts(task: params.Task, metric: str, counts: np.ndarray) -> float:
    """Return the score of summed statistics (counts,), as a fraction."""
    return _sacrebleu(metric, task.lowercase)._compute_score_from_stats(counts.tolist()).score / 100


CORPUS_LEVEL = ("bleu", "chrf")
"""Metrics of all texts together: BLEU (Papineni et al. 2002), chrF (Popović 2015), by sacrebleu."""


def _corpus_level(metric: str) -> Metric:
    return lambda task, examples, predicted: score_of_counts(task, metric, corpus_counts(task, metric, examples, predicted).sum(0))


MEANS: dict[str, dict[str, Value]] = {
    "classification": {"accuracy": lambda task, example, prediction: float(prediction == example.label)},
    "regression": {},
    "choice": {
        "accuracy": lambda task, example, prediction: float(prediction in example.label),
        "f1": _best(_overlap), "exact_match": _best(_same),
    },
    "extraction": {"f1": _best(_overlap), "exact_match": _best(_same)},
    "tagging": {},
    "text": {
        **{name: lambda task, example, prediction, rouge=rouge: _rouge(rouge)(task, example, prediction)
           for name, rouge in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeL"))},
        "f1": _best(_overlap), "exact_match": _best(_same),
    },
}  # fmt: skip
"""Metrics that are means over the examples: the value of one prediction."""

METRICS: dict[str, dict[str, Metric]] = {
    kind: {metric: _mean(value) for metric, value in MEANS[kind].items()} | others
    for kind, others in {
        "classification": {
            "f1": f1, "macro_f1": macro_f1, "matthews_correlation": matthews_correlation, "exact_match": group_exact_match,
            "gender_parity": gender_parity,
        },
        "regression": {
            "pearson": _correlation(pearsonr), "spearman": _correlation(spearmanr), "mrr": mrr, "ndcg": ndcg,
        },
        "choice": {},
        "extraction": {},
        "tagging": {"f1": entity_f1, "accuracy": tag_accuracy},
        "text": {metric: _corpus_level(metric) for metric in CORPUS_LEVEL},
    }.items()
}  # fmt: skip
"""Kind of task -> its metrics. A prediction is the name of a label; a score; the name of a choice; an answer; a tag per word; a text. A
generated prediction may be no valid label or choice, and is then incorrect."""


def evaluate(task: params.Task, split: str, examples: list[Example], predicted: list) -> dict[str, float | None]:
    """Return the metrics of a split, the main one first. Raise SesameError if the split has no labels."""
    declared = task.splits[split]
    if not declared.labelled:
        raise SesameError(f"the split {split} has no labels: it is for submission only")
    return {metric: METRICS[task.kind][metric](task, examples, predicted) for metric in declared.metrics or task.metrics}


def summary(scores: list[dict[str, float | None]]) -> dict[str, dict]:
    """Return mean, median, sample standard deviation (None for one seed), n and values of each metric; None if a value is undefined."""
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


def protocol(split: str, selection: str, train: int, size: int, at_most: bool = False) -> str:
    """Describe how a score was obtained, for tables. `at_most`: a seed may have drawn fewer than `train`, in complete groups."""
    return f"{split} split ({size} examples); {selection}; {'at most ' * at_most}{train} labelled examples"


def shown(value: float | None) -> str:
    """Format a score for the terminal."""
    return "undefined (constant predictions or labels)" if value is None else f"{value:.3f}"
