"""`python -m components.generate NAME`: what a model writes -> data/generated/<name>/: texts.jsonl, and how good and how new it is."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import sacrebleu
import torch
from sacrebleu.significance import PairedTest

from components import params
from components.core import compute, storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.generate import novelty, writing
from components.generate.word_by_word import WordByWord
from components.stages import stage
from components.tasks.metrics import bleu_tokens
from components.text import corpora, encode
from components.text.sources.parallel import translations
from components.text.tokenizer import SEP

SHOWN = 20
"""Texts whose nearest training sentence is looked up."""
RESAMPLED = 1000
"""Times that the texts are drawn again for an interval."""
SENTENCES = 100_000
"""Of the training text, among which it is looked up."""


Trained = list[tuple[str, params.Objective]]
"""What a model was pre-trained on, and by what, first to last."""


@dataclass(frozen=True)
class Asked:
    """What is to be written for: a source or a beginning in tokens and as text, and what a person wrote there."""

    ids: list[list[int]]
    texts: list[str]
    references: list[str]
    reference_ids: list[list[int]]


def body(all_params: params.Params, name: str, run: Run) -> dict:
    """Write, judge, keep; the figures. Raises SesameError where the model can't write, or there is nothing to write for."""
    block = all_params.generations[name]
    compute.prepare(block.threads)
    writer = writing.of_params(all_params, block.model)
    trained = all_params.read_by(block.model)
    asked = {"parallel": parallel, "beginnings": beginnings}[block.inputs.kind](block, writer, trained)
    if not asked.ids:
        raise SesameError(f"generations.{name}.inputs: there is nothing to write for")

    started = time.perf_counter()
    made = writer.write(asked.ids, block.decoding, block.batch_size)
    seconds = time.perf_counter() - started
    texts, tokens = [writer.text(ids) for ids in made], sum(map(len, made))
    figures = {"texts": len(texts), "tokens_per_second": tokens / seconds, "mean_length": tokens / len(texts)}
    if unended := sum(len(ids) == writer.room(source, block.decoding) for ids, source in zip(made, asked.ids, strict=True)):
        print(f"{unended:,} of {len(made):,} texts are as long as they may be", flush=True)
    figures |= {"unended": unended / len(texts), "cut": writer.cut}
    if writer.cut:
        print(f"{writer.cut:,} of {len(made):,} sources cut: the model reads {writer.model.max_length} tokens", flush=True)
    signatures = {}
    if block.inputs.kind == "parallel":
        systems = {"written": texts}
        if block.inputs.word_by_word and trained and trained[-1][1].name == "translation":
            translate = baseline(all_params, *trained[-1])
            systems = {"word_by_word": [translate(text) for text in asked.texts]} | systems
        # a model whose pieces have no capitals can't write any
        lowercase = bool(trained) and all_params.tokenizers[all_params.encodings[trained[-1][0]].tokenizer].lowercase
        by_system = scored(systems, asked.references, lowercase, signatures)
        figures |= by_system.pop("written") | by_system
        if block.inputs.source.kind == "synthetic":
            figures["solved"] = solved(asked.texts, texts)
    near: list[tuple[str, float]] = []
    if trained:
        names = dict.fromkeys(encoding for encoding, _ in trained)
        train = encode.Split(tuple(shard for name in names for shard in encode.load(Path("data/encoded", name), "train").shards))
        figures["written"] = novelty.copied(made, train)
        figures["by_people"] = novelty.copied(asked.reference_ids, train)
        near = novelty.nearest(texts[:SHOWN], list(islice(chain.from_iterable(sentences(all_params, name) for name in names), SENTENCES)))
    seen = looked_at(writer, asked.ids[0], made[0]) if writer.reads_source else {}
    keep(name, asked, texts, near, {"signatures": signatures, "attention": seen})
    run.artifact(Path("data/generated", name))
    tell(figures, texts, asked)
    return figures | {"cost": {"tokens": tokens}}


def parallel(block: params.Generation, writer: writing.Writer, trained: Trained) -> Asked:
    """Sentences and their translations, from the block's own files."""
    if not writer.reads_source:
        raise SesameError(f"{block.model} goes on with a text and rewrites none: inputs of kind parallel are for an encoder-decoder")
    both = list(islice(translations(block.inputs.source.shown, block.inputs.source), block.most))
    pairs = [(other, one) if block.inputs.reverse else (one, other) for one, other in both]
    texts, references = [one for one, _ in pairs], [other for _, other in pairs]
    return Asked([writer.source(text) for text in texts], texts, references, writer.tokens.encode(references))


def beginnings(block: params.Generation, writer: writing.Writer, trained: Trained) -> Asked:
    """The first tokens of held-out documents of what the model was trained on last, and as the reference what follows there: as the model's
    own text it goes to the end of a segment, and is no longer than that may be."""
    if not trained:
        raise SesameError(f"{block.model} was not trained here: nothing says which text is held out for it")
    split, size = encode.load(Path("data/encoded", trained[-1][0]), block.inputs.split), block.inputs.tokens
    ids, rest = [], []
    for shard in split.shards:
        for first, end in zip(shard.document_tokens[:-1].tolist(), shard.document_tokens[1:].tolist(), strict=True):
            if end - first > 2 * size:
                document = shard.tokens[first:end].tolist()
                ids.append(document[:size] + ([SEP] if writer.reads_source else []))
                following = document[size : size + block.decoding.max_new_tokens]
                rest.append(following[: following.index(SEP)] if SEP in following else following)
    ids, rest = ids[: block.most], rest[: block.most]
    return Asked(ids, [writer.tokens.decode(own) for own in ids], [writer.tokens.decode(own) for own in rest], rest)


def scored(
    systems: dict[str, list[str]], references: list[str], lowercase: bool, signatures: dict[str, str]
) -> dict[str, dict[str, float]]:  # fmt: skip
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of all texts together, in per cent, by sacrebleu (Post 2018). Of two systems, the
    baseline first, with half the width of their 95 % intervals over the texts, and how probable such a difference is where there is none
    (Koehn 2004)."""
    told_apart = {"lowercase": lowercase, "references": [references]}
    metrics = {"BLEU": sacrebleu.BLEU(tokenize=bleu_tokens(references), **told_apart), "chrF2": sacrebleu.CHRF(**told_apart)}
    names = {"BLEU": "bleu", "chrF2": "chrf"}
    if len(systems) == 1:
        [(system, texts)] = systems.items()
        figures = {system: {names[key]: metric.corpus_score(texts, None).score for key, metric in metrics.items()}}
        signatures |= {key: str(metric.get_signature()) for key, metric in metrics.items()}
        return figures
    told, results = PairedTest(list(systems.items()), metrics, None, test_type="bs", n_samples=RESAMPLED)()
    signatures |= {key: str(signature) for key, signature in told.items()}
    figures = {system: {} for system in systems}
    for key, name in names.items():
        for system, result in zip(systems, results[key], strict=True):
            figures[system] |= {name: float(result.score), f"{name}_interval": float(result.ci)}
            figures[system] |= {} if result.p_value is None else {f"{name}_p": float(result.p_value)}
    return figures


def solved(problems: list[str], answers: list[str]) -> float:
    """The share of problems whose answer is right, as can be checked."""
    from components.text.sources.synthetic import solves

    return sum(map(solves, problems, answers)) / len(problems)


def baseline(all_params: params.Params, encoding: str, objective: params.Objective) -> Callable[[str], str]:
    """The word by word translation that the model's own training pairs give."""
    corpus = Path("data/corpora", all_params.encodings[encoding].corpus)
    pairs = ((pair[1], pair[0]) if objective.reverse else tuple(pair) for pair in corpora.read(corpus, "train"))
    return WordByWord(pairs).translate


def sentences(all_params: params.Params, encoding: str) -> Iterator[str]:
    """Of the training text of an encoding."""
    yield from chain.from_iterable(corpora.read(Path("data/corpora", all_params.encodings[encoding].corpus), "train"))


def looked_at(writer: writing.Writer, source: list[int], written: list[int]) -> dict:
    """Of one text: its pieces and those of its source, and where each looked as it was written, (layers, written, source)."""
    weights = writer.decoding.attention_weights(writer.model, torch.tensor(source), torch.tensor([*written, writer.end]))
    source, written = ([writer.tokens.decode([i]) or "·" for i in ids] for ids in (source, [*written, writer.end]))
    return {"source": source, "written": written, "weights": [[[round(x, 4) for x in row] for row in layer] for layer in weights.tolist()]}


def keep(name: str, asked: Asked, texts: list[str], near: list[tuple[str, float]], card: dict) -> None:
    """All texts, a line each; the first with their nearest training sentence."""
    with storage.output(Path("data/generated", name)) as folder:
        folder.mkdir(parents=True)
        with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
            for i, (source, text, reference) in enumerate(zip(asked.texts, texts, asked.references, strict=True)):
                row = {"input": source, "written": text, "reference": reference}
                alike = i < len(near) and near[i][1] > 0
                row |= {"nearest": near[i][0], "likeness": round(near[i][1], 3)} if alike else {}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        storage.write_json(folder / "card.json", card)


def tell(figures: dict, texts: list[str], asked: Asked) -> None:
    """The figures in short, and a text."""
    if "bleu" in figures:
        own = figures.get("word_by_word", {}).get("bleu")
        beside = "" if own is None else f" ± {figures['bleu_interval']:.1f} (word by word {own:.1f}, p = {figures['bleu_p']:.3f})"
        print(f"BLEU {figures['bleu']:.1f}{beside}, chrF {figures['chrf']:.1f}", flush=True)
    if "solved" in figures:
        print(f"solved: {figures['solved']:.1%}", flush=True)
    if "written" in figures:
        new = {kind: figures[kind].get("novel_4") for kind in ("written", "by_people")}
        shown = {kind: "–" if share is None else f"{share:.1%}" for kind, share in new.items()}
        print(f"new runs of four tokens: {shown['written']}, of what people wrote there {shown['by_people']}", flush=True)
    print(f"{figures['tokens_per_second']:,.0f} tokens/s; {asked.texts[0]!r} -> {texts[0]!r}", flush=True)


if __name__ == "__main__":
    stage.main("generate", body)
