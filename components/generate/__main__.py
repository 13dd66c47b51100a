"""`python -m components.generate NAME`: generate texts -> data/generated/<name>/: texts.jsonl, with quality and novelty."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from sacrebleu.significance import PairedTest

from components import params
from components.core import compute, storage
from components.core.errors import SesameError
from components.core.keyed import generator
from components.core.tracking import Run
from components.generate import novelty, writing
from components.generate.word_by_word import WordByWord
from components.stages import stage
from components.tasks.metrics import as_tokenizers_write, bleu_tokens
from components.text import corpora, encode
from components.text.sources.parallel import translations
from components.text.tokenizer import SEP

SHOWN = 20
"""Number of texts whose nearest training sentence is searched."""
RESAMPLED = 1000
"""Bootstrap samples for an interval."""
WRITTEN = "|text:nfkc"
"""Put after sacrebleu's signatures: plain sacrebleu compares full-width commas, ½ and ² as they stand."""
SENTENCES = 2_000_000
"""Number of training sentences, from the first on, among which the nearest one is searched: a minute and gigabytes."""


Trained = list[tuple[str, params.Objective]]
"""The encoding and objective of each pre-training of a model, in order."""


@dataclass(frozen=True)
class Inputs:
    """Sources or beginnings, as tokens and as text, and the texts by people for them."""

    ids: list[list[int]]
    texts: list[str]
    references: list[str]
    reference_ids: list[list[int]]


def generate(all_params: params.Params, name: str, run: Run) -> dict:
    """Generate texts, score and save them. Raises SesameError where the model cannot generate, or there are no inputs."""
    block = all_params.generations[name]
    compute.prepare(block.threads)
    writer = writing.of_params(all_params, block.model)
    trained = all_params.read_by(block.model)
    inputs = {"parallel": parallel, "beginnings": beginnings}[block.inputs.kind](block, writer, trained)
    if not inputs.ids:
        raise SesameError(f"generations.{name}.inputs: there are no texts to start from")

    started = time.perf_counter()
    all_generated = writer.answers(inputs.ids, block.decoding, block.batch_size, block.answers)
    seconds = time.perf_counter() - started
    answers = [[writer.text(ids) for ids in to_one] for to_one in all_generated]
    generated, texts = [first for first, *_ in all_generated], [first for first, *_ in answers]
    tokens, length = sum(map(len, chain.from_iterable(all_generated))), sum(map(len, generated)) / len(texts)
    figures = {"texts": len(texts), "tokens_per_second": tokens / seconds, "mean_length": length}
    if unended := sum(len(ids) == writer.room(source, block.decoding) for ids, source in zip(generated, inputs.ids, strict=True)):
        print(f"{unended:,} of {len(generated):,} texts have the maximal length", flush=True)
    figures |= {"unended": unended / len(texts), "cut": writer.cut}
    if writer.cut:
        print(f"{writer.cut:,} of {len(generated):,} sources cut: the model reads {writer.model.max_length} tokens", flush=True)
    signatures = {}
    if block.inputs.kind == "parallel":
        systems = {"written": texts}
        if block.inputs.word_by_word and trained and trained[-1][1].name == "translation":
            translate = baseline(all_params, *trained[-1])
            systems = {"word_by_word": [translate(text) for text in inputs.texts]} | systems
        # a lower-cased vocabulary cannot generate capitals
        lowercase = bool(trained) and all_params.tokenizers[all_params.encodings[trained[-1][0]].tokenizer].lowercase
        by_system = score(systems, inputs.references, lowercase, signatures)
        figures |= by_system.pop("written") | by_system
        if block.inputs.source.kind == "synthetic":
            figures |= solved(block, inputs.texts, answers)
    near: list[tuple[str, float]] = []
    if trained:
        names = dict.fromkeys(encoding for encoding, _ in trained)
        train = encode.Split(tuple(shard for name in names for shard in encode.load(Path("data/encoded", name), "train").shards))
        figures["written"] = novelty.copied(generated, train)
        figures["by_people"] = novelty.copied(inputs.reference_ids, train)
        read = list(islice(chain.from_iterable(sentences(all_params, name) for name in names), SENTENCES + 1))
        if len(read) > SENTENCES:
            print(f"the nearest sentence is searched in the first {SENTENCES:,} of the training text alone", flush=True)
            del read[SENTENCES:]
        near, figures["sentences_searched"] = novelty.nearest(texts[:SHOWN], read), len(read)
    attention = attention_weights(writer, inputs.ids[0], generated[0]) if writer.reads_source else {}
    save(name, inputs, answers, near, {"signatures": signatures, "attention": attention})
    run.artifact(Path("data/generated", name))
    report(figures, texts, inputs)
    return figures | {"cost": {"tokens": tokens}}


def parallel(block: params.Generation, writer: writing.Writer, trained: Trained) -> Inputs:
    """Sentences with their translations, from the files of the block."""
    if not writer.reads_source:
        raise SesameError(f"{block.model} continues a text and has no source: inputs of kind parallel are for an encoder-decoder")
    lines = translations(block.inputs.source.shown, block.inputs.source)
    both = list(islice(lines, block.most))
    for _ in lines:  # to the end, where the numbers of lines are compared
        pass
    known = [(source, target) for source, target in both if source.strip() and target.strip()]
    if len(known) < len(both):
        print(f"{len(both) - len(known):,} of {len(both):,} pairs are left out: a side is empty", flush=True)
    pairs = [(target, source) if block.inputs.reverse else (source, target) for source, target in known]
    texts, references = [source for source, _ in pairs], [target for _, target in pairs]
    return Inputs([writer.source(text) for text in texts], texts, references, writer.tokens.encode(references))


def beginnings(block: params.Generation, writer: writing.Writer, trained: Trained) -> Inputs:
    """The first tokens of held-out documents of the model's last training text, drawn with a fixed seed, with their
    continuations as references: as a generated text these go to the end of a segment, and have at most `max_new_tokens`."""
    if not trained:
        raise SesameError(f"{block.model} was not trained here: its held-out text is not known")
    split, size = encode.load(Path("data/encoded", trained[-1][0]), block.inputs.split), block.inputs.tokens
    ids, rest = [], []
    for shard in split.shards:
        for first, end in zip(shard.document_tokens[:-1].tolist(), shard.document_tokens[1:].tolist(), strict=True):
            if end - first > 2 * size:
                document = shard.tokens[first:end].tolist()
                ids.append(document[:size] + ([SEP] if writer.reads_source else []))
                following = document[size : size + block.decoding.max_new_tokens]
                rest.append(following[: following.index(SEP)] if SEP in following else following)
    # drawn, as the first documents of a text are those of its first part
    drawn = sorted(generator(0).permutation(len(ids))[: block.most].tolist())
    ids, rest = [ids[i] for i in drawn], [rest[i] for i in drawn]
    return Inputs(ids, [writer.tokens.decode(i) for i in ids], [writer.tokens.decode(i) for i in rest], rest)


def score(
    systems: dict[str, list[str]], references: list[str], lowercase: bool, signatures: dict[str, str]
) -> dict[str, dict[str, float]]:  # fmt: skip
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of all texts together, in per cent, with sacrebleu (Post 2018). For two systems,
    the baseline first, also half the width of their 95 % intervals over the texts, and the p-value of their difference (`p_value`).
    Texts are compared as tokenizers write them, in NFKC, which the signatures say."""
    systems = {system: list(map(as_tokenizers_write, texts)) for system, texts in systems.items()}
    references = list(map(as_tokenizers_write, references))
    options = {"lowercase": lowercase, "references": [references]}
    metrics = {"BLEU": sacrebleu.BLEU(tokenize=bleu_tokens(references), **options), "chrF2": sacrebleu.CHRF(**options)}
    names = {"BLEU": "bleu", "chrF2": "chrf"}
    if len(systems) == 1:
        [(system, texts)] = systems.items()
        figures = {system: {names[key]: metric.corpus_score(texts, None).score for key, metric in metrics.items()}}
        signatures |= {key: f"{metric.get_signature()}{WRITTEN}" for key, metric in metrics.items()}
        return figures
    by_metric, results = PairedTest(list(systems.items()), metrics, None, test_type="bs", n_samples=RESAMPLED)()
    signatures |= {key: f"{signature}{WRITTEN}" for key, signature in by_metric.items()}
    figures, written = {system: {} for system in systems}, [*systems][-1]
    for key, name in names.items():
        for system, result in zip(systems, results[key], strict=True):
            figures[system] |= {name: float(result.score), f"{name}_interval": float(result.ci)}
        figures[written][f"{name}_p"] = p_value(metrics[key], *systems.values(), references)
    return figures


def p_value(metric: Any, one: list[str], other: list[str], references: list[str]) -> float:
    """The p-value of the difference of two systems, two-sided, by a paired bootstrap over the texts (Koehn 2004; Efron and Tibshirani
    1993, section 16.4): how often a resampled difference is as far from their mean as the real one is from 0. sacrebleu's own is
    one-sided and chooses the side by the result: of systems that are equally good 12 % are below .05 by it."""
    counts = [np.array(metric._extract_corpus_statistics(texts, [references])) for texts in (one, other)]

    def difference(rows: np.ndarray | slice) -> float:
        first, second = (metric._compute_score_from_stats(each[rows].sum(0).tolist()).score for each in counts)
        return second - first

    drawn = generator(0).integers(len(references), size=(RESAMPLED, len(references)))
    resampled = np.array([difference(rows) for rows in drawn])
    as_far = np.abs(resampled - resampled.mean()) >= abs(difference(slice(None)))
    return float((1 + as_far.sum()) / (1 + RESAMPLED))


def solved(block: params.Generation, problems: list[str], answers: list[list[str]]) -> dict[str, Any]:
    """The share of problems that the first answer solves, and the share that any of 1, 2, 4, ... answers solves: of beams
    the best ones, of draws the expectation over which of them are taken (Chen et al. 2021, equation 1)."""
    from components.text.sources import synthetic

    solves = synthetic.load(block.inputs.source.problem).solves
    right = [[solves(problem, answer) for answer in texts] for problem, texts in zip(problems, answers, strict=True)]
    figures: dict[str, Any] = {"solved": sum(first for first, *_ in right) / len(right)}
    if block.answers > 1:
        counts = sorted({2**power for power in range(block.answers.bit_length())} | {block.answers})
        share = best_of if block.decoding.kind == "beam" else pass_at
        figures["solved_by_any"] = {
            str(count): sum(share(each, count) for each in right) / len(right) for count in counts
        }
    return figures


def best_of(right: list[bool], count: int) -> float:
    """1 if any of the first answers is right, else 0."""
    return float(any(right[:count]))


def pass_at(right: list[bool], count: int) -> float:
    """The probability that a right answer is among a number of answers taken at random: 1 - C(n - c, k) / C(n, k)."""
    return 1 - comb(len(right) - sum(right), count) / comb(len(right), count)


def baseline(all_params: params.Params, encoding: str, objective: params.Objective) -> Callable[[str], str]:
    """Translation word by word, learned from the model's training pairs."""
    corpus = Path("data/corpora", all_params.encodings[encoding].corpus)
    pairs = ((pair[1], pair[0]) if objective.reverse else tuple(pair) for pair in corpora.read(corpus, "train"))
    return WordByWord(pairs).translate


def sentences(all_params: params.Params, encoding: str) -> Iterator[str]:
    """The training text of an encoding."""
    yield from chain.from_iterable(corpora.read(Path("data/corpora", all_params.encodings[encoding].corpus), "train"))


def attention_weights(writer: writing.Writer, source: list[int], generated: list[int]) -> dict:
    """The tokens of a source and of its generated text, and the attention from these to those, (layers, generated, source)."""
    weights = writer.decoding.attention_weights(writer.model, torch.tensor(source), torch.tensor([*generated, writer.end]))
    source, generated = ([writer.tokens.decode([i]) or "·" for i in ids] for ids in (source, [*generated, writer.end]))
    rounded = [[[round(x, 4) for x in row] for row in layer] for layer in weights.tolist()]
    return {"source": source, "written": generated, "weights": rounded}


def save(
    name: str, inputs: Inputs, answers: list[list[str]], near: list[tuple[str, float]], card: dict
) -> None:
    """Write the first text to each input, and all where there are several; the first ones with their nearest training
    sentence."""
    with storage.output(Path("data/generated", name)) as folder:
        folder.mkdir(parents=True)
        with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
            for i, (source, to_one, reference) in enumerate(zip(inputs.texts, answers, inputs.references, strict=True)):
                row = {"input": source, "written": to_one[0], "reference": reference}
                row |= {"answers": to_one} if len(to_one) > 1 else {}
                similar = i < len(near) and near[i][1] > 0
                row |= {"nearest": near[i][0], "likeness": round(near[i][1], 3)} if similar else {}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        storage.write_json(folder / "card.json", card)


def report(figures: dict, texts: list[str], inputs: Inputs) -> None:
    """Print the main figures and a text."""
    if "bleu" in figures:
        baseline = figures.get("word_by_word", {}).get("bleu")
        shown = ""
        if baseline is not None:
            shown = f" ± {figures['bleu_interval']:.1f} (word by word {baseline:.1f}, p = {figures['bleu_p']:.3f})"
        print(f"BLEU {figures['bleu']:.1f}{shown}, chrF {figures['chrf']:.1f}", flush=True)
    if "solved" in figures:
        print(f"solved: {figures['solved']:.1%}", flush=True)
    for count, share in figures.get("solved_by_any", {}).items():
        print(f"by any of {count}: {share:.1%}", flush=True)
    if "written" in figures:
        new = {kind: figures[kind].get("novel_4") for kind in ("written", "by_people")}
        shown = {kind: "–" if share is None else f"{share:.1%}" for kind, share in new.items()}
        print(f"new 4-grams: {shown['written']}, in the texts by people {shown['by_people']}", flush=True)
    print(f"{figures['tokens_per_second']:,.0f} tokens/s; {inputs.texts[0]!r} -> {texts[0]!r}", flush=True)


if __name__ == "__main__":
    stage.main("generate", generate)
