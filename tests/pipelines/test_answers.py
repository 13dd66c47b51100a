"""What answers take: a line for each task that a model is tuned on, measured on the model as it lies here."""

import re

import pytest
import torch

from components import params
from components.core.errors import SesameError
from pipelines.money.answers import print_costs
from tests.conftest import save_random, tiny_params


def made(tokens, name: str) -> params.Params:
    raw = tiny_params()
    raw["finetune"]["threads"] = 2
    checked = params.check(raw)
    save_random(checked, name, tokens)
    return checked


@pytest.mark.parametrize("name", ["gpt", "elmo"])
def test_every_task_has_a_line(project, tokens, monkeypatch, capsys, name):
    monkeypatch.setattr("pipelines.money.answers.EXAMPLES", 6)
    checked = made(tokens, name)
    threads = torch.get_num_threads()
    print_costs(checked, name)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads)
    said = capsys.readouterr().out
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if line.startswith(tuple(checked.finetune.tasks))]
    assert [row[0] for row in rows] == checked.finetune.tasks and {row[1] for row in rows} == {checked.finetune.recipes[name].method}
    for row in rows:
        p50, p95, a_second, _, of_32, mflops, mib, one, together = (float(cell.replace(",", "")) for cell in row[2:11])
        assert 0 < p50 <= p95 and a_second > 0 and of_32 > 0 and mflops > 0 and mib > 0
        assert one == pytest.approx(1.58 * 10 / a_second / 3600, rel=0.1) and together > 0, "kWh of a thousand, of a core's ten watts"
    assert "6 examples, one at a time and 32 together" in " ".join(said.split())


def test_what_has_no_answers_is_one_line(project, tokens):
    checked = made(tokens, "gpt")
    with pytest.raises(SesameError, match=r"no 'gtp' in finetune.models or adapt.models of params.yaml \(there are: bert, gpt, elmo"):
        print_costs(checked, "gtp")
    with pytest.raises(SesameError, match="data/models/bert: no model there"):
        print_costs(checked, "bert")
    raw = tiny_params()
    raw["finetune"]["recipes"]["gpt"] |= {"method": "in_context"}
    raw["finetune"]["tasks"] = ["same"]
    with pytest.raises(SesameError, match="gpt generates its answers"):
        print_costs(params.check(raw), "gpt")
