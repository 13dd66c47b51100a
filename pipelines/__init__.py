"""How stages are run. The only code that imports Prefect or DVC.

graph.py reads DVC's graph, flow.py runs it under Prefect, runner.py is one stage as a child process, processes.py stops such
children without orphans, prefect_server.py is Prefect's server for its own page only, services.py has it and MLflow's page up and
down, ledger.py is the flow's run in MLflow, views.py how MLflow's page opens on it, results.py what a command shows at its end,
cli.py the `sesame` command. forecast.py says what a run will take, estimates.py what one stage does, trainings.py what it trains.
overrides.py is other values of params.yaml, origin.py what lanes start from, lanes.py a worktree with one of them, sweep.py runs
several, experiments.py holds two results against each other. deployments.py is what prefect.yaml deploys and `sesame serve`
serves, sources.py knows which stages to run again for new data, studies.py what commands say of studies, verify.py whether DVC's
cache is whole, profiles/ are ready sets of tasks, install.py is `make install`.
"""
