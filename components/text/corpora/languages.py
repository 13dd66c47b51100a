"""The shares of the languages in a corpus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from components import params
from components.core.errors import SesameError, format_counts
from components.text.corpora import Document, cleaning


def balanced(
    name: str, corpus: params.Corpus, documents: Iterable[tuple[str, Document]], seed: int, dropped: Counter
) -> Iterator[tuple[str, Document]]:  # fmt: skip
    """Yield (language, document), sampled to the smoothed share of each language. Raise SesameError if nothing is left of a language.

    Memory holds all documents: the shares are known only when all are read.
    """
    by_language = defaultdict(list)
    for language, document in documents:
        by_language[language].append(document)
    if empty := [part.language for part in corpus.parts if not by_language[part.language]]:
        raise SesameError(f"corpora.{name}: no text is left in {', '.join(dict.fromkeys(empty))}; dropped: {format_counts(dropped)}")
    words = {language: sum(map(cleaning.words_of, texts)) for language, texts in by_language.items()}
    shares = smoothed(words, corpus.smoothing)
    total = min([words[language] / share for language, share in shares.items()] + [corpus.max_words or float("inf")])
    sampled = {
        language: list(cleaning.sample(texts, round(total * shares[language]), seed, dropped)) for language, texts in by_language.items()
    }
    kept = {language: sum(map(cleaning.words_of, texts)) for language, texts in sampled.items()}
    for language, texts in sampled.items():
        if not texts:
            raise SesameError(
                f"corpora.{name}: each document of {language} is longer than its share, {round(total * shares[language]):,} words; "
                "read them as smaller documents (`document` of the reader)" + (", or raise max_words" if corpus.max_words else "")
            )
        share = kept[language] / sum(kept.values())
        print(f"{language}: {kept[language]:,} of {words[language]:,} words, {share:.1%} of the corpus", flush=True)
        yield from ((language, document) for document in texts)


def smoothed(words: dict[str, int], power: float) -> dict[str, float]:
    """Return the share of each language: its words to this power, normalised (Devlin et al., multilingual BERT: 0.7)."""
    weights = {language: count**power for language, count in words.items()}
    return {language: weight / sum(weights.values()) for language, weight in weights.items()}
