"""The stage `generate`."""

from collections.abc import Iterator, Mapping

from components.params import Params
from components.stages.declaration import Entry, Stage, Table
from components.stages.parts import decoding_modules, model_modules, source_modules


def generations(p: Params) -> Iterator[Entry]:
    for name, block in p.generations.items():
        modules = ("components.generate.__main__", *model_modules(p, block.model))
        modules += (*decoding_modules(p.family(block.model)), *source_modules(block))
        # the training decides what is held out, what is new, and how a mask is marked
        trained = [
            {"encoding": encoding, "objective": objective.settings(), "lowercase": p.tokenizers[p.encodings[encoding].tokenizer].lowercase}
            for encoding, objective in p.read_by(block.model)
        ]
        yield Entry("generate", name, modules, {"trained": trained, **block.settings()}, block.model)


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    rows = [
        [name, f"{measured['texts']:,}", *(f"{measured[key]:.1f}" if key in measured else "–" for key in ("bleu", "chrf")),
         f"{measured['word_by_word']['bleu']:.1f}" if "word_by_word" in measured else "–", f"{measured['tokens_per_second']:,.0f}"]
        for (_, name), measured in metrics.items()
    ]  # fmt: skip
    return Table(["texts of", "texts", "BLEU", "chrF", "word by word", "tokens/s"], rows)


STAGES = (Stage("generate", generations, "generated/{0}", section="generations", fetches=True, table=table),)
