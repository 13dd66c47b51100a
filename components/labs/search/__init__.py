"""Search for recipes of fine-tuning, and a model's score as a function of the search budget: `python -m
components.labs.search MODEL-TASK-INIT`.

`draws` draws trials and decides which are stopped, through optuna; `trial` is one of them; `journal` keeps those that are done,
so that a killed search goes on. `python -m components.labs.search.budget` compares the results: `curve` is the
expected validation performance (Dodge et al. 2019) with its bands (`opda`), `page` the pictures and sentences.
One more sampler or pruner: a line in `SAMPLERS` or `PRUNERS` of `draws`, its name in `components.params.search`.
"""

from pathlib import Path

FOLDER = Path("data/search/trials")


def metrics_file(name: str) -> Path:
    """Of the search MODEL-TASK-INIT, beside its trials: data/metrics is the root pipeline's."""
    return FOLDER.joinpath(*name.split("-")).with_suffix(".json")
