"""`sesame try`: the page of one small model, on the tiny project."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from pipelines import trial
from tests.conftest import ran, tiny_params
from tests.evaluations.test_evaluate import SENTENCES


def test_a_first_look(project, capsys):
    raw = tiny_params(evaluations={"pairs": {"kind": "minimal_pairs", "corpus": "tiny"}})
    small = raw["models"]["gpt"] | {"prompts": ["the man"]}
    lines = [sentence.format(name) for name in ("mary", "peter", "anna", "paul", "john") for sentence in SENTENCES]
    Path("data/corpora/tiny/test.txt").write_text("\n\n".join(lines) + "\n")
    Path("studies").mkdir()
    for file, part in (("params.yaml", raw), ("studies/params.yaml", {"models": {"small": small}})):
        with open(file, "w") as out:
            YAML().dump(part, out)
    for module, name in (("pretrain", "small"), ("evaluations", "pairs")):
        ran(module, name)
    trial.show()
    said, page = capsys.readouterr().out, trial.PAGE.read_text()
    scores = r"right in \d\.\d{3} of \d+ pairs, from random weights in \d\.\d{3}, by counts of neighbouring words in \d\.\d{3}"
    assert re.search(rf"[\d,]+ tokens read; \d\.\d\d bits a byte .* {scores}", said)
    assert "the man  ->  " in said and str(trial.PAGE) in said
    assert page.count("<tr>") == 11 and "<svg" in page and "counts of neighbouring words" in page and "the man" in page
