"""What fills the tables of README and docs."""

import csv
import json
from functools import partial

from components import params
from components.comparison import price
from components.report import readme, readme_studies
from components.report.markdown import interval, rows


def test_a_single_item_has_a_figure_and_no_interval():
    row = {"difference": "0.25", "low": "0.2", "high": "0.3", "alone_low": "", "alone_high": ""}
    assert interval(row, "difference", "low", "high", "+") == "+0.250 [+0.200, +0.300]"
    assert interval(row, "difference", "alone_low", "alone_high") == "0.250"


def test_what_a_variant_begins_with_is_paid_once(tmp_path, monkeypatch):
    """A row has the seconds of all trainings of its models: the first one of ulmfit was counted with each that goes on with it."""
    study = params.load().studies["ulmfit"]

    def trainings(variant: str | None) -> int:
        return 1 + trainings(params.begun_by(study, variant)) if variant else 0

    (tmp_path / "studies").mkdir()
    with (tmp_path / "studies/ulmfit.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["variant", "milestone", "n", "seconds"])
        for variant, block in study.variants.items():
            table.writerow([variant, "last", 2, 600 * trainings(params.trained_by(study, variant) if block.only_tuned else variant)])
    (tmp_path / "studies/ulmfit.json").write_text(json.dumps({}))
    monkeypatch.setattr(readme_studies, "REPORT", tmp_path)
    monkeypatch.setattr(readme_studies, "rows", partial(rows, folder=tmp_path))
    trained = sum(not block.only_tuned for block in study.variants.values())
    assert 1 < trained < len(study.variants)
    assert f"took {20 * trained} minutes of a core" in readme_studies._cost("ulmfit")


def test_a_pair_of_variants_reads_the_same_from_both_sides(tmp_path, monkeypatch):
    pair = {"variant": "frozen", "against": "tuned", "difference": -0.25, "low": -0.375, "high": -0.125, "verdict": "lower"}
    other = pair | {"against": "base", "verdict": "not beyond noise"}
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/own.json").write_text(json.dumps({"comparisons": [row | {"task": "movies"} for row in (other, pair)]}))
    monkeypatch.setattr(readme_studies, "REPORT", tmp_path)
    assert readme.effect("own", "frozen", "movies", "tuned") == "-0.250 [-0.375, -0.125], beyond noise"
    assert readme.effect("own", "tuned", "movies", "frozen") == "+0.250 [+0.125, +0.375], beyond noise"


def test_what_costs_nothing_is_none_of_it():
    assert [price.ratio(ours, 8.0) for ours in (0.0, 2.0, 16.0)] == ["none of", "1/4.00 of", "2.00 times"]
