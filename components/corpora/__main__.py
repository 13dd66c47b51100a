"""Stage `corpus`: `python -m components.corpora NAME` writes data/corpora/NAME."""

from collections.abc import Iterator

from components import stage
from components.corpora import Document, cleaning, readers, writer
from components.params import Params


def body(params: Params, name: str, run) -> dict:
    """Read, sample, clean and split the corpus `name`; its counts. Raises SesameError on text that can't be read, or none that is left."""
    corpus = params.corpora[name]
    cleaner = cleaning.Cleaner(corpus.cleaning)  # one for all parts: a document of the second may repeat one of the first

    def documents() -> Iterator[tuple[str, Document]]:
        for part in corpus.parts:
            # Cleaned first, so that what is dropped takes no place in the sample.
            cleaned = cleaner(readers.documents(part))
            if part.max_words:
                cleaned = cleaning.sample(cleaned, part.max_words, params.seed, cleaner.dropped)
            for document in cleaned:
                yield "\n".join(document), document

    about = {
        "language": corpus.language,
        "licence": corpus.licence,
        "sources": [part.source.model_dump(mode="json", exclude_none=True) for part in corpus.parts],
        "dropped": cleaner.dropped,  # counted while documents are written
    }
    card = writer.write(name, documents(), corpus.splits, params.seed, about)
    for split, counts in card["splits"].items():
        print(f"{split}: {counts['documents']} documents, {counts['segments']} segments, {counts['words']} words", flush=True)
    return writer.counts(card)


if __name__ == "__main__":
    stage.main("corpus", body, "corpora")
