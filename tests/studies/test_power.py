"""What a study can show before it runs: by simulation, and what is known of which measure."""

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML
from scipy.stats import ttest_ind

from components import params
from components.core import storage
from components.studies import power
from components.studies.folders import REPORTS
from pipelines import studies
from tests.conftest import tiny_params, write_studies


@pytest.fixture
def study(tmp_path, monkeypatch) -> params.Study:
    monkeypatch.setattr(power, "REPORTS", tmp_path)
    return params.check(tiny_params()).studies["rate"]


def past(folder, name: str, rows: list[dict]) -> None:
    pd.DataFrame([{"milestone": "last"} | row for row in rows]).to_csv(folder / f"{name}.csv", index=False)


def test_the_difference_is_found_in_four_cases_of_five(study, tmp_path):
    """With as many seeds, noise of the same deviation, and Student's test, as a page judges."""
    past(tmp_path, "other", [{"n": 9, "same_std": 0.02}, {"n": 5, "same_std": 0.01}, {"n": 1, "same_std": np.nan}])
    found = power.power("rate", study)
    deviation = np.sqrt((8 * 0.02**2 + 4 * 0.01**2) / 12)
    draws = np.random.default_rng(0).normal(0, deviation, (2, 20_000, len(study.seeds)))
    seen = ttest_ind(draws[0] + found["same"].smallest, draws[1], axis=1).pvalue < 0.05
    assert seen.mean() == pytest.approx(0.8, abs=0.01) and found["same"].studies == 1 and set(found) == {"same"}


def test_a_study_that_ran_goes_by_its_own_spread(study, tmp_path):
    past(tmp_path, "other", [{"n": 5, "same_std": 0.2}])
    assert "same 1." in power.sentence("rate", study) and "deviation over seeds in 1 past study" in power.sentence("rate", study)
    wide = power.power("rate", study)["same"].smallest
    trained = {"n": 2, "tokens": 1000, "bits_per_byte": 2.0, "bits_per_byte_std": 0.01}
    past(tmp_path, "rate", [trained | {"same_std": 0.02}])
    assert power.power("rate", study)["same"].smallest == pytest.approx(wide / 10)
    other = trained | {"bits_per_byte": 1.9, "bits_per_byte_std": 0.03}
    past(tmp_path, "rate", [trained | {"same_std": 0.02}, trained | {"same_std": 0.02}, other])  # the second is tuned from the first
    once = power.power("rate", study)["bits_per_byte"].smallest
    past(tmp_path, "rate", [trained, other])
    assert power.power("rate", study)["bits_per_byte"].smallest == once, "a training counts once"
    past(tmp_path, "rate", [trained | {"same_std": 0.02}])
    assert set(power.power("rate", study)) == {"same", "bits_per_byte"}
    one = study.model_copy(update={"seeds": [1]})
    assert power.sentence("rate", one) == "power    one seed shows no difference: name more under seeds"
    (tmp_path / "rate.csv").unlink()
    (tmp_path / "other.csv").unlink()
    assert power.sentence("rate", study) == "power    unknown: no study with these measures has run"


def test_the_table_of_a_study_has_parameters_where_they_differ(project, capsys):
    raw = tiny_params()
    write_studies(project, raw.pop("studies"))
    YAML().dump({key: value for key, value in raw.items() if key not in params.OF_STUDIES}, project / params.FILE)
    row = {"tokens": 10, "flops": 5, "seconds": 1.5, "bits_per_byte": 2.0, "bits_per_byte_std": 0.1, "same": 0.5, "same_std": 0.1}
    storage.write_json(REPORTS / "rate.json", {"reading": "Nothing."})
    for sizes, shown in (((7, 7), False), ((7, 8_000), True)):
        past(REPORTS, "rate", [row | {"variant": str(size), "parameters": size} for size in sizes])
        studies.show("rate")
        printed = capsys.readouterr()
        assert ("parameters" in printed.out + printed.err) == shown
