"""Text: corpora, mixes with the text of tasks, tokenizers and encodings."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, model_validator

from components.core.config import (
    Added,
    Block,
    CorpusName,
    Count,
    Label,
    Name,
    Once,
    Refers,
    Share,
    Size,
    TaskName,
    TokenizerName,
)
from components.params.sources import Source


class ReaderBlock(Block):
    """How the documents of a part of a corpus are found in its files."""

    @property
    def module(self) -> str:
        """Of `components.text.corpora.readers`: the class's name without `Reader`, since a reader may have several formats."""
        return type(self).__name__.removesuffix("Reader").lower()


class TextReader(ReaderBlock):
    """Running text. A document is a whole file, a paragraph group between blank lines, or a line."""

    format: Literal["text"]
    document: Literal["file", "blank_line", "line"] = "file"
    """The unit that counts as a document: a whole file, the lines between blank lines, or a line. Splits hold out whole
    documents."""
    wrapped: Annotated[bool, Added(neutral=False)] = False
    """For text that is broken into lines of one width, as from Project Gutenberg: the lines of a paragraph are joined before sentences are
    found. Otherwise a sentence ends at the end of its line, too."""
    errors: Literal["strict", "replace"] = "strict"
    """Invalid UTF-8 is an error, or becomes U+FFFD by choice."""

    @model_validator(mode="after")
    def lines_are_joined(self):
        if self.document == "line":
            self.refuse_idle(["wrapped"], "document: line makes a document of each line")
        return self


class TableReader(ReaderBlock):
    """Rows of a TSV, CSV, JSONL or parquet file; one column is the text, one row a document."""

    format: Literal["tsv", "csv", "jsonl", "parquet"]
    """The format of the files, plain or gzipped."""
    column: str | int
    """A name, or for files without a header the number of the field from 0."""
    headword: str | int | None = None
    """Another column, put before every segment: `word: what it means`."""
    header: bool = False
    """TSV and CSV: the first line names the columns."""
    fields: Size | None = None
    """TSV and CSV: the number of fields a line must have; by default the first line's."""
    separator: str | None = None
    """Splits the text into segments, e.g. `" | "` between the senses of a gloss; without it text is cut into sentences."""
    errors: Literal["strict", "replace"] = "strict"
    """Invalid UTF-8 is an error, or becomes U+FFFD by choice."""

    @model_validator(mode="after")
    def lines_have_fields(self):
        if self.format not in ("tsv", "csv"):
            self.refuse_idle(["header", "fields"], f"format {self.format} has no fields to count")
        return self


class ParallelReader(ReaderBlock):
    """Two files, line by line each other's translations: a document is a line and its translation, a segment each. A masked LM over both
    with `inputs: doc_sentences` is translation language modelling (Conneau and Lample 2019, section 3.3)."""

    format: Literal["parallel"]
    errors: Literal["strict", "replace"] = "strict"
    """Invalid UTF-8 is an error, or becomes U+FFFD by choice."""


Reader = Annotated[TextReader | TableReader | ParallelReader, Field(discriminator="format")]


class CorpusPart(Block):
    """One source with its reader."""

    source: Source
    """Where the files are from."""
    reader: Reader
    """How documents are found in them."""
    max_words: Count | None = None
    """Keep a seeded sample of documents up to this many words."""
    language: Annotated[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")] | None, Added(neutral=None)] = None
    """The language, for a corpus in several languages; two (`en-de`) for translations."""


class Cleaning(Block):
    """The cleaning of a document before it is kept."""

    unicode: Literal["NFC", "NFKC", "ftfy"] = "NFC"
    """`ftfy` also repairs mojibake, at about a tenth of the speed."""
    min_words: NonNegativeInt = 1
    """Shorter documents are left out; a word is what white space divides."""
    near_duplicates: Annotated[float, Field(gt=0, le=1)] | None = 0.8
    """Jaccard similarity of 5-word shingles (MinHash LSH) from which two documents are one; null switches it off."""
    near_duplicates_min_words: Count = 50
    """Documents of fewer words, or in scripts without blanks characters, are compared exactly only: their shingles are
    too few to estimate a similarity."""
    quality: Annotated[Annotated[list[Literal["gopher_quality", "gopher_repetition", "c4", "fineweb"]], Once], Added(neutral=[])] = []
    """Filters for a corpus of shards: rules of Gopher (Rae et al. 2021, appendix A), C4 (Raffel et al. 2020, section
    2.2) and FineWeb (Penedo et al. 2024, section 3.6), as datatrove has them, in this order. Their lines are our
    segments."""

    @model_validator(mode="after")
    def near_ones_are_looked_for(self):
        if self.near_duplicates is None:
            self.refuse_idle(["near_duplicates_min_words"], "near_duplicates is null")
        return self


class Splits(Block):
    """Shares of documents held out, by a hash of the document, so that a document never changes sides."""

    valid: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Share of the documents by which training is watched."""
    test: Share = 0.02
    """Share of the documents that no choice is made by."""

    @model_validator(mode="after")
    def something_is_left(self):
        if self.valid + self.test >= 1:
            raise ValueError(f"valid {self.valid:g} and test {self.test:g} leave nothing to train on: lower one of them")
        return self


class Corpus(Block):
    """Text from one or more sources, cleaned and split by document."""

    language: Annotated[str, Field(pattern=r"^\w[\w ,/+-]*$")]
    """ISO 639-1, as `en`; of several languages any word."""
    licence: Annotated[str, Label()]
    """The licence as stated by the source; goes onto the data card."""
    parts: Annotated[list[CorpusPart], Field(min_length=1)]
    """Sources, each with its reader."""
    cleaning: Cleaning = Cleaning()
    """The cleaning of a document before it is kept."""
    splits: Splits = Splits()
    """Shares of documents held out."""
    smoothing: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Added(neutral=None)] = None
    """Exponent that evens out the languages (multilingual BERT: 0.7): each gets a share of the words proportional to
    its share in the sources to this power; 1 keeps the shares, near 0 they are equal. As many words are kept as these
    shares allow without repeating any; a word is what white space divides. null: all of every part."""
    max_words: Annotated[Count | None, Added(neutral=None)] = None
    """With smoothing: at most so many of all languages."""
    shards: Annotated[Annotated[int, Field(ge=1, le=10**5)] | None, Added(neutral=None)] = None
    """Text beyond memory: so many files a split, each cleaned for itself by one of as many processes as there are cores (`text.workers`).
    What is in them depends on this number and not on the processes. null: one file, one process, in memory what was kept (docs/text.md)."""

    @model_validator(mode="after")
    def shards_are_apart(self):
        if self.cleaning.quality and not self.shards:
            raise ValueError("cleaning.quality needs shards: set shards, at least to 1, or leave quality out")
        if not self.shards:
            return self
        if self.smoothing:
            raise ValueError("smoothing counts the words of all text, which shards do not allow; leave one of them out")
        for number, part in enumerate(self.parts, start=1):
            if part.max_words:
                raise ValueError(
                    f"part {number}: max_words samples from all text, which shards do not allow; name fewer files"
                )
            if part.reader.format == "parallel":
                raise ValueError(
                    f"part {number}: format: parallel reads two files line by line, which shards do not "
                    "allow; leave shards out"
                )
        return self

    @model_validator(mode="after")
    def languages_are_named(self):
        nameless = [str(number) for number, part in enumerate(self.parts, start=1) if part.language is None]
        if self.smoothing and nameless:
            raise ValueError(f"smoothing is over languages, and part {', '.join(nameless)} names none")
        if self.max_words and not self.smoothing:
            raise ValueError(
                "max_words of a corpus needs smoothing; set smoothing, or give each part its own max_words"
            )
        return self


class Mix(Block):
    """A corpus together with the unlabelled training text of tasks.

    Sentences that occur in another split of these tasks are taken out and counted.
    """

    corpus: Annotated[Name, Refers(("corpora",))]
    """The name of an entry of `corpora`."""
    only_tasks: Annotated[bool, Added(neutral=False)] = False
    """None of the corpus's own text: what it gives is its language and the sizes of its splits."""
    tasks: Annotated[list[TaskName], Once]
    """Names of `tasks` whose training text is added."""
    also_held_out: Annotated[list[TaskName], Once] = []
    """Further tasks whose dev, test and extra splits are taken out.
    Not all that are declared: one more task would train every model again."""

    @model_validator(mode="after")
    def has_text(self):
        if self.only_tasks and not self.tasks:
            raise ValueError("only_tasks needs tasks: name them, or leave only_tasks out")
        if self.corpus in self.tasks:  # what is counted of each stands under its name
            raise ValueError(f"corpus: {self.corpus} is also the name of one of its tasks; call the corpus otherwise")
        return self


BYTES = 5 + 1 + 256
"""Pieces where each byte is one: the specials, the bytes, and the text's most frequent character, the space."""
LIBRARY = ("byte_level_bpe", "wordpiece")
"""Kinds that the library `tokenizers` trains; the others are sentencepiece's."""


class Tokenizer(Block):
    """Settings of a tokenizer."""

    corpus: CorpusName
    """The name of an entry of `corpora` or `mixes`: the tokenizer is trained on its training split."""
    kind: Annotated[Literal["bpe", "unigram", "characters", "bytes", *LIBRARY], Added(neutral="bpe")] = "bpe"
    """By sentencepiece: BPE (Sennrich et al. 2016), a unigram model (Kudo 2018), or single characters or bytes.
    By the library `tokenizers`: byte-level BPE (GPT-2's and RoBERTa's, Radford et al. 2019) and BERT's WordPiece (Wu et
    al. 2016)."""
    vocab_size: Annotated[int, Field(ge=300, le=10**7)] | None = None
    """The number of tokens. For `characters` the maximum; leave it out for `bytes`."""
    byte_fallback: bool = True
    """sentencepiece: characters without a token of their own become bytes, so that nothing is unknown."""
    character_coverage: Share = 0.9995
    """sentencepiece: share of the text's characters that get tokens of their own (Kudo and Richardson 2018: 0.9995, and
    1 for small alphabets)."""
    sentinels: Annotated[int, Field(ge=0, le=10**4), Added(neutral=0)] = 0
    """Ids at the end of the vocabulary, beyond `vocab_size`, that never occur in text: each stands for a masked span
    (T5's `<extra_id_0>`, which is the last, and so on)."""
    lowercase: bool = False
    """Whether text is lowercased first."""
    sample_sentences: Annotated[Count | None, Added(neutral=None)] = None
    """Segments of the training text to learn from, drawn without replacement; null: all. Libraries hold them in memory several times."""

    @model_validator(mode="after")
    def size_fits(self):
        if (self.vocab_size is None) != (self.kind == "bytes"):
            said = (
                ("vocab_size has no effect, as it is the number of bytes; leave it out")
                if self.vocab_size
                else "vocab_size is missing"
            )
            raise ValueError(f"kind {self.kind}: {said}")
        if self.kind in LIBRARY and (unused := {"byte_fallback", "character_coverage"} & self.model_fields_set):
            raise ValueError(f"{sorted(unused)[0]} has no effect: kind {self.kind} is not of sentencepiece; leave it out")
        if self.kind == "bytes" and not self.byte_fallback:
            raise ValueError("kind bytes needs byte_fallback: set it to true, or leave it out")
        return self

    @property
    def most_pieces(self) -> int:
        """There are no more beside the sentinels and, among bytes, the non-joiner of a text that has one."""
        return self.vocab_size or BYTES

    @property
    def most_ids(self) -> int:
        """The pieces, as in `most_pieces`, and the sentinels."""
        return self.most_pieces + self.sentinels


class TextRun(Block):
    """Who works on corpora of shards: no text depends on it."""

    executor: Literal["local", "slurm"] = "local"
    """Processes of this machine, or an array job of Slurm for each step, for folders that all nodes see."""
    workers: Count | None = None
    """Tasks at a time; null: as many as there are cores, and on Slurm all."""
    partition: str = "normal"
    """Slurm's."""
    time: Annotated[str, Field(pattern=r"^[\d:-]+$")] = "24:00:00"
    """Slurm's limit of a task."""


class Encoding(Block):
    """A corpus turned into memory-mapped token ids by a tokenizer."""

    corpus: CorpusName
    """The name of an entry of `corpora` or `mixes`."""
    tokenizer: TokenizerName
    """The name of an entry of `tokenizers`."""
