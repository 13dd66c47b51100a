"""The database behind MLflow: whether it answers, and the addresses in it."""

from pathlib import Path

import sqlalchemy

PATIENCE = 5
"""Seconds to wait for a database server."""
ADDRESSES = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "source"), ("model_versions", "storage_location"),
)  # fmt: skip
"""Tables and columns with addresses of files in MLflow's database."""


def check(address: str) -> None:
    """Raise the driver's error if a database server does not answer: MLflow itself would try for two minutes."""
    url = sqlalchemy.make_url(address)
    if url.get_backend_name() in ("postgresql", "mysql", "mssql"):
        limit = {"timeout" if url.get_backend_name() == "mssql" else "connect_timeout": PATIENCE}
        engine = sqlalchemy.create_engine(url, connect_args=limit)
        engine.connect().close()
        engine.dispose()


def update_addresses(address: str, before: str, artifacts: Path) -> None:
    """Update the addresses of artifacts, which were in the folder `before`, in a checkout that was moved or copied: MLflow makes even
    relative ones absolute."""
    now = artifacts.as_uri()
    if before == now or not artifacts.is_dir():
        return
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as database:
        for table, column in ADDRESSES:
            assignment = f"{column} = :now || substr({column}, :rest) WHERE substr({column}, 1, :rest - 1) = :before"
            update = sqlalchemy.text(f"UPDATE {table} SET {assignment}")
            database.execute(update, {"now": now, "before": before, "rest": len(before) + 1})
    engine.dispose()
