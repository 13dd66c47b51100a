"""A model of data/models as MLflow loads it anywhere: `components.core.tracking` logs this file with the code it imports."""

from pathlib import Path

import pandas as pd
from mlflow.models import ModelSignature, set_model
from mlflow.pyfunc import PythonModel
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array

from components.core.errors import SesameError
from components.notebook import Loaded

SIGNATURE = ModelSignature(
    Schema([ColSpec(DataType.string, "text")]),
    Schema([ColSpec(Array(DataType.double), "vector"), ColSpec(DataType.double, "log_probability")]),
)


class Served(PythonModel):
    """Of each text the last layer's mean over its tokens, and its log-probability, NaN for models that have none."""

    def load_context(self, context):
        self.loaded = Loaded(Path(context.artifacts["model"]))

    def predict(self, context, model_input: pd.DataFrame, params=None):
        texts = model_input["text"]
        vectors = [self.loaded.vector(text).tolist() for text in texts]
        return pd.DataFrame({"vector": vectors, "log_probability": [self._likely(text) for text in texts]})

    def _likely(self, text: str) -> float:
        try:
            return self.loaded.log_probability(text)
        except SesameError:
            return float("nan")


set_model(Served())
