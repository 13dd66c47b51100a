"""Stage `align`: `python -m components.align NAME` writes data/align/NAME.

scores.csv (mapping, retrieval, p1, p5, p10, intervals, coverage, queries, chance_p1), mapping.npz (one (d, d) matrix per mapping,
from the normalised source space to the normalised target space), examples.csv (some test words and what was found),
and for two spaces of one language moved.csv (how far each word moved).
"""

from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from components import stage
from components.align import dictionaries, evaluate, vectors
from components.align.mappings import MAPPINGS, normalise, procrustes, unit
from components.align.retrieval import RETRIEVALS, top
from components.errors import SesameError
from components.params import Params

EXAMPLES = 20
"""Test words of which each mapping and retrieval shows what it found."""


@threadpool_limits.wrap(limits=1)  # the same figures on any number of cores, and other stages run beside this one
def body(params: Params, name: str, run) -> dict:
    """Learn each mapping, look the held-out words up with each retrieval, score.

    Raises SesameError where the two spaces don't fit each other, or there are too few words to learn from or to ask for.
    """
    alignment = params.alignments[name]
    source, target = (vectors.load(Path("data/vectors", side), alignment.max_vocabulary) for side in (alignment.source, alignment.target))
    x, y = normalise(source.vectors), normalise(target.vectors)
    if x.shape[1] != y.shape[1]:
        raise SesameError(
            f"vectors.{alignment.source} have {x.shape[1]} dimensions and vectors.{alignment.target} {y.shape[1]}; "
            "give both the same vector_size"
        )

    pairs = dictionaries.build(alignment.dictionary, source.words, target.words, alignment.seed)
    source_rows, target_rows = evaluate.index(source), evaluate.index(target)
    train_x, train_y = x[[source_rows[a] for a, _ in pairs.train]], y[[target_rows[b] for _, b in pairs.train]]
    queries = evaluate.covered(pairs.test, source, target)
    if not queries:
        raise SesameError("no test word has a translation in the target vocabulary; raise max_vocabulary or take more text")
    asked = [source_rows[word] for word in queries]

    # What is the same for all mappings: precision means little without how many were asked, and what a guess would get.
    facts = {
        "coverage": len(queries) / len(pairs.test),
        "queries": len(queries),
        "chance_p1": evaluate.chance(queries, pairs.test, target.words),
    }
    metrics: dict = facts | {"train_pairs": len(pairs.train)}
    taught = {translation for _, translation in pairs.train}
    unseen, reference = np.array([not pairs.test[word] & taught for word in queries]), None
    matrices, scores, examples = {}, [], []
    for mapping in alignment.mappings:
        matrices[mapping] = MAPPINGS[mapping](train_x, train_y)
        mapped = unit(x @ matrices[mapping])  # the whole vocabulary: CSLS looks at the neighbourhoods of all words
        metrics[mapping] = {}
        for retrieval in alignment.retrievals:
            best = top(RETRIEVALS[retrieval](mapped[asked], y, mapped, alignment.csls_k), max(evaluate.RANKS))
            hits = evaluate.hits(best, queries, pairs.test, target.words)
            reference = hits[:, 0] if reference is None else reference  # that of the first mapping and retrieval
            precision = evaluate.precision(hits)
            metrics[mapping][retrieval] = precision | evaluate.intervals(hits[:, 0], reference, unseen)
            scores.append({"mapping": mapping, "retrieval": retrieval} | metrics[mapping][retrieval] | facts)
            print(f"{mapping}, {retrieval}: " + ", ".join(f"{k} {v:.1%}" for k, v in precision.items()), flush=True)
            examples += [
                {
                    "mapping": mapping, "retrieval": retrieval, "word": word, "gold": " ".join(sorted(pairs.test[word])),
                    "found": " ".join(target.words[row] for row in rows[:5]),
                }
                for word, rows in zip(queries[:EXAMPLES], best, strict=False)
            ]  # fmt: skip

    with stage.output(Path("data/align", name)) as folder:
        folder.mkdir()
        evaluate.write_csv(folder / "scores.csv", scores)
        evaluate.write_csv(folder / "examples.csv", examples)
        np.savez(folder / "mapping.npz", **matrices)
        if alignment.dictionary.kind == "identical":
            rotated = x @ procrustes(train_x, train_y)  # lengths stay: only a rotation leaves distances comparable
            moved = evaluate.moved(source, target, rotated, y, alignment.dictionary.min_count)
            if not moved:
                least = alignment.dictionary.min_count
                raise SesameError(f"no word occurs {least} times in both spaces; lower the dictionary's min_count")
            evaluate.write_csv(folder / "moved.csv", moved)
            metrics["moved"] = _distances(moved)
    shares = f"coverage {facts['coverage']:.1%}, chance {facts['chance_p1']:.2%}"
    print(f"{len(queries)} queries, {shares}, {len(pairs.train)} train pairs", flush=True)
    return metrics


def _distances(moved: list[dict]) -> dict:
    distances = [row["distance"] for row in moved]
    return {
        "words": len(moved),
        "mean_distance": float(np.mean(distances)),
        "p95_distance": float(np.percentile(distances, 95)),
    }


if __name__ == "__main__":
    stage.main("align", body, "alignments")
