"""How stages are run. The only code that imports Prefect or DVC.

flow.py is the Prefect flow that runs DVC's graph, deployments.py has the deployments of prefect.yaml and `sesame serve`.
terminal.py prints, results.py shows the results of a run at its end, studies.py those of studies, trial.py is `sesame
try`, doctor.py `sesame doctor`, install.py `make install`; profiles/ are ready sets of tasks. The folders:

- cli/: the `sesame` command, a file for each group of subcommands
- execution/: a run on this machine: DVC's repository and graph, a stage as a child process, dvc.lock, the record in MLflow
- worktrees/: variants of params.yaml, each in its own git worktree
- machines/: servers, pools of workers on other machines
- money/: forecasts of a run's cost, and the cost of past runs
"""
