"""Rules by which a document reads as text: datatrove's filters, as they are published."""

import re

from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.filters.c4_filters import C4QualityFilter
from datatrove.pipeline.filters.fineweb_quality_filter import FineWebQualityFilter
from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter
from datatrove.pipeline.filters.gopher_repetition_filter import GopherRepetitionFilter
from datatrove.utils.word_tokenizers import WordTokenizer, simple_span_tokenize

from components.core.words import WORD
from components.text.corpora.sentences import sentences

_PIECE = re.compile(rf"{WORD}(?:['’]{WORD})*|[^\w\s]+")


class Words(WordTokenizer):
    """Words and marks apart. datatrove's own tokenizers download models of nltk or spaCy, the one at white space, too."""

    def word_tokenize(self, text: str) -> list[str]:
        return _PIECE.findall(text)

    def sent_tokenize(self, text: str) -> list[str]:
        return [sentence for sentence in sentences(text) if sentence]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return list(simple_span_tokenize(text, self.sent_tokenize(text)))


def filters(names: list[str], language: str) -> list[BaseFilter]:
    """In the order given. Gopher's stop words are English ones, and asked for in English text only."""
    words = Words()
    stop_words = {} if language == "en" else {"min_stop_words": 0}
    made = {
        "gopher_quality": lambda: GopherQualityFilter(language=words, **stop_words),
        "gopher_repetition": lambda: GopherRepetitionFilter(language=words),
        "c4": lambda: C4QualityFilter(language=words),
        "fineweb": lambda: FineWebQualityFilter(language=words),
    }
    return [made[name]() for name in names]
