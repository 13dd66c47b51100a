"""Stage `history`: `python -m components.embeddings.history NAME` brings the spaces of several periods into one: data/align/NAME.

trajectories.csv (a word and a period: how far it is from where it began, its nearest words then), changed.csv (every frequent word: how
far it moved from the first period to the last, beyond words as frequent), places.csv (chosen words and their neighbours in two
dimensions), and where something is known of words, known.csv (whether they moved towards and away from what they should).
"""

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


def body(all_params: params.Params, name: str, run) -> dict:
    """Rotate, measure, write. Raises SesameError where the periods' spaces don't fit each other, or have too few words in common."""
    history = all_params.histories[name]
    compute.prepare(1)
    with threadpool_limits(limits=1):
        return _told(history, {period: load(Path("data/vectors", period)) for period in history.periods}, Path("data/align", name))


def _told(history: params.History, spaces: dict[str, Space], path: Path) -> dict:
    shared = shared_words(history, spaces)
    placed = brought(history, spaces)
    index = {period: evaluate.index(space) for period, space in spaces.items()}
    # (periods, shared words, d): every word where it stands in each period
    of_all = np.stack([placed[period][[index[period][word] for word in shared]] for period in history.periods])
    distance = 1 - np.einsum("nd,nd->n", of_all[0], of_all[-1])
    rarest = np.array([min(int(spaces[period].counts[index[period][word]]) for period in history.periods) for word in shared])
    beyond = evaluate.beyond_frequency(distance, rarest)

    chosen = list(dict.fromkeys([*history.words, *history.known]))
    if absent := [word for word in chosen if word not in shared]:
        print(f"{', '.join(absent)}: not {history.min_count} times in every period, and so not followed", flush=True)
    chosen = [word for word in chosen if word in shared]
    metrics: dict = {"words": len(shared), "mean_distance": float(distance.mean()), "absent": absent}
    followed = [row for word in chosen for row in trajectory(word, history.periods, spaces, placed, index)]
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
            evaluate.write_csv(folder / "places.csv", view.trajectories(drawn, history.periods, spaces, placed, index))
        if history.known:
            rows = [row for word in history.known if word in shared for row in shifts(word, history, placed, index)]
            evaluate.write_csv(folder / "known.csv", rows)
            metrics["known"] = detected(rows, beyond, shared, history)
    return metrics


def shared_words(history: params.History, spaces: dict[str, Space]) -> list[str]:
    """Words with `min_count` occurrences in every period, the most frequent of the last first. Raises SesameError where there are none."""
    if without := [period for period, space in spaces.items() if not space.counts.any()]:
        raise SesameError(f"vectors {without[0]} come from elsewhere, without the counts of their words: they can't be a period")
    if len({space.vectors.shape[1] for space in spaces.values()}) > 1:
        raise SesameError("periods of different vector_size can't be brought into one space; give all the same")
    frequent = [
        {word for word, count in zip(space.words, space.counts, strict=True) if count >= history.min_count} for space in spaces.values()
    ]
    shared = [word for word in spaces[history.periods[-1]].words if all(word in own for own in frequent)]
    if len(shared) < 2:
        fewest = min(spaces, key=lambda period: int(spaces[period].counts.sum()))
        raise SesameError(
            f"no two words occur {history.min_count} times in every period: lower min_count, or take more text "
            f"(least is in {fewest}: {int(spaces[fewest].counts.sum())} words)"
        )
    return shared


def brought(history: params.History, spaces: dict[str, Space]) -> dict[str, np.ndarray]:
    """Unit vectors of each period (words, d), float32, in the space of the last: rotated over the periods between, or at once.

    A rotation over short steps is of spaces that hardly differ; errors add up over many of them (Hamilton et al. 2016, section 2.2).
    """
    units = {period: normalise(space.vectors.astype(np.float64)) for period, space in spaces.items()}
    last = history.periods[-1]
    turned = {last: units[last]}
    for earlier, later in zip(reversed(history.periods[:-1]), reversed(history.periods[1:]), strict=True):
        onto = later if history.onto == "next" else last
        rows = evaluate.index(spaces[onto])
        anchors = [(row, rows[word]) for row, word in enumerate(spaces[earlier].words) if word in rows][: history.anchors]
        here, there = np.array(anchors).T
        turned[earlier] = units[earlier] @ procrustes(units[earlier][here], turned[onto][there])
    return {period: turned[period].astype(np.float32) for period in history.periods}


def trajectory(
    word: str, periods: list[str], spaces: dict[str, Space], placed: dict[str, np.ndarray], index: dict[str, dict[str, int]]
) -> list[dict]:  # fmt: skip
    """A row for each period: how often the word stands there, how far it is from where it began, the words nearest to it then."""
    start = placed[periods[0]][index[periods[0]][word]]
    rows = []
    for period in periods:
        own = placed[period][index[period][word]]
        [near] = evaluate.nearest_words(placed[period], spaces[period].words, [index[period][word]])
        count = int(spaces[period].counts[index[period][word]])
        rows.append({"word": word, "period": period, "count": count, "distance": float(1 - start @ own), "neighbours": near})
    return rows


def shifts(word: str, history: params.History, placed: dict[str, np.ndarray], index: dict[str, dict[str, int]]) -> list[dict]:
    """For each word that this one is known to move towards or away from: their cosine in each period, and how it goes with time.

    Cosines within a period need no alignment. `with_time` is Spearman's correlation with the order of the periods (Hamilton et al.
    2016, section 3.2); of a word that is not in every period there is no row.
    """
    rows = []
    for direction, others in (("towards", history.known[word].towards), ("away", history.known[word].away)):
        for other in others:
            if not all(other in index[period] for period in history.periods):
                print(f"{word}: {other} is not in every period, and so not held against it", flush=True)
                continue
            cosines = [float(placed[p][index[p][word]] @ placed[p][index[p][other]]) for p in history.periods]
            with_time = float(spearmanr(range(len(cosines)), cosines).statistic)
            right = with_time > 0 if direction == "towards" else with_time < 0
            own = {"word": word, "direction": direction, "other": other}
            rows.append(own | dict(zip(history.periods, cosines, strict=True)) | {"with_time": with_time, "as_known": right})
    return rows


def detected(rows: list[dict], beyond: np.ndarray, shared: list[str], history: params.History) -> dict:
    """Of known shifts how many go the right way (with a sign test's p), and how far up their words are among all that moved."""
    known = np.array([word in history.known for word in shared])
    right = sum(row["as_known"] for row in rows)
    figures: dict = {"pairs": len(rows), "as_known": right, "words": int(known.sum())}
    if rows:
        figures["sign_test_p"] = float(binomtest(right, len(rows), alternative="greater").pvalue)
    if known.any() and not known.all():
        figures["mean_rank"] = float(rankdata(beyond)[known].mean() / len(shared))
        figures["rank_test_p"] = float(mannwhitneyu(beyond[known], beyond[~known], alternative="greater").pvalue)
    return figures


if __name__ == "__main__":
    stage.main("history", body)
