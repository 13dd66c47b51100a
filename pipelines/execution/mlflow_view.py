"""How MLflow's page of the experiment opens: on the runs of a flow, with the columns that they are compared by.

MLflow keeps a view (filter, order, columns) in a tag of the experiment, and an address can name it. Each flow leaves one of its own.
"""

import json
from collections.abc import Sequence
from datetime import datetime

import requests

from components import params
from components.core import tracking
from components.core.errors import without_secrets
from pipelines.machines import services

TAG = "mlflow.sharedViewState."
MOST = 50
"""Views of the newest flows; the page reads them all at once."""


def kind(targets: Sequence[str]) -> str:
    """What a build is about, as part of a view's name: a study, a search, or any stages."""
    if len(targets) == 1 and targets[0].startswith("study@"):
        return targets[0].replace("@", "-")
    return "search" if targets and all(target.partition("@")[0] in ("search", "budget") for target in targets) else "run"


def _compared(targets: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Of a build: a filter beside that of its flow, tags and metrics to show, the one that sorts first."""
    about = kind(targets)
    if about.startswith("study-"):
        tasks = params.load().studies[targets[0].partition("@")[2]].tasks
        budget = ["perplexity", "bits_per_byte", "parameters", "tokens", "seconds"]
        return "tags.stage = 'study' and tags.seed != ''", ["variant", "seed"], [*tasks, *budget]
    if about == "search":
        return "tags.trial != ''", ["model", "task", "trial"], ["final_score", "seconds"]
    return "tags.stage != ''", ["stage", "model", "task", "method", "init", "seed"], ["score", "seconds"]


def save(targets: Sequence[str], flow_run: str) -> None:
    """Write the view of a flow whose run in the ledger has this id, and forget those of flows long past. Raises what MLflow raises."""
    extra, tags, metrics = _compared(targets)
    columns = [f"tags.`{tag}`" for tag in tags] + [f"metrics.`{metric}`" for metric in metrics]
    view = {
        "searchFilter": f"tags.{tracking.FLOW} = '{flow_run}' and {extra}", "orderByKey": f"metrics.`{metrics[0]}`", "orderByAsc": False,
        "startTime": "ALL", "lifecycleFilter": "Active", "modelVersionFilter": "All Runs", "datasetsFilter": [], "selectedColumns": columns,
    }  # fmt: skip
    client = tracking.client()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    client.set_experiment_tag(experiment.experiment_id, f"{TAG}{datetime.now():%Y%m%d-%H%M%S%f}-{kind(targets)}", json.dumps(view))
    for old in sorted(tag for tag in experiment.tags if tag.startswith(TAG))[: -MOST + 1]:
        client.delete_experiment_tag(experiment.experiment_id, old)


recorded: bool | None = None
"""Whether the flow of this process was recorded to its end; None before one had anything to do."""


def address_or_reason(targets: Sequence[str]) -> str:
    """Where the runs of the newest flow that built these targets are seen, or why there is nothing to see."""
    if recorded is False:
        why = f"{tracking.OFF}=off" if tracking.is_off() else "MLflow could not be reached, see above"
        return f"this flow was not recorded ({why}); its results are in data/"
    return address(targets) or "start its page with `sesame up`"


def address(targets: Sequence[str]) -> str | None:
    """Where the runs of the newest flow that built these targets are seen; None when no page is up.

    Asked by HTTP, since importing MLflow takes longer than a run without work.
    """
    page = services.page(services.MLFLOW)
    if page is None:
        return None
    shown = without_secrets(page)
    try:
        query = {"experiment_name": tracking.EXPERIMENT}
        experiment = requests.get(f"{page}/api/2.0/mlflow/experiments/get-by-name", params=query, timeout=5).json()["experiment"]
    except KeyError:  # the page is there before its first experiment
        return shown
    except requests.RequestException:
        return f"no server answers at {shown}; `sesame status` shows the servers"
    keys = sorted(tag["key"].removeprefix(TAG) for tag in experiment.get("tags", ()) if tag["key"].startswith(TAG))
    fitting = [key for key in keys if key.partition("-")[2].partition("-")[2] == kind(targets)]
    view = f"&viewStateShareKey={fitting[-1]}" if fitting else ""
    return f"{shown}/#/experiments/{experiment['experiment_id']}/runs?workflowType=machine_learning{view}"
