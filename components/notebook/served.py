"""A model of data/models as an MLflow model: `components.notebook.logged` logs this file with the code it imports."""

import warnings
from pathlib import Path

import pandas as pd
from mlflow.models import ModelSignature, set_model
from mlflow.pyfunc import PythonModel
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array

from components import notebook
from components.core.errors import SesameError
from components.notebook import Loaded

SIGNATURE = ModelSignature(
    Schema([ColSpec(DataType.string, "text")]),
    Schema([ColSpec(Array(DataType.double), "vector"), ColSpec(DataType.double, "log_probability")]),
)


class Served(PythonModel):
    """The last layer's mean over the tokens of each text, and its log-probability; NaN for models without one, and for a
    text that is longer than the model reads."""

    def load_context(self, context):
        # Python has one package of a name in a process: of two models that were logged with different code, the second gets the first one's
        known = getattr(notebook, "code_digest", None)  # that of before has none
        if known is None or Path(context.artifacts["code"]).read_text() != known():
            name = Path(context.artifacts["model"]).name
            said = f"{name} was logged with other code than this process has imported, which answers now: load it in a process of its own"
            warnings.warn(said, stacklevel=2)
        self.loaded = Loaded(Path(context.artifacts["model"]))

    def predict(self, context, model_input: pd.DataFrame, params=None):
        texts = model_input["text"]
        vectors = [self._vector(text) for text in texts]
        return pd.DataFrame({"vector": vectors, "log_probability": [self._log_probability(text) for text in texts]})

    def _vector(self, text: str) -> list[float]:
        try:
            return self.loaded.vector(text).tolist()
        except SesameError:
            return [float("nan")] * self.loaded.model.width

    def _log_probability(self, text: str) -> float:
        try:
            return self.loaded.log_probability(text)
        except SesameError:
            return float("nan")


set_model(Served())
