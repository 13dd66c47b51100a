"""The stages of text: corpus, mix, tokenizer, encode."""

from collections.abc import Iterator

from components.params import Params
from components.stages.declaration import Entry, Inputs, Stage
from components.stages.parts import encoding_modules, source_modules, tokenizer_modules


def corpora(p: Params) -> Iterator[Entry]:
    for name, corpus in p.corpora.items():
        readers = tuple(sorted({f"components.text.corpora.readers.{part.reader.module}" for part in corpus.parts}))
        shards = ("components.text.corpora.shards", "components.text.sources.portion") if corpus.shards else ()
        modules = ("components.text.corpora.__main__", *readers, *source_modules(corpus), *shards)
        yield Entry("corpus", name, modules, {"seed": p.seed, **corpus.settings()})


def mixes(p: Params) -> Iterator[Entry]:
    for name, mix in p.mixes.items():
        splits = {task: sorted(p.tasks[task].splits) for task in (*mix.tasks, *mix.also_held_out)}
        settings = {"seed": p.seed, **mix.settings(), "base": p.corpora[mix.corpus].settings(), "splits": splits}
        yield Entry("mix", name, ("components.text.corpora.mix",), settings)


def tokenizers(p: Params) -> Iterator[Entry]:
    for name, tokenizer in p.tokenizers.items():
        drawn = {"seed": p.seed} if tokenizer.sample_sentences else {}
        modules = ("components.text.tokenizer.__main__", *tokenizer_modules(tokenizer))
        yield Entry("tokenizer", name, modules, drawn | tokenizer.settings())


def encodings(p: Params) -> Iterator[Entry]:
    for name, encoding in p.encodings.items():
        corpus = p.corpora.get(encoding.corpus)
        shards = ("components.text.encode.shards",) if corpus and corpus.shards else ()
        modules = ("components.text.encode.__main__", *encoding_modules(p, name), *shards)
        yield Entry("encode", name, modules, encoding.settings())


STAGES = (
    Stage("corpus", corpora, "corpora/{0}", section="corpora", fetches=True),
    Stage(
        "mix", mixes, "corpora/{0}", section="mixes",
        inputs=lambda p: (
            Inputs(name, (f"tasks/{task}" for task in (*mix.tasks, *mix.also_held_out))) for name, mix in p.mixes.items()
        ),
    ),
    Stage("tokenizer", tokenizers, "tokenizers/{0}", section="tokenizers"),
    Stage("encode", encodings, "encoded/{0}", section="encodings"),
)  # fmt: skip
