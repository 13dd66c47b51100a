"""Logs a model of data/models to MLflow."""

import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

REQUIREMENTS = (
    "torch", "safetensors", "sentencepiece", "tokenizers", "numpy", "pandas", "pydantic", "ruamel.yaml", "filelock",
    "mlflow", "cloudpickle",
)  # fmt: skip
"""Packages needed to load and use a model."""


def log_model(run_id: str, folder: Path, name: str, **options: str):
    """Log a model of data/models with the code to load it, which then needs only packages and no checkout."""
    import mlflow

    from components.notebook import code_digest, served

    # without the `+cpu` of a build, which is on no package index
    requirements = [f"{package}=={version(package).partition('+')[0]}" for package in REQUIREMENTS]
    package = Path(__file__).parents[1]
    with (
        warnings.catch_warnings(), tempfile.TemporaryDirectory() as code,
        mlflow.start_run(run_id=run_id, log_system_metrics=False),
    ):  # fmt: skip
        warnings.simplefilter("ignore")  # MLflow recommends type hints, and an example next to the signature
        left_out = shutil.ignore_patterns("__pycache__", "*.schema.json")
        shutil.copytree(package, Path(code, package.name), ignore=left_out)
        digest = Path(code, "code.sha256")
        digest.write_text(code_digest())
        return mlflow.pyfunc.log_model(
            name=name, python_model=str(Path(served.__file__)), artifacts={"model": str(folder), "code": str(digest)},
            code_paths=[str(Path(code, package.name))], pip_requirements=requirements, signature=served.SIGNATURE,
            **options,
        )  # fmt: skip
