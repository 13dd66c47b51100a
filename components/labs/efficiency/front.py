"""Pareto fronts of scores and costs."""

from collections.abc import Sequence

import pandas as pd

COSTS = {
    "ms": "ms an answer, one at a time", "ms_together": "ms an answer, 32 together", "mflops": "MFLOPs an answer", "mib": "MiB of weights",
}  # fmt: skip
"""Column -> title."""
SHORT = {"ms": "one", "ms_together": "32", "mflops": "FLOPs", "mib": "MiB"}
"""Titles in a table's cells."""


def front(costs: Sequence[float], scores: Sequence[float]) -> list[bool]:
    """Which points are on the Pareto front: no other one is at least as good in cost and score, and better in one. NaN is not on it."""
    points = list(zip(costs, scores, strict=True))
    return [
        score == score and not any(c <= cost and s >= score and (c < cost or s > score) for c, s in points)
        for cost, score in points
    ]  # fmt: skip


def sentence(task: str, frame: pd.DataFrame, base: str) -> str:
    """Two sentences on a task's results."""
    best = frame[frame["on_front_ms"]].sort_values("ms")
    base_row = frame.set_index("point").loc[base]
    level = frame["verdict"].isin(("not beyond noise", "higher"))
    equal = frame[level & (frame["ms"] < base_row["ms"])].sort_values("ms")
    on_front = ", ".join(f"{row.point} ({row.score:.3f} in {row.ms:.2f} ms)" for row in best.itertuples())
    text = f"{task}: of {len(frame)} points {len(best)} are on the front of score and time: {on_front}. "
    if not len(equal):
        return text + f"Of nothing that is faster than {base} it can be said that it is not beyond noise below it."
    row = equal.iloc[0]
    return text + (
        f"The fastest that is not beyond noise below {base} is {row['point']}, in {row['ms_ratio']:.2f} of its time: {row['difference']}. "
        f"(Told on the judged split, among many; that nothing is shown is not that nothing is lost.)"
    )
