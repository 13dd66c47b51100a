"""How much of each language a corpus has."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from components import params
from components.core.errors import SesameError, format_counts
from components.text.corpora import Document, cleaning


def balanced(
    name: str, corpus: params.Corpus, documents: Iterable[tuple[str, Document]], seed: int, dropped: Counter
) -> Iterator[tuple[str, Document]]:  # fmt: skip
    """(language, document), of each language its smoothed share of the words. Raises SesameError where a language has no text.

    Holds the documents in memory: shares are known when all are read.
    """
    own = defaultdict(list)
    for language, document in documents:
        own[language].append(document)
    if empty := [part.language for part in corpus.parts if not own[part.language]]:
        raise SesameError(f"corpora.{name}: no text is left in {', '.join(dict.fromkeys(empty))}; dropped: {format_counts(dropped)}")
    words = {language: sum(map(cleaning.words_of, texts)) for language, texts in own.items()}
    shares = smoothed(words, corpus.smoothing)
    whole = min([words[language] / share for language, share in shares.items()] + [corpus.max_words or float("inf")])
    for language, texts in own.items():
        share = shares[language]
        print(f"{language}: {words[language]:,} words, {share:.1%} of the corpus", flush=True)
        yield from ((language, document) for document in cleaning.sample(texts, round(whole * share), seed, dropped))


def smoothed(words: dict[str, int], power: float) -> dict[str, float]:
    """Of each language the share of its words, to this power (Devlin et al., multilingual BERT: 0.7); they sum to 1."""
    weights = {language: count**power for language, count in words.items()}
    return {language: weight / sum(weights.values()) for language, weight in weights.items()}
