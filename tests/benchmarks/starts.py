"""Each start of each model at its own best: `python -m tests.benchmarks.starts` tries a grid on dev and writes docs/starts.csv.

Every start gets the same rates; a grid whose best stands at its edge is not done, and another rate beyond the edge is tried. Random weights
also get scales of their token vectors, the others at the best rate of the first. That is more effort than the pre-trained weights have, so
that what these are ahead by is not owed to it. A score is of one seed, dev as `finetune` says; the mean over the tasks decides. It takes
half an hour on two cores, after `sesame run pretrain task`; what the table has already is not tried again.
"""

import csv
import statistics
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from torch import nn

from components import params
from components.finetune import loop
from components.finetune.task_setup import TaskSetup
from components.models import store

TABLE = Path("docs/starts.csv")
FIELDS = ("model", "start", "embedding_scale", "learning_rate", "task", "score")
RATES = [5e-4, 1e-3, 2e-3]
SCALES = [10.0, 1.0, 3.0, 30.0]
"""Of random weights: rates are tried at the first, the others at the best of them."""
SEED = 1


def score(model: str, start: str, scale: float, rate: float, task: str) -> float:
    """On dev, by the task's headline."""
    all_params = params.load()
    recipe = all_params.finetune.recipes[model]
    starts = {start: {"learning_rate": rate, "embedding_scale": scale}} if start != "pretrained" else {}
    recipe = params.Recipe.model_validate(recipe.model_dump() | {"learning_rate": rate, "starts": starts})
    setup = TaskSetup.load(all_params, task).for_seed(SEED)
    prepared = setup.prepare(Path("data/models", model), recipe, SEED, start)
    rows = {split: setup.examples[split] for split in ("train", "dev")}
    inputs = {split: prepared.module.inputs(texts, setup.fabric) for split, texts in prepared.encode(rows).items()}
    fitted = loop.fit(
        setup.fabric, prepared.module, prepared.kind, inputs["train"], recipe, SEED, lambda *_: None, setup.dev_score(), inputs["dev"]
    )  # fmt: skip
    return setup.dev_score()(fitted.predict(inputs["dev"]).values) or 0.0


def scalable(model: str) -> bool:
    """Whether a model's token vectors are a table; ELMo makes them of characters."""
    its, _ = store.load(Path("data/models", model))
    return isinstance(getattr(its, its.embedding), nn.Embedding)


class Grid:
    """What was tried of one start of one model: (scale, rate) -> the mean over the tasks."""

    def __init__(self, pool: ProcessPoolExecutor, model: str, start: str, tasks: list[str], known: dict, write):
        self.pool, self.model, self.start, self.tasks, self.known, self.write, self.tried = pool, model, start, tasks, known, write, {}

    def run(self) -> None:
        scaled = self.start == "random" and scalable(self.model)
        self.rates(SCALES[0] if scaled else 1.0)
        if scaled:
            rate = self.best[1]
            self.all((scale, rate) for scale in SCALES)
            self.rates(self.best[0])
        scale, rate = self.best
        print(f"{self.model} {self.start}: best {self.tried[self.best]:.3f} at scale {scale:g}, rate {rate:g}", flush=True)

    @property
    def best(self) -> tuple[float, float]:
        return max(self.tried, key=self.tried.get)

    def rates(self, scale: float) -> None:
        """Rates at a scale, until the best of them has a neighbour on either side."""
        self.all((scale, rate) for rate in RATES)
        while True:
            own = sorted(rate for known, rate in self.tried if known == scale)
            best = max(own, key=lambda rate: self.tried[scale, rate])
            if best not in (own[0], own[-1]):
                return
            self.all([(scale, best / 2 if best == own[0] else best * 2)])

    def all(self, points: Iterable[tuple[float, float]]) -> None:
        points = [point for point in points if point not in self.tried]
        keys = [(self.model, self.start, f"{scale:g}", f"{rate:g}", task) for scale, rate in points for task in self.tasks]
        new = [key for key in keys if key not in self.known]
        asked = [(float(scale), float(rate), task) for *_, scale, rate, task in new]
        scores = self.pool.map(partial(score, self.model, self.start), *zip(*asked, strict=True)) if asked else ()
        for key, value in zip(new, scores, strict=True):
            self.known[key] = value
            self.write(dict(zip(FIELDS, (*key, f"{value:.4f}"), strict=True)))
        for i, point in enumerate(points):
            own = keys[i * len(self.tasks) : (i + 1) * len(self.tasks)]
            self.tried[point] = statistics.fmean(self.known[key] for key in own)


def main() -> None:
    finetune, known = params.load().finetune, {}
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            known = {tuple(row[key] for key in FIELDS[:-1]): float(row["score"]) for row in csv.DictReader(file)}
    with TABLE.open("a", newline="") as file, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not known:
            table.writeheader()

        def write(row: dict) -> None:
            table.writerow(row)
            file.flush()

        for model in finetune.models:
            for start in finetune.inits:
                Grid(pool, model, start, finetune.tasks, known, write).run()


if __name__ == "__main__":
    main()
