"""What all has cost so far: results, the ledger's runs that failed or were stopped, tables of studies, counters of energy."""

import csv
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components import params
from components.comparison import price
from components.core import storage, tracking
from components.core.errors import SesameError
from components.stages import registry
from components.stages.cost import energy_kwh
from pipelines.execution import graph, ledger
from pipelines.money import energy, price_tags, usage
from tests.conftest import tiny_params
from tests.pipelines.conftest import ran

COST = {"seconds": 100.0, "tokens": 1000, "flops": 9e6, "kwh": 0.001, "memory_mib": 512}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A ledger without runs: MLflow takes seconds to make its tables."""
    folder, before = tmp_path_factory.mktemp("ledger"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        tracking.client.cache_clear()
        tracking.client()
    assert Path.cwd() == before
    return folder / "mlflow.db"


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder where nothing has run, and whose ledger is not there yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SESAME_TRACKING", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    tracking.client.cache_clear()
    yield tmp_path
    tracking.client.cache_clear()


@pytest.fixture
def book(empty, made) -> Path:
    """The same with a ledger."""
    shutil.copy(made, empty)
    return empty


def recorded(group: str, name: str, cost: dict | None, status: str = "FINISHED", seconds: float = 0.0, flow: str | None = None) -> None:
    """A run of a stage in the ledger, as `stage.main` leaves it, that took so long by its start and end."""
    client = tracking.client()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
    tags = {"stage": group, "name": name} | ({tracking.FLOW: flow} if flow else {})
    run = client.create_run(experiment, start_time=1000, run_name=f"{group}@{name}", tags=tags)
    if cost:
        tracking.Run(run.info.run_id).log({"cost": cost})
    if status != "RUNNING":
        client.set_terminated(run.info.run_id, status, end_time=1000 + int(1000 * seconds))


def test_failed_stopped_and_repeated_runs_are_in_the_sum_and_each_result_once(empty, made):
    raw = tiny_params()
    all_params = params.check(raw)
    ran(empty, raw, "pretrain@bert", COST)
    ran(empty, raw, "corpus@base", COST | {"seconds": 7.0})  # made elsewhere: the ledger does not know of it
    book = usage.read(all_params)
    assert {(run.stage, run.state) for run in book.runs} == {("pretrain@bert", "elsewhere"), ("corpus@base", "elsewhere")}
    assert "mlflow.db is not there" in book.missing and not (empty / "mlflow.db").exists()

    shutil.copy(made, empty)
    recorded("pretrain", "bert", COST | {"seconds": 50.0, "kwh": 0.0005})  # the first try, with other params
    recorded("pretrain", "bert", COST)  # that of the result
    recorded("pretrain", "gpt", None, "FAILED", seconds=20)
    recorded("finetune", "bert-same", None, "KILLED", seconds=30)
    recorded("search", "bert-same", None, "RUNNING")
    client = tracking.client()
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
    client.set_terminated(
        client.create_run(experiment, tags={"stage": "finetune", "seed": "1"}).info.run_id
    )  # a seed is in its stage's run
    book = usage.read(all_params)
    found = {(run.stage, run.state, run.price.seconds): run.price.kwh for run in book.runs}
    kwh = energy_kwh(all_params.energy, 30, 30, 0, 0)
    assert found == {
        ("pretrain@bert", "FINISHED", 50.0): 0.0005,
        ("pretrain@bert", "FINISHED", 100.0): 0.001,
        ("pretrain@gpt", "FAILED", 20.0): pytest.approx(0.0015 / 150 * 20),  # at the power of those that finished
        ("finetune@bert-same", "KILLED", 30.0): pytest.approx(kwh),  # none did: a core
        ("corpus@base", "elsewhere", 7.0): 0.001,
    }
    assert (book.missing, book.without_end, len(book.runs)) == ("", 1, 5)
    assert price.total(run.price for run in book.runs).seconds == 207


def attempt(run_id: str | None) -> str:
    """A try of a pre-training that is stopped, a new one or one that goes on; the id of its run."""
    tags = {"stage": "pretrain", "name": "gpt"}
    with pytest.raises(KeyboardInterrupt), tracking.start("pretrain@gpt", tags, {}, run_id=run_id) as run:
        raise KeyboardInterrupt
    return run.id


def test_the_days_between_two_attempts_cost_nothing(book, monkeypatch):
    now, day, client = 1_000_000.0, 86_400, tracking.client()
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now)
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id
    tags = {"stage": "pretrain", "name": "gpt"}
    first = client.create_run(experiment, run_name="pretrain@gpt", tags=tags).info.run_id
    now += 20
    tracking.Run(first).log({"loss": 2.0}, step=1)  # the last that is heard of it: it is killed hard
    now += 3 * day
    with pytest.raises(KeyboardInterrupt), tracking.start("pretrain@gpt", {}, {}, run_id=first):
        now += 30
        raise KeyboardInterrupt
    now += day
    with pytest.raises(KeyboardInterrupt), tracking.start("pretrain@gpt", {}, {}, run_id=first):
        found = usage.read(params.check(tiny_params()))
        assert (found.without_end, found.runs) == (1, []), "it is at work, whenever its last attempt ended"
        now += 50
        raise KeyboardInterrupt
    [run] = usage.read(params.check(tiny_params())).runs
    assert (run.state, run.price.seconds) == ("KILLED", pytest.approx(20 + 30 + 50, abs=0.1))


def test_a_clock_that_is_set_back_takes_nothing_off_the_sum(book, monkeypatch):
    now = uptime = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: uptime)
    tags = {"stage": "pretrain", "name": "gpt"}
    with pytest.raises(KeyboardInterrupt), tracking.start("pretrain@gpt", tags, {}) as run:
        uptime, now = uptime + 20, now - 5 * 3600
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), tracking.start("pretrain@gpt", tags, {}, run_id=run.id):
        uptime, now = uptime + 30, now + 30
        raise KeyboardInterrupt
    [found] = usage.read(params.check(tiny_params())).runs
    assert (found.state, found.price.seconds) == ("KILLED", pytest.approx(20 + 30, abs=0.1))


def test_the_hashes_belong_to_the_try_that_made_the_data(book):
    """Of two tries the second may have begun earlier, where the clock was set back."""
    Path("dvc.lock").write_text("schema: '2.0'\nstages:\n  corpus@base:\n    cmd: x\n    outs: [{path: data, md5: abc, size: 1}]\n")
    client, stage = tracking.client(), graph.Stage("corpus@base", (), "", graph.Meta(), cmd="x", outs=("data",))
    with tracking.start("flow", {}, {}) as flow:
        experiment = client.get_run(flow.id).info.experiment_id
        for begun, status in ((9_000, "FAILED"), (1_000, "FINISHED")):
            tries = client.create_run(experiment, start_time=begun, run_name=stage.name, tags={"mlflow.parentRunId": flow.id})
            client.set_terminated(tries.info.run_id, status, end_time=begun + 500)
        kept = ledger.Ledger(flow)
        kept.record(stage)
    made = client.get_run(kept.stages["corpus@base"])
    assert (made.info.status, made.data.tags["data.data"]) == ("FINISHED", "abc")


def test_a_killed_flow_ends_when_nobody_knows_and_not_when_the_next_one_begins(book):
    client = tracking.client()
    with ledger.opened("flow", "id", []) as flow:
        left = flow._run.id
        recorded("pretrain", "gpt", None, "RUNNING", flow=left)
    client.update_run(left, status="RUNNING")
    ledger.OPEN.write_text(left)
    with ledger.opened("next", "id", []):
        pass
    found = usage.read(params.check(tiny_params()))
    assert (found.without_end, found.runs) == (1, []), "since 1970 it would be"
    statuses = [run.info.status for run in client.search_runs([client.get_run(left).info.experiment_id])]
    assert sorted(statuses) == ["FINISHED", "KILLED", "KILLED"]


def test_a_training_whose_run_was_deleted_goes_on_in_a_new_one(book, capsys):
    first = attempt(None)
    tracking.client().delete_run(first)
    second = attempt(first)
    assert second not in (first, None) and attempt("0" * 32) not in (first, second, None), "as of another ledger's"
    assert "not usable" not in capsys.readouterr().err


def test_no_ledger_is_written_beside_a_folder_with_a_question_mark(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "which lab?"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SESAME_TRACKING", "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracking.client.cache_clear()
    assert attempt(None) is None
    said = capsys.readouterr().err
    assert "SQLAlchemy reads a path up to its `?`; rename the folder" in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [folder]
    tracking.client.cache_clear()


def test_what_the_project_has_cost_is_said_with_what_it_is_beside(book, capsys):
    recorded("pretrain", "bert", COST)
    recorded("pretrain", "bert", None, "FAILED", seconds=50)
    recorded("encode", "tiny", None, "KILLED", seconds=10)
    price_tags.everything(params.check(tiny_params()))
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in said.splitlines()[2:5]] == [["pretrain", "2", "1"], ["encode", "1", "1"], ["all", "3", "2"]]
    assert "of this 1 run failed: 50 s, 0.000500 kWh" in said and "of this 1 run stopped: 10 s" in said
    assert (
        "air travel" in said
        and "estimated, not measured" in said
        and ("energy of whole flows was not measured") in said
    )


def test_flows_that_were_measured_stand_beside_the_estimates_of_their_stages(book):
    with ledger.opened("flow", "id", []) as flow:
        recorded("pretrain", "bert", COST, flow=flow._run.id)
        recorded("pretrain", "gpt", COST, flow="another")
        flow.measured({energy.CPU: 0.004, energy.GPU: 0.02})
    found = usage.read(params.check(tiny_params()))
    assert found.flows == [{"cpu": 0.004, "gpu": 0.02, "estimated": 0.001}]
    assert price_tags._measured(found) == (
        "measured by the energy counters of the whole machine: CPUs and memory 0.00400 kWh in 1 "
        "flow, GPUs 0.0200 kWh in "
        "1 flow; estimated for the same stages: 0.00100 kWh"
    )


def table(folder: Path, study: str, rows: list[dict]) -> None:
    path = folder / f"data/report/studies/{study}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_study_whose_trainings_are_not_here_is_priced_by_its_table(empty, made):
    raw = tiny_params()
    study = raw["studies"]["rate"]
    study["variants"] |= {"further": {"start": "15", "budget": {"steps": 3}}, "again": {"start": "15", "recipe": {"epochs": 1}}}
    figures = {"15": (100, 10, 8e6), "40": (120, 10, 8e6), "further": (160, 20, 12e6), "again": (100, 5, 8e6)}
    row = {"milestone": "last", "n": 2}
    table(empty, "rate", [
        row | {"variant": name, "seconds": own, "finetune_seconds": tuned, "flops": flops} for name, (own, tuned, flops) in figures.items()
    ])  # fmt: skip
    tried = {"15": {"factor": 1, "losses": {"0.5": 4.0, "1": 3.9}, "seconds": 90.0, "flops": 7e6}}
    storage.write_json(empty / "data/report/studies/rate.json", {"learning_rates": tried})
    all_params = params.check(raw)
    found = {run.stage: (run.price.seconds, run.price.flops) for run in usage.read(all_params).runs}
    assert found == {
        "rate_trial@rate-15": (90, 7e6),  # both rates together
        "variant@rate-15": (200, 16e6), "variant@rate-40": (240, 16e6), "further@rate-further": (120, 8e6),  # less what it began with
        "transfer@rate-15": (20, 0), "transfer@rate-40": (20, 0), "transfer@rate-further": (40, 0), "transfer@rate-again": (10, 0),
    }  # fmt: skip
    shutil.copy(made, empty)
    recorded("variant", "rate-40-1", COST)  # what the ledger has of a variant counts, and not its rows as well
    assert {run.stage for run in usage.read(all_params).runs if "40" in run.stage} == {"variant@rate-40-1"}


def test_what_more_tokens_bring_is_told_by_the_study_that_has_them(empty):
    raw = tiny_params()
    assert "no study trains bert unchanged with `milestones`" in price_tags.gain(params.check(raw), "bert", 1e6, 1e7)
    raw["studies"]["rate"] |= {"budget": {"tokens": 3_000_000}, "milestones": [100_000, 300_000, 1_000_000]}
    all_params = params.check(raw)
    assert "the study rate was not run; run `sesame study rate`" in price_tags.gain(all_params, "bert", 1e6, 1e7)
    row = {"variant": "15", "n": 3, "loss_std": 0.001}
    points = [row | {"tokens": own, "loss": 3 + 1.2 * (own / 1e6) ** -0.3} for own in (1e5, 3e5, 1e6, 3e6)]
    others = [own | {"variant": "40", "loss": 9.0} for own in points]
    table(empty, "rate", points + others)
    settings = registry.entry(all_params, "study", "rate").settings
    storage.write_json(empty / "data/report/studies/rate.json", {"settings": settings})
    said = price_tags.gain(all_params, "bert", 3e6, 3e7)
    assert "by the curve of study rate (4 budgets up to 3,000,000 tokens) the loss goes from 3.86 [" in said
    assert "to 3.43 [" in said and "0.43 [" in said and "lower limit is 3.0" in said
    table(empty, "rate", points[:3])
    assert "needs 4 budgets or more" in price_tags.gain(all_params, "bert", 3e6, 3e7)
    raw["models"]["bert"]["batch_size"] += 1
    said = price_tags.gain(params.check(raw), "bert", 3e6, 3e7)
    assert "its loss can't be predicted: the study rate was not run with the settings that are declared now" in said


ZONES = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "psys"}


def test_counters_of_packages_and_memory_are_read_and_begin_again(tmp_path, monkeypatch):
    """The files as Linux has them, under a folder of our own."""
    for zone, name in ZONES.items():
        (tmp_path / zone).mkdir()
        for file, value in (("name", name), ("energy_uj", "900000000"), ("max_energy_range_uj", "1000000000")):
            (tmp_path / zone / file).write_text(f"{value}\n")
    (tmp_path / "intel-rapl:2").mkdir()  # of which nothing can be read
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    monkeypatch.setattr(energy, "NVML", "libno-such.so")
    with energy.running() as read:
        (tmp_path / "intel-rapl:0/energy_uj").write_text("960000000\n")  # 60 J
        (tmp_path / "intel-rapl:0:1/energy_uj").write_text("20000000\n")  # 120 J: it began again
        (tmp_path / "intel-rapl:0:0/energy_uj").write_text("950000000\n")  # in the package already, as are all in psys
        (tmp_path / "intel-rapl:1/energy_uj").write_text("990000000\n")
        assert read.kwh(pue=2.0) == {"cpu": pytest.approx(2 * 180 / 3.6e6)}
        (tmp_path / "intel-rapl:0/energy_uj").unlink()  # and what was read stays
        assert read.kwh(pue=2.0) == {"cpu": pytest.approx(2 * 180 / 3.6e6)}
    assert energy.why_not() == ""


def test_without_counters_nothing_is_measured_and_it_is_said_why(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    monkeypatch.setattr(energy, "NVML", "libno-such.so")
    with energy.running() as read:
        assert read.kwh(1.58) == {}
    assert energy.why_not() == f"no RAPL in {tmp_path}, and no NVIDIA GPU whose energy is counted"
    (tmp_path / "intel-rapl:0").mkdir()
    assert "only root may read RAPL" in energy.why_not()


STAND_IN = """
static unsigned long long joules[2];
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = index < 2 ? &joules[index] : 0; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy) {
    if (!handle) return 3;  /* not supported */
    *energy = *(unsigned long long *)handle += 1000; return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_interface_of_nvml_is_called_as_its_header_has_it(tmp_path, monkeypatch):
    """Against a library with its signatures: each GPU uses a joule between two readings, and the third counts nothing."""
    (tmp_path / "nvml.c").write_text(STAND_IN)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "nvml.so", tmp_path / "nvml.c"], check=True)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    monkeypatch.setattr(energy, "NVML", str(tmp_path / "nvml.so"))
    with energy.running() as read:
        assert read.kwh(pue=1.0) == {"gpu": pytest.approx(2 / 3.6e6)}
        assert read.kwh(pue=1.0) == {"gpu": pytest.approx(4 / 3.6e6)}


def test_a_forecast_is_of_one_pre_training_where_a_stage_has_several(monkeypatch, capsys):
    checked, said = params.check(tiny_params()), []
    for seeds in (1, 3):
        measured = {
            ("pretrain", "bert"): {
                "tokens": 1000, "cost": COST | {key: seeds * COST[key] for key in ("seconds", "tokens", "kwh")},
            },
            ("encode", "tiny"): {"train": {"tokens": 5000}},
        }  # fmt: skip
        monkeypatch.setattr(price_tags, "last_metrics", lambda stage, name, _, known=measured: known[stage, name])
        price_tags._forecast(checked, "bert", None, 10)
        said.append(capsys.readouterr().out.split(", costs")[1].split(" by the curve")[0])
    assert said[0] == said[1] and "at the measured 10.0 tokens per second" in said[0], said


def test_what_has_no_figures_is_told_from_what_never_has_any(empty, capsys):
    price_tags._print_gaps(params.check(tiny_params()), ["resolve", "mix_inputs@a", "study_inputs@rate", "pretrain@bert"], {}, ())
    said = capsys.readouterr().out
    assert "1 stage left out, never run or without results here: pretrain@bert" in " ".join(said.split()), said


def test_a_run_of_another_model_of_the_same_name_is_no_price_of_this_one(empty, capsys):
    """The last report has figures of all models that were there; one may have other settings by now."""
    raw = tiny_params()
    before = params.check(raw)
    settings = json.loads(json.dumps(registry.entry(before, "pretrain", "bert").settings))
    ran(empty, raw, "pretrain@bert", COST, tokens=1000, settings=settings)
    assert set(price_tags._prices(before)) == {"pretrain@bert"}
    raw["models"]["bert"]["batch_size"] = 16
    changed = params.check(raw)
    assert not price_tags._prices(changed)
    with pytest.raises(SesameError, match="bert was not pre-trained here yet, so its speed is not known"):
        price_tags._forecast(changed, "bert", 5000, None)
