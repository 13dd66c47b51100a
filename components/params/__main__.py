"""Write the JSON schemas that editors complete the params files from."""

from pathlib import Path

from components.params import schemas

for name, text in schemas().items():
    (Path(__file__).parents[1] / name).write_text(text, encoding="utf-8")
