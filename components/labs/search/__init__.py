"""Search for fine-tuning recipes, and a model's score as a function of the search budget: `python -m
components.labs.search MODEL-TASK-INIT`.

`draws` samples and prunes trials, with optuna; `trial` runs one; `journal` stores the finished ones, so that a killed search
resumes. `python -m components.labs.search.budget` compares the results: `curve` is the
expected validation performance (Dodge et al. 2019) with its bands (`opda`), `page` has the plots and sentences.
To add a sampler or pruner, add a line to `SAMPLERS` or `PRUNERS` of `draws`, and its name to `components.params.search`.
"""

from pathlib import Path

FOLDER = Path("data/search/trials")


def metrics_file(name: str) -> Path:
    """The metrics of the search MODEL-TASK-INIT, next to its trials: data/metrics belongs to the root pipeline."""
    return FOLDER.joinpath(*name.split("-")).with_suffix(".json")
