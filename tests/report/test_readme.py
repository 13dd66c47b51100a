"""What fills the tables of README and docs."""

from components.report.markdown import interval


def test_a_single_item_has_a_figure_and_no_interval():
    row = {"difference": "0.25", "low": "0.2", "high": "0.3", "alone_low": "", "alone_high": ""}
    assert interval(row, "difference", "low", "high", "+") == "+0.250 [+0.200, +0.300]"
    assert interval(row, "difference", "alone_low", "alone_high") == "0.250"
