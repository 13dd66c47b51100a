"""Subcommands that use a trained model: `generate`, `neighbours`, `attention`, `batch`, `export`, `vectors`.

Modules that are slow to import are imported inside the commands that use them.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from components import params
from components.core import storage
from components.core.errors import SesameError
from pipelines.cli.command import MOST, group, plain_name

if TYPE_CHECKING:
    from components.generate.filling import Filler
    from components.generate.writing import Writer

command = group("Models")


@command("batch")
def batch_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of `models` in params.yaml.")],
    step: Annotated[
        int, typer.Argument(metavar="STEP", help="A step of the pre-training, counted from 1 as in its log.")
    ],
    rows: Annotated[int, typer.Option(min=1, help="How many rows of the batch to show.")] = 8,
) -> None:
    """Show the batch of one pre-training step: text, masks, pairs, and the documents of each row."""
    from components.pretrain.batch import batch
    from pipelines import terminal

    shown = batch(params.load(), model, step)
    for row in shown[:rows]:
        about = ", ".join([f"documents {row['documents']}", *([row["asked"]] if row.get("asked") else [])])
        terminal.say(about, "bold")
        terminal.say(row["text"])
        if "target" in row:
            terminal.say(f"→ {row['target']}")
    terminal.say(f"{min(rows, len(shown))} of {len(shown)} rows of step {step}; the same in every run with these params", "dim")


DECODINGS = {"greedy": params.Greedy, "sample": params.Sample, "beam": params.Beam}
"""`--how` of `generate` -> its settings, which have the defaults."""


def _decoding(how: str, **options: float | None) -> params.HowWritten:
    """The settings of a decoding. Raises SesameError for an option without effect under `how`, or out of range."""
    from pydantic import ValidationError

    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in DECODINGS[how].model_fields:
            able = " or ".join(kind for kind, block in DECODINGS.items() if name in block.model_fields)
            raise SesameError(f"--{name.replace('_', '-')} has no effect with --how {how}: it needs --how {able}")
    try:
        return DECODINGS[how](kind=how, **given)
    except ValidationError as error:
        problem = error.errors()[0]
        raise SesameError(f"--{str(problem['loc'][-1]).replace('_', '-')}: {problem['msg']}") from None


@command()
def generate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model of data/models that generates text, left to right or into masks.",
            parser=plain_name,
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The prompt or source text. [MASK] marks a place to fill.")
    ] = "",
    file: Annotated[Path | None, typer.Option(help="A file with one text per line, in place of TEXT.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new file for the texts, one per line. Default: the terminal.")
    ] = None,
    how: Annotated[
        Literal["greedy", "beam", "sample"],
        typer.Option(help="Decoding: the most likely token each time, beam search, or sampling."),
    ] = "greedy",
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="How many tokens to generate at most. Default: 64.")] = None,
    beams: Annotated[int | None, typer.Option(min=2, help="Beam size, for --how beam. Default: 4.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Length-penalty exponent, for --how beam. Default: 0.6.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Softmax temperature, for --how sample. Default: 1.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help="Sample from this many most likely tokens, for --how sample. Default: 0, which means all.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most likely tokens up to this total probability, for --how sample. Default: 1."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the random numbers, for --how sample. Default: 1.")] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1, tokens that occurred before become less likely. For --how greedy and sample. Default: 1."),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(min=0, max=MOST, help="For masked models: how often each generated token is masked and predicted again."),
    ] = 0,
) -> None:
    """Generate text with a model: a translation, a filled gap, or a continuation. A masked model fills each [MASK]."""
    from pipelines import terminal

    decoding = _decoding(
        how, max_new_tokens=max_new_tokens, beams=beams, length_penalty=length_penalty, temperature=temperature, top_k=top_k,
        top_p=top_p, seed=seed, repetition_penalty=repetition_penalty,
    )  # fmt: skip
    if out:
        storage.unused_path(out)
    prompts = _prompts(file) if file else [text]
    writer = _writer(model, prompts, rounds, max_new_tokens)
    sources = _sources(writer, prompts, decoding, file)
    if writer.cut:  # to stderr: what is written may go into a pipe
        about = f"{writer.cut:,} of {len(prompts):,} texts cut" if file else "the end of the text is cut off"
        print(f"{about}: {model} reads {writer.model.max_length:,} tokens", file=sys.stderr)
    if len(sources) == 1 and not out and how != "beam":  # no token is revised later
        written = False
        for piece in writer.stream(sources[0], decoding):
            print(piece, end="", flush=True)
            written = written or bool(piece)
        print()
        if not written:
            print(f"{model} writes nothing here: it ends the text at once", file=sys.stderr)
        return
    texts = [" ".join(writer.text(ids).splitlines()) for ids in writer.write(sources, decoding, batch_size=64)]
    if out:
        with storage.output(out) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
        terminal.say(f"{len(texts):,} texts in {out}")
    else:
        for line in texts:
            print(line)


def _prompts(file: Path) -> list[str]:
    """The lines of a text file. Raises SesameError where there is none."""
    from components.text.sources.file import SourceFile
    from components.text.sources.text import lines

    if not file.is_file():
        raise SesameError(f"{file}: no such file; name a file with one text per line")
    return [line for _, line in lines(SourceFile(str(file), lambda: open(file, "rb")))]  # noqa: SIM115


def _sources(
    writer: "Writer | Filler", prompts: list[str], decoding: params.HowWritten, file: Path | None
) -> list[list[int]]:  # fmt: skip
    """The model's inputs for the texts. Raises SesameError for one that does not fit, with its line in the file."""
    sources = []
    for line, prompt in enumerate(prompts, start=1):
        try:
            sources.append(writer.source(prompt))
            writer.room(sources[-1], decoding)
        except SesameError as error:
            raise SesameError(f"{file}, line {line}: {error}" if file else str(error)) from None
    return sources


def _writer(model: str, prompts: list[str], rounds: int, max_new_tokens: int | None) -> "Writer | Filler":
    """What writes a model's texts. Raises SesameError for an option, or a prompt, that this model can do nothing with."""
    from components.generate import filling, writing

    if filling.fills(model):
        if max_new_tokens is not None:
            raise SesameError(f"--max-new-tokens has no effect: {model} fills as many masks as TEXT has; leave it out")
        return filling.load(model, rounds)
    if rounds:
        raise SesameError(f"--rounds is for masked models, and {model} generates from left to right; leave it out")
    writer = writing.of_params(params.load(), model)
    if not writer.reads_source and any("[MASK]" in prompt for prompt in prompts):
        raise SesameError(
            f"{model} goes on with a text and fills no [MASK]; leave it out, or name a model that reads both sides"
        )
    return writer


@command()
def neighbours(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A text with one word between asterisks: 'a *play* in context'.")
    ],
    layer: Annotated[
        int | None, typer.Option(help="Layer of the model; 0 is the input embeddings. Default: the last layer.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Word vectors of data/vectors, to show the neighbours without context too.", parser=plain_name
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="The corpus whose validation text is searched. Default: the model's own.", parser=plain_name),
    ] = None,
    segments: Annotated[int, typer.Option(min=1, max=10**9, help="How many segments of the corpus to search.")] = 2000,
    top: Annotated[int, typer.Option(min=1, max=10**9, help="How many neighbours to show.")] = 8,
) -> None:
    """Show the nearest neighbours of a word in its context, by a model, and without context, by word vectors."""
    from components.embeddings import contexts
    from pipelines import terminal

    all_params = params.load()
    spaces = (*all_params.vectors, *all_params.published_vectors, *all_params.contextual_vectors)
    for option, name, known in (("corpus", corpus, (*all_params.corpora, *all_params.mixes)), ("vectors", vectors, spaces)):
        if name is not None and name not in known:
            raise SesameError(f"--{option}: no {name!r} in params.yaml (there are: {', '.join(known) or 'none'})")
    corpus_name = corpus or contexts.corpus_of(all_params, model)
    read, searched, matches = contexts.neighbours(model, text, corpus_name, layer, segments, top)
    terminal.say(f"{model}, layer {read}, among the words of {searched:,} segments of {corpus_name}", "bold")
    terminal.table(["cosine", "in context"], [[f"{score:.3f}", shown] for score, shown in matches])
    if vectors:
        marked = contexts.marked(text)
        word = marked.text[marked.start : marked.end]
        terminal.say(f"{vectors}: {word} without context", "bold")
        terminal.table(["cosine", "word"], [[f"{score:.3f}", other] for score, other in contexts.without_context(vectors, word, top)])


@command()
def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text that the model reads.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file. Default: data/attention/MODEL.html, which is overwritten."),
    ] = None,
) -> None:
    """Draw the attention of each head of each layer over a text, as a page of heat maps."""
    from components.evaluations.attention import page
    from pipelines import terminal

    terminal.say(str(page.write(model, text, out)))


@command()
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of data/models.", parser=plain_name)],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A new folder. Default: data/export/MODEL.")
    ] = None,
    classifier: Annotated[
        bool, typer.Option("--classifier", help="Include the head of the task that the model was tuned on.")
    ] = False,
) -> None:
    """Write a model and its tokenizer in the format of `transformers`, and check that both compute the same."""
    from components.derive.checkpoints import export as exports
    from pipelines import terminal

    folder, difference = exports.export(model, out, classifier)
    reader = "AutoModelForSequenceClassification" if classifier else "AutoModel"
    terminal.say(f"{folder}: for {reader} and AutoTokenizer; largest difference {difference:.2g}")


@command()
def vectors(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Word vectors of data/vectors, or an alignment.", parser=plain_name)
    ],
    method: Annotated[
        str | None, typer.Option(help="For an alignment: the method whose maps are used. Default: the first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder. Default: data/export/NAME.")] = None,
) -> None:
    """Write word vectors in word2vec's text format, for gensim, MUSE and VecMap.

    An alignment gives the vectors of both sides in one space, and the test words.
    """
    from components.embeddings import interchange
    from pipelines import terminal
    from pipelines.execution import staleness

    all_params, stage = params.load(), f"align@{name}"
    if name in all_params.alignments and staleness.stale([stage]):  # its maps are of other vectors
        raise SesameError(
            f"{stage} has not run with the current params, code and vectors; run `sesame run {stage}` first"
        )
    for path in interchange.export(all_params, name, method, out):
        terminal.say(str(path))
