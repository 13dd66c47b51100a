"""How stages are run. The only code that imports Prefect or DVC.

cli.py is the `sesame` command, flow.py the Prefect flow that runs DVC's graph, deployments.py what prefect.yaml deploys and `sesame serve`
serves. terminal.py is how commands print, results.py what a run shows at its end, studies.py what commands say of studies, profiles/ are
ready sets of tasks, install.py is `make install`. The folders:

- execution/: a run on this machine: the graph, a stage as a child process, dvc.lock, the ledger
- worktrees/: variants of params.yaml, each in a git worktree
- machines/: servers, pools of workers on other machines
- money/: what a run will cost and what runs have cost
"""
