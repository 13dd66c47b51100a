"""`python -m components.labs.search MODEL-TASK-INIT`: data/models/<model>, data/tasks/<task> ->
data/search/trials/<model>/<task>/<init>.csv.

Every trial is a line there and a run in MLflow.
"""

import statistics
import sys
from dataclasses import asdict

import pandas as pd

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.core.tracking import Run
from components.labs.search import metrics_file
from components.labs.search.draws import Draws
from components.labs.search.journal import Journal
from components.labs.search.trial import Trials
from components.params.recipes import has_effect
from components.stages import stage
from components.tasks import metrics


def previous_run(all_params: params.Params, name: str) -> str | None:
    """The MLflow run of a killed attempt."""
    if name not in all_params.search.runs:
        return None
    file = Journal(all_params, name).run
    return file.read_text() if file.exists() else None


def search(all_params: params.Params, name: str, run: Run) -> dict:
    config = all_params.search
    if name not in config.runs:
        raise SesameError(f"{name} is not in search of {params.STUDIES} (there are: {', '.join(config.runs)})")
    model, task, init = config.runs[name]
    base, trials = all_params.finetune.recipes[model].of_start(init), Trials.load(all_params, model, task, init)
    journal = Journal(all_params, name)
    draws, rows = Draws(config, base), journal.open(run.id)[: config.budget.trials]
    earlier = sum(row["seconds"] for row in rows)
    for row in rows:
        draws.add(row)
    if rows:
        print(f"resumes after {len(rows)} trials of a killed attempt", flush=True)
    while not (ended := exhausted(config.budget, rows)):
        trial, seed = draws.ask()
        number = trial.number + 1
        recipe = base.drawn(trial.params)
        tags = {
            "stage": "search", "search": name, "model": model, "task": task, "init": init,
            "sampler": config.sampler, "pruner": config.pruner.name,
        }  # fmt: skip
        with run.child(f"{name} trial {number}", tags | {"trial": str(number)}, recipe.model_dump(mode="json") | {"seed": seed}) as child:
            done = trials.run(
                recipe, seed, lambda epoch, score, trial=trial: draws.stops(trial, epoch, score),
                lambda epoch, figures, child=child: child.log(figures, epoch),
            )  # fmt: skip
            child.tag(state=done.state)
            costs = {"seconds": done.seconds, "hours": done.hours, "kwh": done.kwh, "flops": done.flops}
            child.log({"epochs_trained": len(done.scores), **costs})
            if done.score is not None:
                child.log({"final_score": done.score})
        row = {"trial": number, "drawn": trial.params, "seed": seed, **asdict(done), "pruner": draws.tell(trial, done.state, done.score)}
        rows.append(row)
        journal.add(row)
        print(f"trial {number}{f' of {config.budget.trials}' if config.budget.trials else ''}: {line(row, rows)}", flush=True)
    table = pd.DataFrame([columns(row, base.method) for row in rows])
    with storage.output(metrics_file(name).with_suffix(".csv")) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")
    run.tag(model=model, task=task)
    run.artifact(metrics_file(name).with_suffix(".csv"))
    best = max((row for row in rows if row["score"] is not None), key=lambda row: row["score"], default=None)
    complete = table[table["state"] == "complete"].sort_values("score", ascending=False)
    shown = complete.drop(columns=["state", "seed", "scores", "tokens", "flops", "note"])
    print(shown.head(5).to_string(index=False, float_format="%.4g") if len(shown) else "no trial was completed", flush=True)
    epoch = "last" if base.patience is None and "patience" not in config.space else "best"
    selection = f"the {epoch} epoch of each trial, the best trial selected on dev"
    states = {state: sum(row["state"] == state for row in rows) for state in ("complete", "pruned", "failed")}
    return {
        "model": model, "task": task, "metric": trials.metric, "init": init,
        "method": "drawn" if "method" in config.space else base.method,
        "sampler": config.sampler, "pruner": config.pruner.name, "device": trials.device,
        "protocol": metrics.protocol("dev", selection, len(trials.setup.examples["train"]), len(trials.setup.examples["dev"])),
        "trials": len(rows), **states, "ended_by": ended, "epochs_trained": sum(len(row["scores"]) for row in rows),
        "best": best and {"trial": best["trial"], "score": best["score"], "drawn": best["drawn"], "seed": best["seed"]},
        "mean": {key: statistics.fmean(row[key] for row in rows) for key in ("seconds", "hours", "kwh", "flops")},
        "cost": {
            "tokens": sum(row["tokens"] for row in rows), "flops": sum(row["flops"] for row in rows),
            "gpus": int(trials.setup.on_gpu), "earlier_seconds": earlier,
        },
    }  # fmt: skip


def exhausted(budget: params.SearchBudget, rows: list[dict]) -> str:
    """The limit that these trials have reached; empty if none."""
    if budget.trials and len(rows) >= budget.trials:
        return f"{budget.trials} trials"
    if budget.hours and sum(row["seconds"] for row in rows) >= budget.hours * 3600:
        return f"{budget.hours:g} hours"
    return ""


def line(row: dict, rows: list[dict]) -> str:
    """A trial on one line of the terminal."""
    drawn = ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row["drawn"].items())
    if row["state"] == "complete":
        state = metrics.shown(row["score"])
    else:
        state = f"failed ({row['note']})" if row["state"] == "failed" else f"pruned at {metrics.shown(row['scores'][-1])}"
    best = max((other["score"] for other in rows if other["score"] is not None), default=None)
    best = "none yet" if best is None else f"{best:.3f}"
    return f"{state}, {len(row['scores'])} epoch{'s' * (len(row['scores']) != 1)}, {row['seconds']:.1f} s, best {best} ({drawn})"


def columns(row: dict, method: str) -> dict:
    """A row of the table: one column per hyperparameter, empty where it has no effect under the method (by default `method`); the
    scores of all epochs in one column."""
    scores = " ".join("undefined" if score is None else f"{score:.4f}" for score in row["scores"])
    about = {key: row[key] for key in ("trial", "state", "score")} | {
        key: value if has_effect(key, row["drawn"].get("method", method)) else None for key, value in row["drawn"].items()
    }
    return {
        **about, "epochs_trained": len(row["scores"]), **{key: row[key] for key in ("seconds", "hours", "kwh", "seed")},
        "scores": scores, **{key: row[key] for key in ("tokens", "flops", "note")},
    }  # fmt: skip


def finish(name: str) -> None:
    """Delete the journal of a search whose outputs are written."""
    Journal(params.load(), name).delete()


if __name__ == "__main__":
    stage.main("search", search, resumes=previous_run, metrics_file=lambda _, name: metrics_file(name))
    finish(sys.argv[1])
