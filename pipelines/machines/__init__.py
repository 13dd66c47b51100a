"""Servers and other machines: stages that are sent to a work pool (`pools`) and run there (`pool_worker`, `pool_stage`), and the servers of
Prefect and MLflow (`services`, `prefect_server`, `mlflow_app`)."""
