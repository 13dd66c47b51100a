"""One rule for all comparisons: its interval, its errors on simulated runs, groups, Holm's correction, a user's mistakes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import matthews_corrcoef

from components import params, tasks
from components.comparison import verdicts
from components.comparison.detection import POWER, detectable_errors
from components.comparison.verdicts import Side, difference, holm, of_values, side
from components.core.errors import SesameError
from components.evaluations import contract as evaluations
from components.tasks import Example
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())
TASK = CHECKED.tasks["same"]
BLOCKS = np.array_split(np.arange(500), verdicts.BLOCKS)


def simulated(rng: np.random.Generator, runs: int, deviation: float, gain: float) -> tuple[Side, Side]:
    """Two models on 500 examples of differing difficulty; a run's accuracy moves by `deviation`, one model's is higher by `gain`."""
    chance = rng.beta(2, 1.3, 500)

    def model(better: float) -> Side:
        own = np.clip(chance + better + rng.normal(0, deviation, (runs, 1)), 0, 1)
        return of_values((rng.random(own.shape) < own).astype(float), BLOCKS)

    return model(gain), model(0.0)


def found(runs: int, deviation: float, gain: float, times: int = 300) -> float:
    """The share of simulated comparisons with a verdict."""
    rng = np.random.default_rng([runs, round(1000 * deviation), round(1000 * gain)])
    said = [verdicts.verdicts([difference(*simulated(rng, runs, deviation, gain))]) for _ in range(times)]
    return float(np.mean([word in (["higher"], ["lower"]) for word in said]))


@pytest.mark.long
def test_verdicts_are_seldom_wrong_and_find_what_is_large_enough():
    """Without a difference 5 % at most (three standard errors of 300 trials: .088); the power grows with the seeds (docs/studies.md)."""
    wrong = {(runs, deviation): found(runs, deviation, 0.0) for runs in (2, 3, 5, 10) for deviation in (0.0, 0.03)}
    right = {(runs, gain): found(runs, 0.02, gain) for runs in (3, 5, 10) for gain in (0.04, 0.08)}
    print("without a difference", wrong, "with one", right)
    assert max(wrong.values()) < 0.088
    for gain in (0.04, 0.08):
        assert right[3, gain] < right[5, gain] < right[10, gain]
    assert right[10, 0.04] > 0.4 and right[5, 0.08] > 0.8


def of_a_page(rng: np.random.Generator, runs: int, deviations: list[float], gain: float = 0.0) -> list[Side]:
    """Variants on the same 500 examples, each with noise of its own; the second is better."""
    chance, sides = rng.beta(2, 1.3, 500), []
    for i, deviation in enumerate(deviations):
        own = np.clip(chance + (gain if i == 1 else 0) + rng.normal(0, deviation, (runs, 1)), 0, 1)
        sides.append(of_values((rng.random(own.shape) < own).astype(float), BLOCKS))
    return sides


def always(sides: list[Side]) -> verdicts.Pooled:
    """The variance of all sides together, whether they are alike or not."""
    variances = [side.scores.var(ddof=1) for side in sides]
    return verdicts.Pooled(float(np.mean(variances)), sum(side.runs - 1 for side in sides))


def never(_: list[Side]) -> None:
    """Each comparison has the variances of its own two sides."""


def on_pages(deviations: list[float], gain: float, noise=verdicts.pool, times: int = 200) -> float:
    """The share of simulated pages with any verdict against the base or, with a gain, with that of the better variant."""
    rng, hits = np.random.default_rng(5), 0
    for _ in range(times):
        base, *others = sides = of_a_page(rng, 3, deviations, gain)
        of_runs = noise(sides)
        said = verdicts.verdicts([difference(other, base, of_runs) for other in others])
        hits += said[0] == "higher" if gain else any(word in ("higher", "lower") for word in said)
    return hits / times


def test_noise_of_all_variants_together_finds_more_and_is_no_oftener_wrong():
    """Six variants of three seeds, Holm's correction over the page; also where the variants' noise is not the same."""
    alike, unlike = [0.02] * 6, [0.01, 0.01, 0.01, 0.03, 0.03, 0.03]
    wrong = {"alike": on_pages(alike, 0.0), "unlike": on_pages(unlike, 0.0)}
    power = {noise.__name__: on_pages(alike, 0.08, noise) for noise in (never, always, verdicts.pool)}
    print("any verdict without a difference", wrong, "found", power)
    assert max(wrong.values()) < 0.1
    assert power["pool"] > power["never"] + 0.1 and power["pool"] > power["always"] - 0.05


def test_one_noisy_variant_neither_gets_a_verdict_of_its_own_nor_hides_the_others():
    """Where its variance is pooled with the others', it looks surer than it is, and they less sure (as in `masking`)."""
    noisy = [0.01, 0.01, 0.01, 0.01, 0.2]
    wrong = {noise.__name__: on_pages(noisy, 0.0, noise) for noise in (always, verdicts.pool)}
    power = {noise.__name__: on_pages(noisy, 0.15, noise) for noise in (always, verdicts.pool)}
    print("any verdict without a difference", wrong, "found", power)
    assert wrong["pool"] < 0.1 < wrong["always"]
    assert power["pool"] > power["always"] + 0.3


def test_variances_are_pooled_where_they_are_alike():
    def runs(*scores: float) -> Side:
        return Side(np.array(scores), np.zeros((2, len(scores))))

    mean = pytest.approx((0.005 + 0.0060667) / 4, rel=0.01)
    assert verdicts.pool([runs(0.1, 0.2, 0.15), runs(0.2, 0.21, 0.3)]) == (mean, 4)
    assert verdicts.pool([runs(0.1, 0.2, 0.15), runs(0.2, 0.201, 0.202)]) is None
    assert verdicts.pool([runs(0.1, 0.1, 0.1), runs(0.2, 0.21, 0.3)]) is None, "none at all is another variance, too"
    assert verdicts.pool([runs(0.25, 0.25, 0.25), runs(0.5, 0.5, 0.5)]) == (0, 4)
    assert np.isnan(verdicts.pool([runs(0.1), runs(0.2)]).variance), "one run has no variance"


def test_many_seeds_of_one_test_set_give_welchs_interval_and_many_examples_of_one_seed_the_paired_one():
    rng = np.random.default_rng(0)
    a, b = (Side(scores, np.repeat(scores[None], 100, 0)) for scores in rng.normal([[0.60], [0.58]], 0.02, (2, 12)))  # no example matters
    ours, theirs = difference(a, b), stats.ttest_ind(a.scores, b.scores, equal_var=False)
    assert (ours.low, ours.high) == pytest.approx(theirs.confidence_interval()) and ours.p == pytest.approx(theirs.pvalue)
    values = (rng.random((2, 1, 2000)) < [[[0.7]], [[0.6]]]).astype(float)
    blocks = [np.array([i]) for i in range(2000)]
    ours = difference(*(of_values(own, blocks, drawn=False) for own in values))
    theirs = stats.ttest_rel(*values[:, 0])
    interval = theirs.confidence_interval()
    assert (ours.low, ours.high, ours.p) == pytest.approx((interval.low, interval.high, theirs.pvalue), rel=0.02)
    same = difference(a, a)
    assert same.difference == 0 and same.low < 0 < same.high, "other seeds would have come out otherwise"


@pytest.mark.parametrize("judged", ["task", "evaluation"])
@pytest.mark.parametrize("size", [2, 5, 400])
def test_examples_that_all_agree_do_not_exclude_another_one(size, judged):
    """Of 5 right answers of 5 an error of one half is not excluded; two examples are too few for a verdict, 400 are enough."""
    gold = rows(size)
    wrong = [{"no": "yes", "yes": "no"}[row.label] for row in gold]

    def runs(right: bool) -> Side:
        if judged == "evaluation":
            return evaluations.side(np.full((3, size), float(right)), np.ones(size))
        return side(TASK, "accuracy", gold, [[row.label for row in gold] if right else wrong] * 3)

    bound = stats.binomtest(0, size).proportion_ci(0.95, "exact").high
    equal = difference(runs(True), runs(True))
    assert (equal.low, equal.high, equal.p) == pytest.approx((-bound, bound, 1))
    apart = difference(runs(True), runs(False))
    assert apart.p == pytest.approx(stats.binomtest(size, size).pvalue) and apart.low == pytest.approx(1 - 2 * bound)
    assert (apart.p < 0.05) == (apart.low > 0)
    by_little = difference(*(evaluations.side(np.full((3, size), score), np.ones(size)) for score in (0.7, 0.3)))
    assert (by_little.p < 0.05) == (by_little.low > 0) == (size == 400), "though .4 has a variance by rounding"
    assert verdicts.verdicts([equal, apart]) == ["not beyond noise", "higher" if size == 400 else "not beyond noise"]


def rows(size: int, per_group: int = 1) -> list[Example]:
    gold = np.random.default_rng(1).choice(["no", "yes"], size)
    return [Example(str(i), "a", "b", str(label), group=str(i // per_group) if per_group > 1 else None) for i, label in enumerate(gold)]


def test_a_metric_that_is_no_mean_is_judged_without_each_block_too():
    examples, rng = rows(300), np.random.default_rng(2)
    predictions = [[row.label if rng.random() < 0.8 else "no" for row in examples] for _ in range(3)]
    own = side(TASK, "matthews_correlation", examples, predictions)
    block = verdicts.blocks_of(examples)[7]
    kept = [i for i in range(300) if i not in block]
    expected = matthews_corrcoef([examples[i].label for i in kept], [predictions[1][i] for i in kept])
    assert own.without.shape == (100, 3) and own.without[7, 1] == pytest.approx(expected)
    constant = side(TASK, "matthews_correlation", examples, [["yes"] * 300] * 3)
    assert verdicts.verdicts([difference(own, constant), difference(constant, own)]) == ["undefined"] * 2


def test_examples_that_are_judged_together_leave_together():
    """Answers to one question are right or wrong together: as if they were single, the interval would be too narrow."""
    rng = np.random.default_rng(3)
    whole, right = rows(600, per_group=10), np.repeat(rng.random(60) < 0.7, 10)
    assert all(len({whole[i].group for i in block}) * 10 == len(block) for block in verdicts.blocks_of(whole))
    alike = [row.label if ok else "no" if row.label == "yes" else "yes" for row, ok in zip(whole, right, strict=True)]
    widths = []
    for examples in (whole, [Example(row.id, "a", "b", row.label) for row in whole]):
        own, other = (side(TASK, "accuracy", examples, [run], drawn=False) for run in (alike, ["yes"] * 600))
        widths.append(difference(own, other))
    assert widths[0].high - widths[0].low > 1.8 * (widths[1].high - widths[1].low)
    assert verdicts.blocks_of(rows(6, per_group=6)) == [], "one group says nothing of others"


def test_questions_on_one_passage_leave_together():
    """Two equal systems, each right on whole passages at random. With questions as independent most verdicts are false."""
    rng, task = np.random.default_rng(0), params.check(tiny_params()).tasks["same"]
    rows = [Example(str(i), "q", None, "yes", cluster=f"passage {i // 20}") for i in range(800)]
    alone = [replace(row, cluster=None) for row in rows]
    assert all(len({rows[i].cluster for i in block}) * 20 == len(block) for block in verdicts.blocks_of(rows))
    found = {"passages": 0, "questions": 0}
    for _ in range(200):
        runs = [np.where(np.repeat(rng.random(40) < 0.7, 20), "yes", "no").tolist() for _ in "ab"]
        for name, examples in (("passages", rows), ("questions", alone)):
            a, b = (verdicts.side(task, "accuracy", examples, [run], drawn=False) for run in runs)
            found[name] += verdicts.difference(a, b).p < 0.05
    assert found["passages"] < 0.1 * 200 and found["questions"] > 0.4 * 200


@pytest.mark.parametrize("degrees", [1, 2, 3.7, 8, 200])
def test_the_detectable_difference_is_found_in_four_cases_of_five(degrees):
    """Draws of Student's statistic with a true difference of so many standard errors."""
    rng, errors = np.random.default_rng(int(10 * degrees)), detectable_errors(degrees)
    drawn = (rng.standard_normal(200_000) + errors) / np.sqrt(rng.chisquare(degrees, 200_000) / degrees)
    assert (np.abs(drawn) > stats.t.ppf(0.975, degrees)).mean() == pytest.approx(POWER, abs=0.005)


def test_without_degrees_of_freedom_nothing_is_detectable():
    assert np.isnan(detectable_errors(float("nan"))) and np.isnan(detectable_errors(0))
    assert detectable_errors(9_999) == pytest.approx(detectable_errors(10_001), abs=1e-3), "there it is taken for normal"


def test_holms_correction():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5]) and holm([]) == []
    rng = np.random.default_rng(4)
    one = difference(*simulated(rng, 5, 0.01, 0.06))
    nothing = [difference(*simulated(rng, 5, 0.01, 0.0)) for _ in range(40)]
    assert verdicts.verdicts([one]) == ["higher"] and set(verdicts.verdicts(nothing)) == {"not beyond noise"}
    assert sum(own.p < 0.05 for own in nothing) <= 5
    single = difference(*simulated(rng, 1, 0.01, 0.3))
    assert verdicts.verdicts([single]) == ["one run"] and single.low > 0, "an interval of the examples, and no verdict"


def write(model: str, right: np.ndarray, rows: list[Example]) -> None:
    """Predictions of some seeds, right where `right`, (seeds, examples), says so."""
    other, folder = {"yes": "no", "no": "yes"}, Path("data/scores", model, "same")
    folder.mkdir(parents=True)
    lines = [
        {"init": "pretrained", "seed": seed, "split": "test", "id": row.id, "prediction": row.label if ok else other[row.label]}
        for seed, own in enumerate(right) for row, ok in zip(rows, own, strict=True)
    ]  # fmt: skip
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_sides_are_read_from_what_the_stages_wrote(project):
    examples, rng = tasks.read("data/tasks/same", "test"), np.random.default_rng(0)
    right = rng.random((2, 3, len(examples))) < np.array([[[0.9]], [[0.5]]])
    for model, own in zip(("good", "worse"), right, strict=True):
        write(model, own, examples)
    places = {model: [(Path("data/scores", model, "same"), "pretrained")] for model in ("good", "worse")}
    count, sides = verdicts.sides(CHECKED, "same", "test", "accuracy", places)
    assert count == len(examples) and sides["good"].scores == pytest.approx(right[0].mean(1))
    assert difference(sides["good"], sides["worse"]).low > 0
    absent = r"data/scores/none/same/predictions.jsonl: no such file; run the stage that writes it first \(`sesame run finetune@none-same`"
    with pytest.raises(SesameError, match=absent):
        verdicts.sides(CHECKED, "same", "test", "accuracy", {"none": [(Path("data/scores/none/same"), "pretrained")]})
    with pytest.raises(SesameError, match="no predictions for the test split from random weights"):
        verdicts.sides(CHECKED, "same", "test", "accuracy", {"good": [(Path("data/scores/good/same"), "random")]})
    Path("data/scores/good/same/predictions.jsonl").write_text("{")
    cure = r"data/scores/good/same/predictions.jsonl can't be read \(.*\); `sesame run finetune@good-same` brings back what its stage wrote"
    with pytest.raises(SesameError, match=cure):
        verdicts.sides(CHECKED, "same", "test", "accuracy", places)


def test_false_discoveries_are_rare_where_nothing_changed_and_changes_are_found():
    draw = np.random.default_rng(0)
    null = draw.standard_normal(2000)
    quiet = [verdicts.false_discovery_rates(draw.standard_normal(300), null) for _ in range(100)]
    assert sum((values <= 0.05).any() for values in quiet) <= 12, "in about 5 of 100 tables a word is taken for changed"
    mixed = verdicts.false_discovery_rates(np.concatenate([draw.standard_normal(280), 6 + draw.standard_normal(20)]), null)
    assert (mixed[280:] <= 0.05).mean() > 0.9 and (mixed[:280] <= 0.05).mean() < 0.02
    by_hand = verdicts.false_discovery_rates(np.array([5.0, -5, 0.5]), np.arange(1, 10) / 10)  # p: 1/10, 1, 6/10
    np.testing.assert_allclose(by_hand, [0.3, 1, 0.9])


def test_a_score_that_hangs_on_one_example_has_an_interval():
    """Without it the labels are constant and the correlation is undefined: it counts as 0, and the interval is a wide one."""
    examples = [Example(str(i), f"text {i}", None, "yes" if i == 7 else "no") for i in range(60)]
    right = side(TASK, "matthews_correlation", examples, [[row.label for row in examples]] * 2)
    wrong = side(TASK, "matthews_correlation", examples, [["yes" if i == 8 else "no" for i in range(60)]] * 2)
    one = difference(right, wrong)
    assert one.difference == pytest.approx(1.017, abs=1e-3) and one.low < one.difference - 1
    assert verdicts.verdicts([one]) == ["not beyond noise"] and "nan" not in one.shown


def test_a_variant_with_an_undefined_score_does_not_silence_the_others():
    runs = [0.8, 0.82, 0.84], [0.7, 0.72, 0.71], [0.3, np.nan, 0.31]
    one, other, broken = (Side(np.array(own), np.repeat([own], 2, 0)) for own in runs)
    for sides in ([one, other], [one, other, broken]):
        assert verdicts.verdicts([difference(one, other, verdicts.pool(sides))]) == ["higher"]


def test_a_weighted_mean_is_left_out_by_its_weights():
    """All items alike: there is no noise in their mean, whatever they weigh."""
    rng = np.random.default_rng(0)
    weights = rng.integers(5, 300, 500).astype(float)
    own = evaluations.side(np.full((1, 500), 2.0), weights, False)
    assert own.mean == pytest.approx(2) and verdicts.jackknife(own.without.mean(1)) == pytest.approx(0)
    values = 2 + rng.normal(0, 1, (1, 500))
    own = evaluations.side(values, weights, False)
    drawn = [rng.integers(0, 500, 500) for _ in range(2000)]
    bootstrap = np.std([np.average(values[0, rows], weights=weights[rows]) for rows in drawn])
    assert np.sqrt(verdicts.jackknife(own.without.mean(1))) == pytest.approx(bootstrap, rel=0.15)
