"""Stage `align`: `python -m components.align NAME` writes data/align/NAME.

scores.csv (mapping, retrieval, p1, p5, p10, coverage, queries, chance_p1), mapping.npz (one (d, d) matrix per mapping,
from the normalised source space to the normalised target space), examples.csv (some test words and what was found),
and for two spaces of one language moved.csv (how far each word moved).
"""

from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from components import stage
from components.align import dictionary, evaluate, vectors
from components.align.mappings import MAPPINGS, normalise, procrustes, unit
from components.align.retrieval import RETRIEVALS, top
from components.errors import SesameError
from components.params import Params

EXAMPLES = 20


@threadpool_limits.wrap(limits=1)  # the same figures on any number of cores, and other stages run beside this one
def body(params: Params, name: str, run) -> dict:
    """Learn each mapping, look the held-out words up with each retrieval, score."""
    block = params.alignments[name]
    source, target = (vectors.load(Path("data/vectors", side), block.max_vocabulary) for side in (block.source, block.target))
    x, y = normalise(source.vectors), normalise(target.vectors)
    if x.shape[1] != y.shape[1]:
        raise SesameError(f"vectors.{block.source} have {x.shape[1]} dimensions and vectors.{block.target} {y.shape[1]}; give both the same vector_size")
    pairs = dictionary.build(block.dictionary, source.words, target.words, block.seed)
    of_source, of_target = evaluate.index(source), evaluate.index(target)
    train_x, train_y = x[[of_source[a] for a, _ in pairs.train]], y[[of_target[b] for _, b in pairs.train]]
    queries = evaluate.covered(pairs.test, source, target)
    if not queries:
        raise SesameError("no test word has a translation in the target vocabulary; raise max_vocabulary or take more text")
    asked = [of_source[word] for word in queries]

    facts = {
        "coverage": len(queries) / len(pairs.test),
        "queries": len(queries),
        "chance_p1": evaluate.chance(queries, pairs.test, target.words),
    }
    metrics: dict = facts | {"train_pairs": len(pairs.train)}
    matrices, scores, examples = {}, [], []
    for mapping in block.mappings:
        matrices[mapping] = MAPPINGS[mapping](train_x, train_y)
        mapped = unit(x @ matrices[mapping])
        metrics[mapping] = {}
        for retrieval in block.retrievals:
            best = top(RETRIEVALS[retrieval](mapped[asked], y, mapped, block.csls_k), max(evaluate.RANKS))
            metrics[mapping][retrieval] = precision = evaluate.precision(best, queries, pairs.test, target.words)
            scores.append({"mapping": mapping, "retrieval": retrieval} | precision | facts)
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
        if block.dictionary.kind == "identical":
            rotated = x @ procrustes(train_x, train_y)  # lengths stay: only a rotation leaves distances comparable
            moved = evaluate.moved(source, target, rotated, y, block.dictionary.min_count)
            if not moved:
                raise SesameError(f"no word occurs {block.dictionary.min_count} times in both spaces; lower the dictionary's min_count")
            evaluate.write_csv(folder / "moved.csv", moved)
            distances = [row["distance"] for row in moved]
            metrics["moved"] = {"words": len(moved), "mean_distance": float(np.mean(distances)), "p95_distance": float(np.percentile(distances, 95))}
    print(f"{len(queries)} queries, coverage {facts['coverage']:.1%}, chance {facts['chance_p1']:.2%}, {len(pairs.train)} train pairs", flush=True)
    return metrics


if __name__ == "__main__":
    stage.main("align", body, "alignments")
