"""Stage `history`: `python -m components.embeddings.history NAME` aligns the spaces of several periods: data/align/NAME.

trajectories.csv (one row per word and period: its distance from the first period, and its nearest words), changed.csv (every frequent
word: its distance between the first and the last period, also compared with words of similar frequency), places.csv (chosen words and
their neighbours in two dimensions), and if `known` is set, known.csv (whether words moved towards and away from others as is known).
"""

from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, mannwhitneyu, rankdata, spearmanr
from threadpoolctl import threadpool_limits

from components import params
from components.core import compute, storage
from components.core.errors import SesameError
from components.embeddings import evaluate, view
from components.embeddings.maps import normalise, procrustes
from components.embeddings.space import Space, load
from components.stages import stage


def trace(all_params: params.Params, name: str, run) -> dict:
    """Rotate, measure and write. Raises SesameError where the spaces have different sizes, or too few words in common."""
    history = all_params.histories[name]
    compute.prepare(1)
    with threadpool_limits(limits=1):
        return _trace(history, {period: load(Path("data/vectors", period)) for period in history.periods}, Path("data/align", name))


def _trace(history: params.History, spaces: dict[str, Space], path: Path) -> dict:
    shared = shared_words(history, spaces)
    aligned = align_periods(history, spaces)
    index = {period: evaluate.index(space) for period, space in spaces.items()}
    # (periods, shared words, d)
    vectors = np.stack([aligned[period][[index[period][word] for word in shared]] for period in history.periods])
    distance = 1 - np.einsum("nd,nd->n", vectors[0], vectors[-1])
    rarest = np.array([min(int(spaces[period].counts[index[period][word]]) for period in history.periods) for word in shared])
    beyond = evaluate.beyond_frequency(distance, rarest)

    chosen = list(dict.fromkeys([*history.words, *history.known]))
    if absent := [word for word in chosen if word not in shared]:
        print(f"{', '.join(absent)}: left out, since not {history.min_count} times in every period", flush=True)
    chosen = [word for word in chosen if word in shared]
    metrics: dict = {"words": len(shared), "mean_distance": float(distance.mean()), "absent": absent}
    followed = [row for word in chosen for row in trajectory(word, history.periods, spaces, aligned, index)]
    order = np.argsort(-beyond, kind="stable")
    changed = [
        {"word": shared[i], "distance": float(distance[i]), "beyond_frequency": float(beyond[i]), "count": int(rarest[i])} for i in order
    ]
    with storage.output(path) as folder:
        folder.mkdir()
        evaluate.write_csv(folder / "trajectories.csv", followed)
        evaluate.write_csv(folder / "changed.csv", changed)
        if history.words:
            drawn = [word for word in history.words if word in shared]
            evaluate.write_csv(folder / "places.csv", view.trajectories(drawn, history.periods, spaces, aligned, index))
        if history.known:
            rows = [row for word in history.known if word in shared for row in shifts(word, history, aligned, index)]
            evaluate.write_csv(folder / "known.csv", rows)
            metrics["known"] = known_shifts(rows, beyond, shared, history)
    return metrics


def shared_words(history: params.History, spaces: dict[str, Space]) -> list[str]:
    """Words with `min_count` occurrences in every period, in the order of the last. Raises SesameError where there are none."""
    if without := [period for period, space in spaces.items() if not space.counts.any()]:
        raise SesameError(f"vectors {without[0]} are imported, without the counts of their words: they cannot be a period")
    if len({space.vectors.shape[1] for space in spaces.values()}) > 1:
        raise SesameError("periods of different vector_size cannot be aligned; give all the same")
    frequent = [
        {word for word, count in zip(space.words, space.counts, strict=True) if count >= history.min_count} for space in spaces.values()
    ]
    shared = [word for word in spaces[history.periods[-1]].words if all(word in words for words in frequent)]
    if len(shared) < 2:
        fewest = min(spaces, key=lambda period: int(spaces[period].counts.sum()))
        raise SesameError(
            f"no two words occur {history.min_count} times in every period: lower min_count, or take more text "
            f"(the smallest is {fewest}: {int(spaces[fewest].counts.sum())} words)"
        )
    return shared


def align_periods(history: params.History, spaces: dict[str, Space]) -> dict[str, np.ndarray]:
    """Unit vectors of each period (words, d), float32, in the space of the last: rotated period by period, or directly.

    Period by period each rotation is between similar spaces, but its errors accumulate (Hamilton et al. 2016, section 2.2).
    """
    units = {period: normalise(space.vectors.astype(np.float64)) for period, space in spaces.items()}
    last = history.periods[-1]
    rotated = {last: units[last]}
    for earlier, later in zip(reversed(history.periods[:-1]), reversed(history.periods[1:]), strict=True):
        onto = later if history.onto == "next" else last
        rows = evaluate.index(spaces[onto])
        anchors = [(row, rows[word]) for row, word in enumerate(spaces[earlier].words) if word in rows][: history.anchors]
        here, there = np.array(anchors).T
        rotated[earlier] = units[earlier] @ procrustes(units[earlier][here], rotated[onto][there])
    return {period: rotated[period].astype(np.float32) for period in history.periods}


def trajectory(
    word: str, periods: list[str], spaces: dict[str, Space], aligned: dict[str, np.ndarray], index: dict[str, dict[str, int]]
) -> list[dict]:  # fmt: skip
    """One row per period: the word's count, its distance from the first period, and its nearest words."""
    start = aligned[periods[0]][index[periods[0]][word]]
    rows = []
    for period in periods:
        vector = aligned[period][index[period][word]]
        [near] = evaluate.nearest_words(aligned[period], spaces[period].words, [index[period][word]])
        count = int(spaces[period].counts[index[period][word]])
        rows.append({"word": word, "period": period, "count": count, "distance": float(1 - start @ vector), "neighbours": near})
    return rows


def shifts(word: str, history: params.History, aligned: dict[str, np.ndarray], index: dict[str, dict[str, int]]) -> list[dict]:
    """For each word that this one is known to move towards or away from: their cosine in each period, its trend, and whether that is as
    known; None where there is no trend.

    Cosines within a period need no alignment. `with_time` is Spearman's correlation with the order of the periods (Hamilton et al.
    2016, section 3.2); a word that is not in every period has no row.
    """
    rows = []
    for direction, others in (("towards", history.known[word].towards), ("away", history.known[word].away)):
        for other in others:
            if not all(other in index[period] for period in history.periods):
                print(f"{word}: {other} is left out, since it is not in every period", flush=True)
                continue
            cosines = [float(aligned[p][index[p][word]] @ aligned[p][index[p][other]]) for p in history.periods]
            with_time = float(spearmanr(range(len(cosines)), cosines).statistic) if np.ptp(cosines) else 0.0
            right = (with_time > 0) == (direction == "towards") if abs(with_time) > 1e-9 else None
            about = {"word": word, "direction": direction, "other": other}
            rows.append(about | dict(zip(history.periods, cosines, strict=True)) | {"with_time": with_time, "as_known": right})
    return rows


def known_shifts(rows: list[dict], beyond: np.ndarray, shared: list[str], history: params.History) -> dict:
    """How many known shifts have the right direction, and the rank of their words among all by distance.

    The sign test counts words, each by most of its shifts: shifts of one word share its vectors, so they are no independent cases. It
    leaves ties out, as shifts without a trend are.
    """
    all_rows, rows = rows, [row for row in rows if row["as_known"] is not None]
    known = np.array([word in history.known for word in shared])
    right = sum(row["as_known"] for row in rows)
    figures: dict = {"pairs": len(rows), "as_known": right, "without_trend": len(all_rows) - len(rows), "words": int(known.sum())}
    votes = Counter()
    for row in rows:
        votes[row["word"]] += 1 if row["as_known"] else -1
    decided = [vote for vote in votes.values() if vote]
    if decided:
        figures["words_as_known"], figures["words_decided"] = sum(vote > 0 for vote in decided), len(decided)
        figures["sign_test_p"] = float(binomtest(figures["words_as_known"], len(decided), alternative="greater").pvalue)
    if known.any() and not known.all():
        figures["mean_rank"] = float(rankdata(beyond)[known].mean() / len(shared))
        figures["rank_test_p"] = float(mannwhitneyu(beyond[known], beyond[~known], alternative="greater").pvalue)
    return figures


if __name__ == "__main__":
    stage.main("history", trace)
