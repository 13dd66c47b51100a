"""Stage `align`: `python -m components.embeddings.align NAME` writes data/align/NAME.

scores.csv (method, retrieval, p1, p5, p10, intervals and more), examples.csv (test words and the words found for them), hubs.csv (how often
targets are found), curve.csv (P@1 against seed pairs, if requested), view.csv (both spaces in two dimensions, before
and after), mapping.npz (two (d, k) matrices per method, from the normalised spaces to the common one: `<method>_source`,
`<method>_target`), and for two spaces of one language moved.csv (how far each word moved).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from components import params
from components.core import compute, storage
from components.core.errors import SesameError
from components.embeddings import dictionaries, evaluate, self_learning, view
from components.embeddings.dictionaries import Dictionary
from components.embeddings.maps import Fitted, fit, normalise, procrustes
from components.embeddings.neighbours import nearest
from components.embeddings.retrieval import RETRIEVALS
from components.embeddings.space import Space, load
from components.stages import stage

EXAMPLES = 20
"""Test words in examples.csv for each method and retrieval."""


@dataclass(frozen=True)
class Pair:
    """Two spaces with a dictionary."""

    source: Space
    target: Space
    pairs: Dictionary

    def rows(self, words: list[tuple[str, str]]) -> np.ndarray:
        """Rows of pairs of words that both vocabularies have, (pairs, 2)."""
        here, there = evaluate.index(self.source), evaluate.index(self.target)
        return np.array([(here[a], there[b]) for a, b in words], dtype=np.int64).reshape(-1, 2)


def align(all_params: params.Params, name: str, run) -> dict:
    """Learn each mapping, translate the held-out words with each retrieval, and score the translations.

    Raises SesameError where the two spaces have different sizes, or there are too few words to learn from or to test.
    """
    alignment = all_params.alignments[name]
    compute.prepare(alignment.threads)
    with threadpool_limits(limits=alignment.threads):  # one, so that results do not depend on the cores, which other stages use, too
        return _align(alignment, Path("data/align", name))


def _read(alignment: params.Alignment) -> tuple[Pair, list[str]]:
    """The two spaces with their dictionary, and the test words that can be asked. Raise SesameError where they do not fit."""
    source, target = (load(Path("data/vectors", side), alignment.max_vocabulary) for side in (alignment.source, alignment.target))
    if source.vectors.shape[1] != target.vectors.shape[1]:
        raise SesameError(
            f"vectors.{alignment.source} have {source.vectors.shape[1]} dimensions and vectors.{alignment.target} "
            f"{target.vectors.shape[1]}; give both the same vector_size"
        )
    if alignment.controls and not (source.counts.any() and target.counts.any()):
        raise SesameError("imported vectors have no counts of their words, which are needed to find the words that moved")
    build = dictionaries.load(alignment.dictionary.kind)
    pair = Pair(source, target, build(alignment.dictionary, source.words, target.words, alignment.seed))
    queries = evaluate.covered(pair.pairs.test, source, target)
    if not queries:
        raise SesameError("no test word has a translation in the target vocabulary; raise max_vocabulary or take more text")
    return pair, queries


def _align(alignment: params.Alignment, path: Path) -> dict:
    pair, queries = _read(alignment)
    source, target = pair.source, pair.target
    # the same for all methods; precision depends on the number of queries and on chance
    x, z = normalise(source.vectors), normalise(target.vectors)
    facts = {
        "coverage": len(queries) / len(pair.pairs.test),
        "queries": len(queries),
        "chance_p1": evaluate.chance(queries, pair.pairs.test, target.words),
    }
    metrics: dict = facts | {
        "train_pairs": len(pair.pairs.train), "left_out": pair.pairs.left_out, "unlikeness": evaluate.unlikeness(x, z), "methods": {},
    }  # fmt: skip
    shares = f"coverage {facts['coverage']:.1%}, chance {facts['chance_p1']:.2%}"
    print(f"{len(queries)} queries, {shares}, {len(pair.pairs.train)} train pairs", flush=True)
    scores, examples, hubs, matrices, references, best_p1, shown = [], [], [], {}, {}, -1.0, None
    for method in alignment.methods:
        aligned = learn_alignment(pair, method)
        metrics["methods"][method.name] = dict(aligned.how)
        matrices |= {f"{method.name}_source": aligned.fitted.source, f"{method.name}_target": aligned.fitted.target}
        unseen = np.array([not pair.pairs.test[word] & aligned.taught for word in queries])
        for retrieval, best, mutual, figures in translate(
            pair, aligned, alignment.retrievals, queries, alignment.csls_k
        ):  # fmt: skip
            hits = evaluate.hits(best, queries, pair.pairs.test, target.words)
            figures |= {"mutual": float(mutual.mean()), "p1_mutual": float(hits[mutual, 0].mean()) if mutual.any() else None}
            first = hits[:, 0]
            reference = references.setdefault(retrieval, first)  # that of the first method with the same retrieval
            figures = evaluate.precision(hits) | evaluate.intervals(first, reference, unseen) | figures
            metrics["methods"][method.name][retrieval] = figures
            scores.append({"method": method.name, "retrieval": retrieval} | figures | facts | aligned.how)
            print(f"{method.name}, {retrieval}: " + ", ".join(f"{k} {figures[k]:.1%}" for k in ("p1", "p5", "p10")), flush=True)
            hubs += [{"method": method.name, "retrieval": retrieval} | row for row in evaluate.found_often(best)]
            examples += [
                {
                    "method": method.name, "retrieval": retrieval, "word": word, "gold": " ".join(sorted(pair.pairs.test[word])),
                    "found": " ".join(target.words[row] for row in rows[:5]),
                }
                for word, rows in zip(queries[:EXAMPLES], best, strict=False)
            ]  # fmt: skip
            if figures["p1"] > best_p1:
                best_p1, shown = figures["p1"], aligned

    with storage.output(path) as folder:
        folder.mkdir()
        evaluate.write_csv(folder / "scores.csv", scores)
        evaluate.write_csv(folder / "examples.csv", examples)
        evaluate.write_csv(folder / "hubs.csv", hubs)
        points = view.rows((x, z), (shown.mapped.numpy(), shown.fixed.numpy()), source.words, target.words, pair.pairs.test, queries)
        evaluate.write_csv(folder / "view.csv", points)
        np.savez(folder / "mapping.npz", **matrices)
        if alignment.curve:
            evaluate.write_csv(folder / "curve.csv", _curve(pair, alignment, queries))
        if alignment.dictionary.kind == "identical" and source.counts.any():
            moved = _moved(pair, x, z, alignment.dictionary.min_count)
            evaluate.write_csv(folder / "moved.csv", moved)
            metrics["moved"] = _distances(moved)
    return metrics


def _moved(pair: Pair, x: np.ndarray, z: np.ndarray, min_count: int) -> list[dict]:
    """How far each word of both spaces has moved, by their normalised vectors. Raise SesameError where no word is frequent enough."""
    # test words, too: one that the rotation is not fitted to stands further from itself, whether its meaning has changed or not
    test = evaluate.covered(pair.pairs.test, pair.source, pair.target)
    learning = pair.rows([*pair.pairs.train, *zip(test, test, strict=True)])
    rotated = x @ procrustes(x[learning[:, 0]], z[learning[:, 1]])  # only a rotation keeps distances comparable
    if moved := evaluate.moved(pair.source, pair.target, rotated, z, min_count):
        return moved
    raise SesameError(f"no word occurs {min_count} times in both spaces; lower the dictionary's min_count")


@dataclass(frozen=True)
class Aligned:
    """Two spaces in a common one."""

    fitted: Fitted
    mapped: Tensor
    """(n, k) the source's vectors in the common space, unit rows."""
    fixed: Tensor
    """(m, k) the target's."""
    how: dict
    """The numbers of seed pairs, final pairs and rounds, and their mean cosine."""
    taught: set[str]
    """Targets of the seed pairs: the map pulls their sources towards them, so that they are found more easily."""


def learn_alignment(pair: Pair, method: params.Method) -> Aligned:
    """Align two spaces. Raises SesameError where there are no seed pairs; prints a warning where there are too few."""
    x, z = (normalise(side.vectors, method.normalise) for side in (pair.source, pair.target))
    rows = pair.rows(seeds(pair, method)) if method.start != "similarity" else self_learning.by_similarity(x, z, method.csls_k)
    is_query = np.array([word in pair.pairs.test for word in pair.source.words])
    rows = rows[~is_query[rows[:, 0]]]  # queries are never trained on, however the pairs were found
    taught = {pair.target.words[row] for row in rows[:, 1]}
    if method.self_learning:
        rows = rows[(rows < method.self_learning.vocabulary).all(axis=1)]
    if not len(rows):
        among = f" among the {method.self_learning.vocabulary} most frequent words" if method.self_learning else ""
        raise SesameError(f"method {method.name}: the two vocabularies have no seed pairs{among} (start: {method.start})")
    how: dict = {"seed_pairs": len(rows), "pairs": len(rows), "rounds": None, "objective": None}
    if method.self_learning:
        learned = self_learning.learn(x, z, rows, method)
        rows, how = learned.rows, how | {"pairs": len(learned.rows), "rounds": learned.rounds, "objective": learned.objective}
    if (method.map == "least_squares" or method.whiten) and len(rows) < x.shape[1]:
        step = "whitening" if method.whiten else "least squares"
        print(
            f"{method.name}: {len(rows)} pairs are fewer than the {x.shape[1]} dimensions, and {step} overfits them; "
            "use only a rotation (xing_2015), or self_learning",
            flush=True,
        )
    fitted = fit(x, z, rows, method)
    return Aligned(fitted, *map(torch.from_numpy, fitted.apply(x, z)), how, taught)


STARTS = {
    "dictionary": lambda pair: pair.pairs.train,
    "identical": lambda pair: dictionaries.spelled_alike(pair.source.words, pair.target.words),
    "numerals": lambda pair: dictionaries.numerals(pair.source.words, pair.target.words),
    "similarity": lambda pair: [],
}
"""Seed pairs of words, most frequent first."""


def seeds(pair: Pair, method: params.Method) -> list[tuple[str, str]]:
    """The seed pairs of a method, without queries."""
    return [words for words in STARTS[method.start](pair) if words[0] not in pair.pairs.test][: method.seed_pairs]


def translate(
    pair: Pair, aligned: Aligned, retrievals: list[str], queries: list[str], csls_k: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray, dict]]:  # fmt: skip
    """For each retrieval its name, the rows of the targets found (queries, 10), best first, for which queries the best one finds the
    query in the other direction (queries,), and figures."""
    here, there = evaluate.index(pair.source), evaluate.index(pair.target)
    rows = torch.tensor([here[word] for word in queries])
    golds = [[there[word] for word in pair.pairs.test[query] if word in there] for query in queries]
    for retrieval in retrievals:
        best, price = find(aligned, rows, retrieval, csls_k)
        mrr = evaluate.mean_reciprocal_rank(aligned.mapped[rows], aligned.fixed, price, golds)
        price_back = RETRIEVALS[retrieval](aligned.mapped, aligned.fixed, csls_k)
        back = nearest(aligned.fixed[best[:, 0]], aligned.mapped, 1, price_back)[1][:, 0]
        yield retrieval, best, (back == rows).numpy(), {"mrr": mrr} | evaluate.hubness(best, len(aligned.fixed))


def find(aligned: Aligned, rows: Tensor, retrieval: str, csls_k: int) -> tuple[np.ndarray, Tensor | None]:
    """The rows of the targets found for `rows` of the source (queries, 10), best first, and the price of each target (m,)."""
    # the price depends on the neighbourhoods of all words, not only of the queries
    price = RETRIEVALS[retrieval](aligned.fixed, aligned.mapped, csls_k)
    return nearest(aligned.mapped[rows], aligned.fixed, max(evaluate.RANKS), price)[1].numpy(), price


def _curve(pair: Pair, alignment: params.Alignment, queries: list[str]) -> Iterator[dict]:
    """P@1 of each method from growing numbers of seed pairs, with the last retrieval. Raises SesameError where there are too few pairs."""
    if min(alignment.curve.seed_pairs) > len(pair.pairs.train):
        raise SesameError(f"curve.seed_pairs: there are {len(pair.pairs.train)} train pairs, fewer than the smallest size")
    here, retrieval = evaluate.index(pair.source), alignment.retrievals[-1]
    rows = torch.tensor([here[word] for word in queries])
    for method in alignment.curve.methods:
        for size in sorted(alignment.curve.seed_pairs):
            sized = method.model_copy(update={"seed_pairs": size})
            if len(seeds(pair, sized)) < size:
                break
            best, _ = find(learn_alignment(pair, sized), rows, retrieval, alignment.csls_k)
            first = evaluate.hits(best, queries, pair.pairs.test, pair.target.words)[:, 0]
            figures = evaluate.intervals(first, first, np.ones(len(first), bool))
            row = {"method": method.name, "retrieval": retrieval, "seed_pairs": size, "p1": float(first.mean())}
            yield row | {key: figures[key] for key in ("p1_low", "p1_high")}
            print(f"{method.name} from {size} pairs, {retrieval}: p1 {first.mean():.1%}", flush=True)


def _distances(moved: list[dict]) -> dict:
    distances = [row["distance"] for row in moved]
    return {
        "words": len(moved),
        "mean_distance": float(np.mean(distances)),
        "p95_distance": float(np.percentile(distances, 95)),
    }


if __name__ == "__main__":
    stage.main("align", align)
