"""What runs cost beside their time: devices, CO2e, money."""

import copy

import pytest
from pydantic import ValidationError

from components import params
from components.comparison import price
from components.report import tables
from components.report.benchmarks import PUBLISHED
from components.stages import registry
from components.stages.cost import energy_kwh
from tests.conftest import tiny_params

CHECKED = params.check(tiny_params())


def cost(seconds: float, cores: float, gpus: int = 0, gib: float = 1.5, flops: int = 0) -> dict:
    """As a stage keeps it that had so many cores busy, and so many GPUs."""
    kwh = energy_kwh(CHECKED.energy, seconds, seconds * cores, gib, gpus)
    return {"seconds": seconds, "tokens": 0, "flops": flops, "kwh": float(f"{kwh:.4g}"), "memory_mib": round(1024 * gib)}


@pytest.mark.parametrize(("cores", "gpus"), [(0.4, 0), (1.0, 0), (7.5, 0), (1.0, 1), (0.3, 4), (12.0, 8)])
def test_devices_are_those_that_the_energy_was_estimated_from(cores, gpus):
    found = price.devices(CHECKED.energy, cost(223.0, cores, gpus), on_gpu=True)
    assert found == (pytest.approx(cores, rel=0.05, abs=0.05), gpus)
    assert price.devices(CHECKED.energy, cost(0, 1), True) == (0.0, 0)


def test_sixty_busy_cores_of_what_knows_no_gpu_are_no_gpus():
    busy = cost(100, 64)
    assert price.devices(CHECKED.energy, busy, on_gpu=False) == (pytest.approx(64, rel=1e-3), 0)
    assert (price.run_price(CHECKED, "corpus", busy).gpu_hours, price.run_price(CHECKED, "corpus", busy).core_hours) == (
        0,
        pytest.approx(6400 / 3600, 1e-3),
    )


def test_sixty_busy_cores_of_a_training_are_no_gpus():
    """They draw as much as two, for which a training on a CPU was priced: 2 GPU-hours, $5, in place of 64 core-hours, $2.56."""
    trained = price.run_price(CHECKED, "pretrain", cost(3600, 64) | {"gpus": 0})
    assert (trained.gpu_hours, trained.core_hours) == (0, pytest.approx(64, rel=1e-3))
    assert trained.usd_on_demand == pytest.approx(64 * 0.04, rel=1e-3)
    beside = price.run_price(CHECKED, "pretrain", cost(3600, 40, gpus=1) | {"gpus": 1})
    assert (beside.gpu_hours, beside.core_hours) == (1, 0)


def test_a_core_is_rented_for_as_long_as_a_run_lasts_and_a_gpu_with_its_host():
    waited = price.run_price(CHECKED, "corpus", cost(3600, 0.2))
    assert waited.core_hours == 1 and (waited.usd_preemptible, waited.usd_on_demand) == (pytest.approx(0.01), pytest.approx(0.04))
    trained = price.run_price(CHECKED, "pretrain", cost(7200, 3, gpus=2))
    assert (trained.core_hours, trained.gpu_hours) == (0, 4)
    assert (trained.usd_preemptible, trained.usd_on_demand) == (pytest.approx(3), pytest.approx(10))
    assert trained.co2e_kg == pytest.approx(0.4 * trained.kwh)
    both = price.total([waited, trained])
    assert (both.seconds, both.usd_on_demand, (both * 2).kwh) == (10800, pytest.approx(10.04), 2 * (waited.kwh + trained.kwh))


def test_the_papers_bert_comes_out_of_its_own_watts_hours_and_prices():
    """Strubell et al. 2019, table 3: 64 V100 for 79 h."""
    raw = tiny_params()
    raw["energy"] = {"pue": 1.58, "watts_per_core": 1e-6, "watts_per_gib": 1e-6, "watts_per_gpu": 12041.51 / 64}
    raw["price"] |= {
        "kg_per_kwh": {"USA": 0.954 * price.KG_PER_LB}, "gpu_hour": {"on_demand": 2.48, "preemptible": 0.74, "source": "the paper"},
    }  # fmt: skip
    checked, theirs = params.check(raw), PUBLISHED["cost"]["rows"]["BERT base"]
    kwh = energy_kwh(checked.energy, 79 * 3600, 79 * 3600, 0, 64)  # a core beside them that hardly counts
    bert = price.run_price(checked, "pretrain", {"seconds": 79 * 3600, "kwh": kwh, "memory_mib": 0})
    assert bert.gpu_hours == 64 * 79
    assert bert.co2e_lb == pytest.approx(theirs["co2e_lb"], rel=0.005) and bert.kwh == pytest.approx(theirs["kwh"], rel=0.005)
    assert bert.usd_preemptible == pytest.approx(theirs["usd_preemptible"], rel=0.005)
    assert bert.usd_on_demand == pytest.approx(theirs["usd_on_demand"], rel=0.005)
    [own, together] = tables.price_tags(checked, {("pretrain", "bert"): {"cost": {"seconds": 79 * 3600, "kwh": kwh}}}, PUBLISHED["cost"])[
        -2:
    ]
    assert (own["model"], own["hardware"], together["model"]) == ("bert, ours", "GPU x 64.0", "all stages here")
    assert own["watts"] == pytest.approx(theirs["watts"]) and own["hours"] == 79
    three = {"cost": {"seconds": 3 * 79 * 3600, "kwh": 3 * kwh}, "seeds": {"1": {}, "2": {}, "3": {}}}
    [mean, together] = tables.price_tags(checked, {("pretrain", "bert"): three}, PUBLISHED["cost"])[-2:]
    figures = [key for key, value in own.items() if isinstance(value, float)]
    assert [mean[key] for key in figures] == pytest.approx([own[key] for key in figures]), "one training with one seed, as the papers' rows"
    assert together["hours"] == 3 * 79


@pytest.mark.parametrize(("change", "said"), [
    ({"country": "DEU"}, "country DEU has no intensity; add its kg CO2e per kWh to kg_per_kwh (there are: USA, FRA)"),
    ({"country": "Germany"}, "pattern"),
    ({"core_hour": {"on_demand": 0.01, "preemptible": 0.04, "source": "x"}}, "are they swapped?"),
    ({"kg_per_kwh": {"USA": 369.0}}, "less than or equal to 5"),
])  # fmt: skip
def test_what_can_not_be_is_a_clear_line(change, said):
    raw = tiny_params()["price"] | change
    with pytest.raises(ValidationError) as caught:
        params.Price.model_validate(raw)
    assert said in str(caught.value)


def test_a_grid_changes_what_is_priced_and_makes_nothing_stale_but_the_report(project):
    before, raw = {(own.stage, own.name): own.settings for own in registry.entries(CHECKED)}, copy.deepcopy(tiny_params())
    raw["price"]["country"] = "FRA"
    france = params.check(raw)
    after = {(own.stage, own.name): own.settings for own in registry.entries(france)}
    assert [key for key in after if after[key] != before[key]] == [("report", "all")]
    ours = price.run_price(france, "corpus", cost(100, 1)).co2e_kg
    assert ours == pytest.approx(price.run_price(CHECKED, "corpus", cost(100, 1)).co2e_kg / 8)


@pytest.mark.parametrize(("value", "shown"), [
    (656347, "656,000"), (1423.4, "1,420"), (12.34, "12.3"), (0.000523, "0.000523"), (3.14e-7, "3.1e-07"), (0, "0"), (999.9, "1,000"),
])  # fmt: skip
def test_numbers_have_three_digits(value, shown):
    assert price.short(value) == shown
