"""How stages are run. The only code that imports Prefect or DVC.

graph.py reads the order of stages from DVC, flow.py runs them in parallel under Prefect, runner.py is one stage as a child
process, ledger.py is the flow's run in MLflow, services.py keeps the two servers, cli.py is the `sesame` command.
overrides.py makes variants of params.yaml, origin.py looks at what they start from, lanes.py is a worktree with one of them, sweep.py runs several.
studies.py is what the command line says of studies, deployments.py what prefect.yaml deploys and `sesame serve` serves, sources.py knows which stages to run again for new data.
"""
