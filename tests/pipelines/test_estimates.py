"""What a run takes is told before it runs, and what can't fit is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from components import params
from components.core import tracking
from components.core.errors import SesameError
from components.pretrain import sizing
from components.stages import cost
from components.stages.outputs import METRICS
from pipelines.execution import graph, sources
from pipelines.money import cards, estimates, forecast, trainings
from pipelines.money.estimates import ALIKE, COUNTED, ELSEWHERE, HERE, Estimate
from pipelines.money.forecast import Forecast
from tests.conftest import tiny_params
from tests.pipelines.conftest import ROOT, dvc, ran

GB = 2**30


def changed(**architecture) -> params.Params:
    """The tiny project with another model `bert`."""
    raw = tiny_params()
    raw["models"]["bert"]["architecture"] |= architecture
    return params.check(raw)


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    """A folder where nothing has run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["bert", "gpt", "elmo"])
def test_a_count_without_weights_is_that_of_the_training(name):
    told = json.loads((ROOT / METRICS).read_text())[f"pretrain@{name}"]
    all_params = params.load(ROOT / "params.yaml")
    size = sizing.size(all_params.models[name], all_params.tokenizers["english"].vocab_size)
    assert size.parameters == told["parameters"]
    assert size.flops == pytest.approx(told["cost"]["flops"] / told["cost"]["tokens"], rel=0.15)  # the training's own text makes other rows


def test_every_variant_of_the_studies_is_counted():
    """Without weights, whatever the family and the objective: of one Transformer as many FLOPs, but for heads and questions."""
    all_params = params.load(ROOT / "params.yaml")
    flops = {}
    for name in ("family", "electra", "inputs"):
        study = all_params.studies[name]
        for variant in study.variants:
            flops[variant] = sizing.size(params.varied(all_params.models, study, variant, 1), 2048).flops
    assert all(flops["bert"] * 0.8 < flops[name] < flops["bert"] * 1.2 for name in ("roberta", "whole_word", "albert", "doc_sentences"))
    assert flops["electra"] > 1.1 * flops["bert"] and flops["all_tokens_mlm"] > 1.4 * flops["electra"] and flops["deberta"] > flops["bert"]
    assert flops["bert"] < flops["xlnet"] < 1.6 * flops["bert"], "of a row's tokens few are asked in a second stream"
    assert flops["canine"] > 1.5 * flops["bert"]
    bert = all_params.models["bert"]
    often = bert.model_copy(update={"objective": bert.objective.model_copy(update={"mlm_probability": 0.9})})
    last_layer = "the last layer is computed for the tokens that are predicted"
    assert sizing.size(often, 2048).flops > 1.25 * sizing.size(bert, 2048).flops, last_layer


@pytest.mark.long
def test_every_objective_of_the_studies_is_counted():
    """One variant of each that asks something else of another architecture."""
    all_params, asked = params.load(ROOT / "params.yaml"), {}
    for member in params.members(all_params.studies):
        block = params.varied(all_params.models, all_params.studies[member.study], member.variant, member.seed)
        asked.setdefault((block.architecture.name, block.objective.model_dump_json()), block)
    sizes = [sizing.size(block, 2048) for block in asked.values()]
    assert len(sizes) > 30 and all(size.parameters > 1e5 and size.flops > 6e5 and size.activation_bytes > 0 for size in sizes)


def test_micro_batches_are_those_of_all_devices(empty):
    """`accumulate: 8` on eight devices is a micro-batch on each."""
    raw = tiny_params()
    raw["models"]["bert"] |= {"batch_size": 64, "trainer": {"accumulate": 8}, "run": {"devices": 8, "accelerator": "cpu"}}
    assert trainings.of("pretrain@bert", params.check(raw)).rows == 8
    raw["models"]["bert"]["trainer"]["accumulate"] = 1
    assert trainings.of("pretrain@bert", params.check(raw)).rows == 8


def test_steps_of_phases_have_their_own_tokens(empty):
    """Nine tenths of the steps at a quarter of the length (Devlin et al. 2019) read a third of the tokens."""
    raw = tiny_params()
    raw["models"]["bert"] |= {"budget": {"steps": 1000}, "batch_size": 16}
    longest = params.check(raw).models["bert"].architecture.max_length
    plain = trainings.of("pretrain@bert", params.check(raw)).step_tokens
    raw["models"]["bert"]["phases"] = [{"share": 0.9, "max_length": longest // 4}]
    shorter = trainings.of("pretrain@bert", params.check(raw)).step_tokens
    assert plain == 16 * longest and shorter == pytest.approx((0.9 / 4 + 0.1) * plain)


def test_cards_that_are_not_here():
    """BERT-base: activations as in a paper, more rows in more memory, an `accumulate` that divides the batch, a faster card sooner."""
    raw = YAML(typ="safe").load(ROOT / "params.yaml")
    raw["models"]["base"] = {
        "encoding": "english", "architecture": {"name": "encoder", "size": "base"}, "objective": {"name": "mlm", "next_sentence": False},
        "optimizer": {"learning_rate": 1e-4}, "budget": {"tokens": 10**9}, "batch_size": 256,
    }  # fmt: skip
    checked = params.check(raw)
    layers = [sizing.size(checked.models["base"].model_copy(update={
        "architecture": checked.models["base"].architecture.model_copy(update={"num_layers": number})}), 30522).activation_bytes
        for number in (4, 12)]  # fmt: skip
    # Korthikanti et al. 2022, equation 1, in 16 bits and without attention's matrices: 34 bytes for each token and unit of a layer
    assert (layers[1] - layers[0]) / 8 / 2 == pytest.approx(34 * 512 * 768, rel=0.15)
    table = {row[1]: row for row in cards.rows(["pretrain@base", "tokenizer@english"], checked)}
    fits = [int(table[name][2].replace(",", "")) for name in ("T4", "RTX 4090", "A100 40", "A100 80", "H200")]
    assert fits == sorted(fits) and fits[0] > 20 and table["A100 80"][2] == table["H100"][2]
    assert all(256 % int(row[3]) == 0 and 256 / int(row[3]) <= int(row[2].replace(",", "")) for row in table.values())
    assert {row[5] for row in table.values()} <= {"products", "memory"}
    assert len({table[name][4] for name in ("T4", "RTX 4090", "A100 80", "H100")}) == 4
    tiny = {row[1]: row for row in cards.rows(["pretrain@gpt"], checked)}
    assert tiny["H200"][5] == "starts of kernels", "of the default's model"
    with pytest.raises(SesameError, match="--cards: no stage of the plan trains on text"):
        cards.rows(["tokenizer@english"], checked)


def test_cards_wait_for_what_they_exchange():
    """In a ring each card sends 2 (n - 1) / n of the gradients (Patarasuk and Yuan 2009)."""
    card = cards.CARDS["A100 80"]
    assert cards.exchange(1e9, 8, 2, card) == pytest.approx(2 * 7 / 8 * 4e9 / (0.8 * 300e9))
    assert cards.exchange(1e9, 1, 2, card) == 0 and cards.exchange(1e9, 8, 12, card) == pytest.approx(6 * cards.exchange(1e9, 8, 2, card))
    raw = YAML(typ="safe").load(ROOT / "params.yaml")
    raw["models"]["base"] = {
        "encoding": "english", "architecture": {"name": "encoder", "size": "base"}, "objective": {"name": "mlm", "next_sentence": False},
        "optimizer": {"learning_rate": 1e-4}, "budget": {"tokens": 10**9}, "batch_size": 8, "trainer": {"accumulate": 8},
        "run": {"devices": 8},
    }  # fmt: skip
    limits = {row[1]: row[5] for row in cards.rows(["pretrain@base"], params.check(raw))}
    assert limits["RTX 4090"] == "exchange of gradients" != limits["H100"], "one row on each card"


def test_layers_are_added_up(empty):
    one, five = (sizing.size(changed(num_layers=n).models["bert"], 400) for n in (1, 5))
    bert = changed(num_layers=5).models["bert"]
    counted = sizing._counted(bert.model_dump_json(), 400, 5, bert.objective.row_length(bert.architecture.max_length))
    assert (five.parameters, five.flops, five.activation_bytes, five.largest_bytes) == pytest.approx(counted[:4])
    assert one.parameters < five.parameters


@pytest.mark.parametrize(
    "too_large",
    [{"hidden_size": 10**9}, {"hidden_size": 10**7}, {"num_layers": 10**4, "hidden_size": 4096}, {"max_length": 10**9}],
)
def test_a_model_without_bounds_is_counted_at_once_and_refused(empty, too_large):
    estimate = estimates.of(["pretrain@bert"], changed(**too_large))["pretrain@bert"]
    stage = graph.Stage("pretrain@bert", (), "", graph.Meta())
    too_much = r"needs [\d.,]+ .iB of memory or more, and this machine has|takes about [\d,.e+]+ years"
    with pytest.raises(SesameError, match=rf"^pretrain@bert ({too_much})"):
        Forecast([stage], {stage.name: "to run"}, {stage.name: estimate}, 0, 2).check()


def test_what_fits_is_not_refused(empty):
    found = estimates.of(["pretrain@bert", "finetune@bert-same"], params.check(tiny_params()))
    assert {estimate.source for estimate in found.values()} == {COUNTED}
    assert all(0.3 * GB < estimate.memory < 2 * GB and 5 < estimate.seconds < 100 for estimate in found.values())


def test_a_past_run_counts_in_proportion(empty):
    raw = tiny_params()
    raw["models"]["bert"]["budget"] = {"tokens": 1000}
    ran(empty, raw, "pretrain@bert", {"seconds": 50.0, "tokens": 1000, "flops": 9e6}, steps=10, parameters=1_000_000)
    ran(empty, raw, "finetune@bert-same", {"seconds": 40.0, "tokens": 77, "flops": 9e6}, memory_mib=900)
    ran(empty, raw, "corpus@base", {"seconds": 7.0, "tokens": 0, "flops": 0, "memory_mib": 300})
    names = ["pretrain@bert", "finetune@bert-same", "corpus@base"]

    def of() -> list[tuple]:
        return [(found.source, pytest.approx(found.seconds)) for found in estimates.of(names, params.check(raw)).values()]

    assert of() == [(ELSEWHERE, 50), (ELSEWHERE, 40), (ELSEWHERE, 7)]
    found = estimates.of(names, params.check(raw))
    assert [found[name].memory for name in names[1:]] == [900 * 2**20, 300 * 2**20]
    assert found["pretrain@bert"].disk == 100 + 5_000_000 + 12 * 1_000_000
    raw["models"]["bert"]["budget"] = {"steps": 40}
    raw["finetune"]["seeds"] = [1]
    assert of() == [(ELSEWHERE, 200), (ELSEWHERE, 20), (ELSEWHERE, 7)]
    raw["models"]["bert"]["budget"] = {"flops": 27e6}
    assert of()[0] == (ELSEWHERE, 150)
    raw["models"]["bert"]["budget"] = {"minutes": 3}
    assert of()[0] == (ELSEWHERE, 180 + estimates.START)


def test_a_wider_model_comes_closer_to_the_matmuls_speed(empty):
    """Its time grows with the square root of its FLOPs, until it has half of the matmul's speed."""
    raw = tiny_params()
    told = {"peak_share": 0.01, "precision": "bf16-mixed", "cost": {"tokens": 100, "flops": 4e8}}
    past = {"pretrain@bert": told, "finetune@bert-same": told | {"peak_share": 0.9}, "pretrain@gpt": told | {"precision": "32-true"}}
    shares = [estimates._share("bf16-mixed", past, flops) for flops in (4e6, 4e7, 4e12)]
    assert shares == pytest.approx([0.01, 0.01 * 10**0.5, 0.5])
    raw["models"]["bert"] |= {"budget": {"tokens": 10**9}, "trainer": {"precision": "32-true"}}
    narrow, wide = (
        estimates.of(["pretrain@bert"], params.check(raw | {"models": raw["models"] | {"bert": raw["models"]["bert"] | {
            "architecture": raw["models"]["bert"]["architecture"] | {"hidden_size": width}}}}))["pretrain@bert"].seconds
        for width in (32, 128)
    )  # fmt: skip
    assert narrow < wide < 6 * narrow


def test_the_past_of_another_model_says_nothing(empty):
    raw = tiny_params()
    ran(empty, raw, "pretrain@bert", {"seconds": 5e5, "tokens": 1000, "flops": 9e6}, steps=10)
    ran(empty, raw, "finetune@bert-same", {"seconds": 5e5, "tokens": 77, "flops": 9e6})
    raw["models"]["bert"]["architecture"]["hidden_size"] = 32
    found = estimates.of(["pretrain@bert", "finetune@bert-same"], params.check(raw))
    assert all(estimate.source == COUNTED and estimate.seconds < 1000 for estimate in found.values())


def test_models_that_are_asked_take_what_others_of_their_family_took(empty):
    raw = tiny_params()
    raw["evaluations"] = {"pairs": {"kind": "minimal_pairs", "corpus": "base"}, "bits": {"kind": "bits_per_byte", "corpus": "base"}}
    raw["models"]["other"] = {**raw["models"]["bert"], "prompts": []}
    raw["evaluate"] = {"models": ["bert", "other", "gpt"], "evaluations": ["pairs", "bits"]}
    study = raw["studies"]["rate"]
    plot = {"x": "tokens", "y": ["pairs"]}
    raw["studies"]["asked"] = {**study, "tasks": [], "recipe": None, "evaluations": ["pairs"], "expects": [], "plot": plot}
    ran(empty, raw, "evaluate@bert-pairs", {"seconds": 30.0, "memory_mib": 300})
    ran(empty, raw, "evaluate@bert-bits", {"seconds": 3.0})
    ran(empty, raw, "transfer@asked-15-1", {"seconds": 20.0})
    ran(empty, raw, "transfer@asked-15-2", {"seconds": 24.0})
    names = ["evaluate@bert-pairs", "evaluate@other-pairs", "evaluate@gpt-pairs", "transfer@asked-40-1"]
    found = estimates.of(names, params.check(raw)).values()
    assert [(each.seconds, each.source) for each in found] == [(30, ELSEWHERE), (30, ALIKE), (None, ""), (22, ALIKE)]
    raw["evaluations"]["mine"] = raw["evaluations"]["pairs"]
    raw["studies"]["own"] = {**raw["studies"]["asked"], "evaluations": ["mine"], "plot": {"x": "tokens", "y": ["mine"]}}
    assert estimates.of(["transfer@own-15-1"], params.check(raw))["transfer@own-15-1"] == Estimate(22, source=ALIKE), "of its kind"
    raw["models"]["other"]["pretrainings"] = 2  # twice as many to ask
    assert estimates.of(names, params.check(raw))["evaluate@other-pairs"] == Estimate()


def test_unknown_is_said(empty):
    assert estimates.of(["corpus@base"], params.check(tiny_params())) == {"corpus@base": Estimate()}


def test_the_ledger_is_asked_for_the_same_work(empty, monkeypatch):
    monkeypatch.setenv("SESAME_TRACKING", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{empty}/mlflow.db")
    raw = tiny_params()
    raw["models"]["bert"]["budget"] = {"tokens": 1000}
    ran(empty, raw, "pretrain@bert", {"seconds": 50.0, "tokens": 1000, "flops": 9e6}, steps=10)
    tracking.client.cache_clear()
    for seconds, tokens in ((33.0, 1000), (44.0, 1000), (2.0, 50)):
        with tracking.start("pretrain@bert", {}, {}) as run:
            run.log({"cost": {"seconds": seconds, "tokens": tokens, "flops": 9000 * tokens}})
    told = estimates.of(["pretrain@bert"], params.check(raw))["pretrain@bert"]
    tracking.client.cache_clear()
    assert (told.seconds, told.source) == (44.0, HERE)  # the newest that read as many tokens; not the shorter one after it


def test_a_name_that_mlflow_refuses_loses_no_figure(empty, monkeypatch):
    """One of a data file, as a suite's: the run stayed RUNNING, without its cost."""
    monkeypatch.setenv("SESAME_TRACKING", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{empty}/mlflow.db")
    tracking.client.cache_clear()
    with tracking.start("evaluate@gpt-regions", {}, {"suite (mod)": 1}) as run:
        run.log({"suites": {"center_embed (mod)": 4, "reflexives": 3}})
        run.log({"cost": {"seconds": 2.0}})
    there = tracking.client().get_run(run.id)
    tracking.client.cache_clear()
    assert there.info.status == "FINISHED" and there.data.params == {"suite _mod_": "1"}
    assert there.data.metrics == {"suites.center_embed _mod_": 4, "suites.reflexives": 3, "cost.seconds": 2}


def stage(name: str, *upstream: str, resource: str | None = None) -> graph.Stage:
    return graph.Stage(name, upstream, "", graph.Meta(resource=resource))


def test_wall_clock_is_that_of_the_flow():
    def seconds(jobs: int, resource: str | None = None, unchanged: tuple = ()) -> float:
        plan = [stage("a"), stage("b", "a", resource=resource), stage("c", "a", resource=resource), stage("d"), stage("e", "b", "c", "d")]
        takes = {"a": 10, "b": 20, "c": 5, "d": 8, "e": 1}
        states = {each.name: "unchanged" if each.name in unchanged else "to run" for each in plan}
        found = {name: Estimate(takes[name], GB) for name, state in states.items() if state == "to run"}
        return Forecast(plan, states, found, 0, jobs).seconds(["to run"])

    assert seconds(1) == 44
    assert seconds(2) == 31  # d beside a, c beside b
    assert seconds(2, resource="gpu") == 36  # b and c wait for each other
    assert seconds(2, unchanged=("a", "b")) == 9


def test_memory_is_that_of_the_heaviest_side_by_side():
    plan = [stage("a"), stage("b", resource="gpu"), stage("c", resource="gpu"), stage("d")]
    sizes = {"a": GB, "b": 5 * GB, "c": 4 * GB, "d": None}
    found = Forecast(plan, dict.fromkeys(sizes, "to run"), {name: Estimate(1.0, size) for name, size in sizes.items()}, 0, 2)
    assert found.memory == 6 * GB


def test_a_stage_leaves_what_the_next_estimate_reads():
    assert cost.measured(params.check(tiny_params()), {})["memory_mib"] > 10


def test_a_year_and_the_disk(monkeypatch):
    def check(**own) -> None:
        Forecast([stage("a")], {"a": "to run"}, {"a": Estimate(**own)}, 0, 2).check()

    check(seconds=300 * 86_400, disk=2**20)
    with pytest.raises(SesameError, match="a takes about 3.0 years .*lower its budget"):
        check(seconds=3 * forecast.YEAR, source=COUNTED)
    with pytest.raises(SesameError, match="write about 2,048 PiB|write about 2.0 EiB"):
        check(disk=2.0**61)
    with pytest.raises(SesameError, match="needs 100 GiB of memory or more, and the GPU has 80 GiB"):
        check(memory=100 * GB, gpu_memory=80 * GB)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (forecast.duration, {
            None: "?", 4.2: "4 s", 99: "99 s", 100: "1.7 min", 840: "14 min", 8000: "2.2 h", 4e5: "4.6 days", 1e12: "31,688 years",
            3.2e37: "1.0e+30 years",
        }),
        (forecast.amount, {None: "?", 0: "0 MiB", 650 * 2**20: "650 MiB", 1100 * 2**20: "1.1 GiB", 24 * GB: "24 GiB", 2.0**65: "32 EiB"}),
    ],
)  # fmt: skip
def test_figures_are_for_reading(said, shown):
    assert [said(value) for value in shown] == list(shown.values())


def test_files_to_fetch_are_counted_once(empty):
    all_params = params.load(ROOT / "params.yaml")
    names = ["corpus@general_en", "corpus@defined_en", "task@stsb", "align@en_fr", "pretrain@bert"]
    assert len(forecast._to_fetch(names, all_params)) == 4  # speeches and glosses of both corpora
    source = all_params.tasks["stsb"].train.source
    kept = empty / ".sesame/downloads" / source.sha256
    kept.mkdir(parents=True)
    (kept / f"{source.filename}.part").touch()
    assert len(forecast._to_fetch(names, all_params)) == 4
    (kept / source.filename).touch()
    assert len(forecast._to_fetch(names, all_params)) == 3


def test_the_files_of_a_list_of_word_pairs_are_counted_and_checked_again(empty):
    """Its blocks have a field `keys`, as a dictionary has a method: docs/spaces.md has such a list for its example."""
    raw = tiny_params()
    own = {
        part: {"source": {"kind": "url", "url": f"https://host/{part}.txt", "sha256": digit * 64}}
        for part, digit in (("train", "1"), ("test", "2"))
    }
    raw["alignments"]["mine"] = raw["alignments"]["again"] | {"dictionary": {"kind": "pairs"} | own}
    assert len(forecast._to_fetch(["align@mine"], params.check(raw))) == 2
    assert "align@mine" not in sources.unfixed(params.check(raw))
    own["test"]["source"] = {"kind": "files", "paths": ["pairs.txt"]}
    assert len(forecast._to_fetch(["align@mine"], params.check(raw))) == 1
    assert "align@mine" in sources.unfixed(params.check(raw))


CHAIN = """
  data: {cmd: echo 1 > data.out, outs: [data.out], deps: [raw.txt]}
  mid: {cmd: cat data.out > mid.out, deps: [data.out], outs: [mid.out]}
  end: {cmd: cat mid.out extra.txt > end.out, deps: [mid.out, extra.txt], outs: [end.out]}
  side: {cmd: echo > side.out, outs: [side.out]}
"""


def test_a_stage_behind_another_may_run(lab):
    lab.stages(CHAIN).write("raw.txt", "a").write("extra.txt", "a")
    dvc(lab, "repro", "-q")
    assert "4 stages, all unchanged" in lab.sesame("plan")
    lab.write("raw.txt", "b")
    output = lab.sesame("plan")
    states = {line.split()[0]: " ".join(line.split()[1:3]) for line in output.splitlines()[1:5]}
    assert states == {"data": "to run", "mid": "may run", "end": "may run", "side": "unchanged"}
    assert "1 stage to run" in output and "2 may run, if their inputs change" in output
    lab.write("extra.txt", "b")
    assert "2 stages to run" in lab.sesame("plan")


def test_what_an_earlier_run_has_left_takes_no_time(lab):
    """A value that is taken back: the whole chain comes from the cache, and a run does what the plan says."""
    lab.stages(CHAIN).write("raw.txt", "a").write("extra.txt", "a")
    dvc(lab, "repro", "-q")
    lab.write("raw.txt", "b")
    lab.stages(CHAIN.replace("echo 1", "cat raw.txt"))
    dvc(lab, "repro", "-q")
    lab.stages(CHAIN)
    lab.write("raw.txt", "a")

    def states() -> dict[str, str]:
        lines = (line.split("  ") for line in lab.sesame("plan").splitlines()[1:5])
        return {cells[0].strip(): next(cell.strip() for cell in cells[1:] if cell.strip()) for cells in lines}

    assert states() == {"data": "in the cache", "mid": "in the cache", "end": "in the cache", "side": "unchanged"}
    assert "4 stages, 3 from the cache of earlier runs, the others unchanged" in lab.sesame("plan")
    lab.write("extra.txt", "b")
    assert states() == {"data": "in the cache", "mid": "in the cache", "end": "to run", "side": "unchanged"}
    assert "1 stage to run" in (said := lab.sesame("plan")) and "2 from the cache of earlier runs" in said
    ran = lab.sesame("run", "--lines")
    assert "[end] > " in ran and "[data] > " not in ran and "[mid] > " not in ran
    assert "all unchanged" in lab.sesame("plan")
    shutil.rmtree(lab.path / ".dvc/cache/runs")  # which `dvc pull` does not bring: the lock file alone knows the outputs
    (lab.path / "mid.out").unlink()
    assert states() == {"data": "unchanged", "mid": "in the cache", "end": "in the cache", "side": "unchanged"}
    ran = lab.sesame("run", "--lines")
    assert "[end] > " not in ran and "[mid] > " not in ran and (lab.path / "mid.out").exists()
    shutil.rmtree(lab.path / ".dvc/cache/files")
    lab.write("extra.txt", "a")
    assert states()["end"] == "to run", "its outputs are gone"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_without_its_gpu_does_not_begin(lab):
    raw = tiny_params()
    raw["models"]["bert"]["run"]["accelerator"] = "gpu"
    with (lab.path / "params.yaml").open("w") as file:
        YAML().dump(raw, file)
    lab.stages("  pretrain: {foreach: {bert: 1}, do: {cmd: touch begun.out, outs: [begun.out]}}")
    said = "sesame: pretrain@bert asks for accelerator: gpu, and this machine has none; write auto or cpu"
    assert lab.sesame("run", code=1).strip() == said and not (lab.path / "begun.out").exists()


def test_a_run_that_cannot_fit_does_not_begin(lab):
    raw = tiny_params()
    raw["models"]["bert"]["architecture"]["hidden_size"] = 10**9
    with (lab.path / "params.yaml").open("w") as file:
        YAML().dump(raw, file)
    lab.stages("  pretrain: {foreach: {bert: 1}, do: {cmd: touch begun.out, outs: [begun.out]}}")
    refused = lab.sesame("run", code=1)
    assert len(refused.splitlines()) == 1 and refused.startswith("sesame: pretrain@bert needs 32 EiB of memory or more")
    assert not (lab.path / "begun.out").exists()
    table = lab.sesame("plan", code=1)
    assert "1 stage to run" in table and table.splitlines()[-1] == refused.strip()
