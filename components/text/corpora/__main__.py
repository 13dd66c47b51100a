"""Stage `corpus`: `python -m components.text.corpora NAME` writes data/corpora/NAME."""

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from components.core.errors import SesameError
from components.params import Params
from components.stages import stage
from components.text.corpora import Document, cleaning, languages, readers, writer


def body(params: Params, name: str, run) -> dict:
    """Read, sample, clean and split the corpus `name`; return its counts. Raise SesameError for unreadable text, or if none is left."""
    corpus = params.corpora[name]
    about = {
        "language": corpus.language,
        "sources": [part.source.model_dump(mode="json", exclude_none=True) for part in corpus.parts],
    }
    card = _in_shards(params, name, about) if corpus.shards else _in_memory(params, name, about)
    for split, counts in card["splits"].items():
        print(f"{split}: {counts['documents']} documents, {counts['segments']} segments, {counts['words']} words", flush=True)
    return writer.counts(card) | ({"words_by_language": card["words_by_language"]} if "words_by_language" in card else {})


def _in_shards(params: Params, name: str, about: dict) -> dict:
    if find_spec("datatrove") is None:
        raise SesameError(f"corpora.{name}.shards needs datatrove: pip install -c constraints.txt -e '.[text]'")
    return import_module("components.text.corpora.shards").build(params, name, about)  # by name: no other corpus depends on it


def _in_memory(params: Params, name: str, about: dict) -> dict:
    corpus = params.corpora[name]
    cleaner = cleaning.Cleaner(corpus.cleaning)  # one for all parts, to find duplicates between them
    words = Counter()

    def cleaned() -> Iterator[tuple[str | None, Document]]:
        """Yield (language, document)."""
        for part in corpus.parts:
            # cleaned first, so that dropped documents are not in the sample
            documents = readers.documents(part)
            documents = cleaner.sampled(documents, part.max_words, params.seed) if part.max_words else cleaner(documents)
            yield from ((part.language, document) for document in documents)

    def documents() -> Iterator[tuple[str, Document]]:
        pairs = cleaned()
        if corpus.smoothing:
            pairs = languages.balanced(name, corpus, pairs, params.seed, cleaner.dropped)
        for language, document in pairs:
            words[language] += cleaning.words_of(document)
            yield "\n".join(document), document

    about = about | {"dropped": cleaner.dropped}  # still counts while documents are written, like `words`
    if any(part.language for part in corpus.parts):
        about["words_by_language"] = words
    return writer.write(name, documents(), corpus.splits, params.seed, about)


if __name__ == "__main__":
    stage.main("corpus", body)
