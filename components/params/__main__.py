"""Write the JSON schema that editors complete `params.yaml` from."""

from pathlib import Path

from components.params import schema

Path(__file__).parents[1].joinpath("params.schema.json").write_text(schema(), encoding="utf-8")
