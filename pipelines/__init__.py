"""How stages are run. The only code that imports Prefect or DVC.

A run: graph.py reads DVC's graph, flow.py runs it under Prefect, runner.py is one stage as a child process, processes.py stops such
children without orphans, slots.py shares out GPUs and cores, cancellation.py hears of a cancel, lockfile.py reads and writes dvc.lock,
ledger.py is the flow's run in MLflow, meter.py reads what it takes off the wall, sources.py knows which stages to run again for new data.

On other machines: pools.py sends stages to a work pool as parcel.py packs them, pool_worker.py is `sesame worker`, pool_stage.py the flow
that it runs for each.

Variants: overrides.py is other values of params.yaml, origin.py what lanes start from, lanes.py a worktree with one of them, sweep.py runs
several, experiments.py holds two results against each other, studies.py what commands say of studies, profiles/ are ready sets of tasks.

Costs: forecast.py says what a run will take, estimates.py what one stage does, trainings.py what it trains; price_tags.py and spent.py
what was spent, answers.py what answers take, compress.py what makes a model cheaper.

Around it: cli.py is the `sesame` command, terminal.py how it prints, results.py what it shows at its end, services.py has the servers up
and down, prefect_server.py is Prefect's, views.py how MLflow's page opens on a run, deployments.py what prefect.yaml deploys and `sesame
serve` serves, verify.py whether DVC's cache is whole, install.py `make install`.
"""
