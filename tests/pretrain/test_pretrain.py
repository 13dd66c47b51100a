"""Pre-training: killed and resumed equals uninterrupted, two processes equal one, NaN stops, the optimizer's groups."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from mlflow import MlflowClient
from pydantic import ValidationError
from ruamel.yaml import YAML
from safetensors.torch import load_file
from torch import nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounter
from torch.utils.data import DataLoader

from components import objectives, params
from components.core import tracking
from components.core.errors import Diverged, SesameError
from components.core.tracking import Run
from components.derive import pretrained
from components.models import store
from components.objectives.examples.phases import Phases
from components.optimizers import factor, parameter_groups
from components.optimizers.adamw.config import AdamW
from components.pretrain import sizing, training
from components.pretrain.cost import training_flops
from components.pretrain.data import ChunkDataset, PretrainData
from components.pretrain.module import Pretraining
from components.pretrain.setup import build_phases, recompute_activations, set_up
from components.pretrain.trainer import lightning_trainer
from components.text import encode
from tests.conftest import run_stage, tiny_params
from tests.forks import Command
from tests.pretrain.test_device import PAIRS


def write_params(**changes) -> None:
    """params.yaml with the models' blocks changed; architecture, objective and phases are BERT's alone."""
    raw = tiny_params()
    for key in ("architecture", "objective"):
        raw["models"]["bert"][key] |= changes.pop(key, {})
    raw["models"]["bert"]["phases"] = changes.pop("phases", [])
    for block in raw["models"].values():
        for key, value in changes.items():
            block[key] = {**block[key], **value} if isinstance(value, dict) and key != "budget" else value
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)


def pretrain(name: str, **environment: str) -> subprocess.CompletedProcess:
    return run_stage("components.pretrain", name, **environment)


def weights(name: str) -> dict[str, torch.Tensor]:
    return load_file(Path("data/models", name, "model.safetensors"))


def killed(name: str, start: Callable[..., Command]) -> None:
    """Train until the next save, and kill -9 all processes."""
    Path(f"data/models/{name}/model.safetensors").unlink(missing_ok=True)

    def saves() -> list[int]:
        return [path.stat().st_mtime_ns for path in Path(".sesame/checkpoints").glob("*/last.ckpt")]

    before = saves()
    child = start("-m", "components.pretrain", name)  # the first rank starts the others with the same
    while saves() == before and psutil.pid_exists(child.pid):
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert saves() != before, "killed before its first checkpoint or after its end"
    assert not Path(f"data/models/{name}/model.safetensors").exists()


@pytest.mark.long
def test_killed_and_resumed_equals_uninterrupted(project, start):
    """kill -9 at some moment, run again: the same weights bit for bit, the same curve."""
    name = "gpt"
    write_params(budget={"steps": 60}, trainer={"accumulate": 2, "recompute": True})
    done = pretrain(name)
    assert done.returncode == 0, done.stderr
    whole, curve = weights(name), Path(f"data/curves/{name}.csv").read_text()
    killed(name, start)
    ledger = f"sqlite:///{project}/ledger.db"
    again = pretrain(name, SESAME_TRACKING="on", MLFLOW_TRACKING_URI=ledger)
    assert again.returncode == 0 and "resumed at step" in again.stdout, again.stdout + again.stderr
    at = again.stdout.split("resumed at step ")[1].split()[0]
    assert int(at) < 60
    [run] = MlflowClient(ledger).search_runs(["1"])
    assert re.fullmatch(rf"from step 0 on 1 x cpu.*; from step {at} on 1 x cpu.*", run.data.tags["attempts"])
    assert run.data.tags["same_bits"] == "yes"
    resumed = weights(name)
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
    fixed = [[row.split(",")[i] for i in (0, 1, 3, 4)] for row in Path(f"data/curves/{name}.csv").read_text().splitlines()]
    assert fixed == [[row.split(",")[i] for i in (0, 1, 3, 4)] for row in curve.splitlines()]
    assert not list(Path(".sesame/checkpoints").glob("*")), "checkpoints are cleared at the end"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "where", "optimizer"),
    [("bert", [], "adamw"), ("elmo", ["micro-batch", "saved"], "adamw"), ("gpt", ["micro-batch", "saved"], "muon")],
    ids=["bert", "elmo", "muon"],
)
def test_killed_at_any_boundary_and_resumed_ends_the_same(project, start, name, where, optimizer):
    """Between steps, micro-batches and phases, in validations, milestones and saves: weights, those kept on the way, and the curve. ELMo's
    states go over from a step to the next."""
    write_params(budget={"steps": 12}, trainer={"accumulate": 2}, phases=[{"share": 0.5, "max_length": 16, "batch_size": 4}],
                 optimizer={"name": optimizer})  # fmt: skip
    done = start("-m", "tests.pretrain.killed_at", name, *where)
    said, _ = done.communicate()
    ends = dict(line.split("\t") for line in said.splitlines() if "\t" in line)
    assert done.returncode == 0 and len(ends) == 1 + (len(where) or 12), said
    assert ends["in peace"].count("[") == 3, "a row for either validation"
    assert {where: end for where, end in ends.items() if end != ends["in peace"]} == {}


@pytest.mark.parametrize(("device", "asked", "workers"), [("cpu", None, 0), ("cuda", None, 2), ("cpu", 3, 3)])
def test_two_processes_draw_ahead_for_a_gpu_and_none_for_a_cpu(tokens, train_split, device, asked, workers):
    """Unless `run.workers` says otherwise."""
    objective = objectives.build(params.check(tiny_params()).models["bert"].objective, tokens)
    batches = objective.batches(train_split, 4, 32, seed=0)
    data = PretrainData(batches, batches, 1, 1, asked)
    strategy = SimpleNamespace(root_device=torch.device(device))
    data.trainer = SimpleNamespace(world_size=1, global_rank=0, global_step=0, strategy=strategy)
    assert data.train_dataloader().loader.num_workers == workers


def test_dropout_is_drawn_anew_in_every_step_and_the_same_again(tokens, train_split):
    """One batch four times, at a rate that moves nothing: what differs is dropout, and a second run has the same."""
    block = params.check(tiny_params()).models["gpt"]
    block = block.model_copy(update={"optimizer": block.optimizer.model_copy(update={"learning_rate": 1e-30})})
    objective = objectives.build(block.objective, tokens)
    model = store.build(block.architecture.model_copy(update={"dropout": 0.5}), tokens)
    rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]

    def losses(seed: int) -> list[float]:
        torch.manual_seed(seed)
        module = Pretraining(block, model, {}, objective, 4, Run(None))
        lightning_trainer(block, 4, []).fit(module, DataLoader([([rows], counts)] * 4, batch_size=None))
        return [loss for loss, _, _ in module.recent]

    assert len(set(losses(0))) == 4 and losses(0) == losses(1)


@pytest.mark.parametrize(
    ("name", "strategy", "objective"),
    [
        pytest.param("bert", "ddp", {"next_sentence": False}, marks=pytest.mark.long, id="bert-ddp"),
        pytest.param("elmo", "ddp", {}, id="elmo-ddp"),
        pytest.param("gpt", "fsdp", {}, id="gpt-fsdp"),
    ],
)
def test_two_processes_equal_one(project, start, name, strategy, objective):
    """Over gloo they share out the micro-batches, under FSDP the weights, too: the single process's losses and weights, dropout on, and
    what one process has begun two go on with, and one again. BERT's unused head is no obstacle, nor that it is trained twice."""
    settings = {"budget": {"steps": 24}, "objective": objective, "trainer": {"accumulate": 2}, "pretrainings": 2 if name == "bert" else 1}
    write_params(**settings)
    assert pretrain(name).returncode == 0
    last = f"{name}/pretrainings/2" if name == "bert" else name
    single, curve = weights(last), Path(f"data/curves/{name}.csv").read_text().splitlines()
    assert "processes" not in json.loads(Path(f"data/metrics/pretrain/{name}.json").read_text())["cost"]
    two = {"devices": 2, "strategy": strategy, "log_every": 4}
    if name == "elmo":
        killed(name, start)
    write_params(**settings, run=two)
    if strategy == "fsdp":
        killed(name, start)
        write_params(**settings)
    done = start("-m", "components.pretrain", name)
    said, _ = done.communicate()
    assert done.returncode == 0 and ("resumed at step" in said) == (name != "bert"), said
    if strategy == "ddp":  # the second process costs as much as the first one
        assert json.loads(Path(f"data/metrics/pretrain/{name}.json").read_text())["cost"]["processes"] == 2
    double, other = weights(last), Path(f"data/curves/{name}.csv").read_text().splitlines()
    for key, value in single.items():
        torch.testing.assert_close(double[key], value, atol=2e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
    for ours, theirs in zip(curve[1:], other[1:], strict=True):
        assert [float(x) for x in ours.split(",")[3:5]] == pytest.approx([float(x) for x in theirs.split(",")[3:5]], rel=1e-4)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ({}, "yes"),
        ({"precision": "bf16-mixed"}, "no: in another precision"),
        ({"accumulate": 2}, "no: sums in another order, and dropout"),
    ],
)
def test_what_was_another_in_the_attempt_before_is_said(tokens, train_split, trainer, said):
    """`precision: auto` is another on another CPU, and the number of micro-batches on another number of devices."""
    raw, before = tiny_params(), []
    for change in ({}, trainer):
        raw["models"]["gpt"]["trainer"] |= change
        block = params.check(raw).models["gpt"]
        objective = objectives.build(block.objective, tokens)
        module = Pretraining(block, store.build(block.architecture, tokens), {}, objective, 4, Run(None))
        module.attempts = [*before]  # as a checkpoint has them
        rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]
        lightning_trainer(block, 4, []).fit(module, DataLoader([([rows], counts)] * 4, batch_size=None))
        before = module.attempts
    assert module.same_bits().startswith(said) and len(before) == 2


def test_layers_computed_again_give_the_same_gradients(tokens, train_split):
    """Dropout on: what is drawn the second time is what was drawn the first time."""
    block, gradients, kept = params.check(tiny_params()).models["bert"], [], []
    objective = objectives.build(block.objective, tokens)
    rows, _ = objective.batches(train_split, 8, 32, seed=0)[0]
    for again in (False, True):
        torch.manual_seed(0)
        model = store.build(block.architecture, tokens)
        for layer in model.stacked() if again else ():
            recompute_activations(layer)
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            losses, _ = objective.losses(model, rows, None)
        sum(loss for loss, _ in losses.values()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        kept.append(sum(sizes))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert kept[1] < kept[0] / 2


def test_phases_share_the_budget_out(tokens, train_split):
    """Short rows in small batches first: tokens, FLOPs and steps of each, and the same step however it is reached."""
    block = params.check(tiny_params()).models["gpt"]
    forms = [params.Phase(share=0.25, max_length=8, batch_size=4), params.Phase(share=0.25, max_length=16)]
    objective = objectives.build(block.objective, tokens)

    def phases(budget: dict) -> Phases:
        own = block.model_copy(update={"phases": forms, "budget": params.Budget(**budget)})
        return build_phases(own, objective, train_split, lambda length, _: 1000.0 * length)

    def width(batches: Phases, step: int) -> tuple[int, ...]:
        return tuple(next(iter(batches.draw(*batches.bounds(step)))).tensors["ids"].shape)

    by_tokens = phases({"tokens": 8000})
    assert [phase.steps for phase in by_tokens.phases] == [63, 16, 16] and by_tokens.steps == 95, "2000 tokens of 32 a step, ..."
    assert [width(by_tokens, step) for step in (0, 62, 63, 78, 79, 94)] == [(4, 9), (4, 9), (8, 17), (8, 17), (8, 33), (8, 33)]
    assert by_tokens.flops(2016) == 2016 * 8000 and by_tokens.flops(2016 + 100) == 2016 * 8000 + 100 * 16000
    assert [phase.steps for phase in phases({"steps": 21}).phases] == [5, 6, 10]
    by_flops = phases({"flops": 1e8})
    spent = [phase.steps * size for phase, size in zip(by_flops.phases, (32 * 8e3, 128 * 16e3, 256 * 32e3), strict=True)]
    assert spent == pytest.approx([2.5e7, 2.5e7, 5e7], rel=0.09)
    windows = list(ChunkDataset(by_tokens, 60, 80))
    steps = {first: rows for window in windows for first, (rows, _) in enumerate(window, window.first)}
    assert set(range(60, 80)) <= set(steps)
    assert all(steps[step]["ids"].shape == (8, 17) for step in range(63, 79)), "a window ends with its phase"
    one = build_phases(block, objective, train_split, lambda *_: 1.0)
    first = [next(iter(batches.draw(*batches.bounds(start)))).tensors["ids"] for batches, start in ((one, 0), (by_tokens, 79))]
    assert not torch.equal(*first), "a phase reads in an order of its own"

    # warm-up and decay are shares of the tokens, not of the steps, of which the short rows have more
    own = block.model_copy(update={"phases": forms, "budget": params.Budget(tokens=8000)})
    model = store.build(block.architecture, tokens)
    module = Pretraining(own, model, {}, objective, by_tokens.steps, Run(None), 1.0, by_tokens.starts)
    read = np.cumsum([0, *[phase.batches.tokens(0) for phase in by_tokens.phases for _ in range(phase.steps)]])
    assert [module.progress(step) for step in range(96)] == pytest.approx((read / read[-1]).tolist(), abs=0.02)
    assert (module.progress(0), module.progress(63), module.progress(79), module.progress(95)) == (0, 0.25, 0.5, 1)


def test_a_phase_longer_than_what_a_model_reads_that_goes_on_is_one_line(project, tokens):
    raw = tiny_params()
    training = {key: value for key, value in raw["models"]["gpt"].items() if key not in ("encoding", "architecture", "prompts")}
    by = {"name": "pretrained", **training, "phases": [{"share": 0.5, "max_length": 64}]}
    raw["derived"] = {"more": {"start": "gpt", "on": "encoded/tiny", "by": by}}
    checked = params.check(raw)
    block = checked.models["gpt"].architecture
    store.save(Path("data/models/gpt"), store.build(block, tokens).state_dict(), block, tokens)
    with pytest.raises(SesameError, match=r"derived.more.by: a phase of 64 tokens is longer than gpt reads \(32\)"):
        pretrained.derive(checked, "more", Path("data/models/more"), Run(None))


ROOMLESS = """
import ctypes, resource, sys
M_MMAP_THRESHOLD = -3  # malloc gives large blocks back at once, in place of keeping some for the second check
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
import torch
from components import objectives, params
from components.text import tokenizer
from components.models import store
from components.pretrain.setup import set_up
from components.pretrain.memory_check import check
from components.pretrain.module import Pretraining
from components.core.tracking import Run
torch.set_num_threads(1)
block = params.load().models["bert"]
setup = set_up(block, None)
module = Pretraining(block, setup.model, setup.networks, setup.objective, setup.train.steps, Run(None))
check(module, setup.train, 1, torch.device("cpu"))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**20 * int(sys.argv[1]),) * 2)
check(module, setup.train, 1, torch.device("cpu"))
"""


def test_a_step_that_finds_no_room_is_told_before_the_first(project, start):
    """With the largest micro-batch that does, and what makes them so small."""
    write_params(batch_size=64, architecture={"hidden_size": 256, "intermediate_size": 4096})
    output, _ = start("-c", ROOMLESS, "60").communicate()
    said = re.search(r"a micro-batch of 64 sequences does not fit into the memory of cpu; (\d+) fit: set trainer.accumulate (\d+)", output)
    assert said and int(said[1]) * int(said[2]) == 64 and int(said[2]) > 1, output


def test_a_bad_step_is_told_late_and_changes_nothing(tokens, train_split):
    """The host learns of it with the log; until then no step moves the weights, though later ones are sound."""
    block = params.check(tiny_params()).models["gpt"].model_copy(update={"run": params.Running(accelerator="cpu", log_every=6)})
    objective = objectives.build(block.objective, tokens)
    model = store.build(block.architecture, tokens)
    rows, counts = objective.batches(train_split, 8, 32, seed=0)[0]
    forward, seen = count(), []
    model.final_norm.register_forward_hook(lambda module, given, made: made * math.nan if next(forward) == 3 else made)

    class Module(Pretraining):
        def on_train_batch_end(self, *_):
            seen.append(model.token_embedding.weight.detach().clone())

    module = Module(block, model, {}, objective, 20, Run(None))
    module.last_progress = math.inf  # no line of progress asks before the log
    with pytest.raises(SesameError, match="not a number at step 3; stopped before it changed the weights"):
        lightning_trainer(block, 20, []).fit(module, DataLoader([([rows], counts)] * 7, batch_size=None))
    assert len(seen) == 5, "told at the sixth"
    assert not torch.equal(seen[1], seen[2]) and all(torch.equal(seen[2], later) for later in (*seen[3:], model.token_embedding.weight))


def test_a_curve_has_one_meaning(project):
    """Points of the training loss are means over `log_every` steps, also right behind a validation; those of the
    validation loss are of `validation_batches` batches, also where a milestone asks all of them."""
    logged = defaultdict(list)

    class Ledger(Run):
        def log(self, metrics, step=None):
            for key, value in metrics.items() if step else ():
                logged[key].append((step, value))

    def curve(log_every: int, milestones: list[int]) -> list[tuple]:
        trainer = {"validations": 3, "validation_batches": 1}
        write_params(budget={"steps": 12}, trainer=trainer, run={"log_every": log_every})
        logged.clear()
        shutil.rmtree("kept", ignore_errors=True)
        block = params.load().models["gpt"]
        trained = training.pretrain(block, "gpt", Path("kept"), Ledger(None), milestones=milestones)
        return [(row["step"], row["loss"], row["train_loss"]) for row in trained.curve]

    plain = curve(1, [])
    losses = [loss for _, loss in logged["train_loss"]]
    assert curve(5, [300, 1000]) == plain and [step for step, *_ in plain] == [4, 8, 12]
    assert [step for step, _ in logged["train_loss"]] == [5, 10, 12], "one point a step, and the last step has one"
    means = [np.mean(losses[step - 5 : step]) for step in (5, 10, 12)]
    assert [loss for _, loss in logged["train_loss"]] == pytest.approx(means), "each of five steps"
    assert [step for step, _ in logged["loss"]] == [4, 8, 12]


def test_the_final_loss_is_that_of_the_whole_validation_text(project):
    """With its standard error from batch to batch; the curve is of a part. What B alone says of next-sentence prediction is beside it."""
    write_params(budget={"steps": 4}, trainer={"validation_batches": 1})
    assert pretrain("bert").returncode == 0
    metrics = json.loads(Path("data/metrics/pretrain/bert.json").read_text())
    block = params.load().models["bert"]
    model, tokens = store.load(Path("data/models/bert"))
    objective = objectives.build(block.objective, tokens)
    text = encode.load(Path("data/encoded/tiny"), "valid")
    batches = objective.validation(text, block.batch_size, block.architecture.max_length)
    with torch.no_grad():
        read = [batches[step] for step in range(batches.epoch_steps())]
        losses = np.array([float(objective.losses(model.eval(), rows, None)[0]["mlm"][0]) for rows, _ in read])
    counts = np.array([counts["mlm"] for _, counts in read])
    mean = losses.sum() / counts.sum()
    assert (
        len(read) > 2
        and metrics["loss"] == pytest.approx(mean, rel=1e-5)
        and metrics["perplexity"] == pytest.approx(np.exp(mean), rel=1e-4)
    )
    whole, sizes = text.shards[0], [read.tensors["lengths"] for read in read]
    assert sum(map(len, sizes[:-1])) == 8 * (len(read) - 1) and 0 < len(sizes[-1]) < 8, "the last batch has what is left"
    assert sum(float(counts["tokens"]) for _, counts in read) > (whole.tokens > 3).sum()
    squares = np.square(losses - counts * mean).sum()
    assert metrics["loss_se"] == pytest.approx((squares * len(read) / (len(read) - 1)) ** 0.5 / counts.sum(), rel=1e-3)
    assert float(Path("data/curves/bert.csv").read_text().splitlines()[-1].split(",")[4]) != pytest.approx(mean, rel=1e-4)
    assert 0.2 < metrics["nsp_from_b_alone"] < 0.8, "chance, on a few dozens of pairs"


@pytest.mark.parametrize("name", ["bert", "gpt", pytest.param("deberta", marks=pytest.mark.long)])
def test_a_compiled_model_is_one_graph_of_any_shape(name, tokens, train_split):
    """Nothing in it asks for a value, and three epochs of rows of all lengths need three graphs."""
    torch._dynamo.reset()
    raw = tiny_params()
    if name == "deberta":
        raw["models"]["bert"]["architecture"] |= {"name": "deberta", "position_buckets": 8}
    block = params.check(raw).models["gpt" if name == "gpt" else "bert"]
    objective, model, graphs = objectives.build(block.objective, tokens), store.build(block.architecture, tokens), CompileCounter()
    batches = objective.batches(train_split, 4, 32, seed=0)
    model.compile(backend=graphs, fullgraph=True)
    for step in range(3 * batches.epoch_steps()):
        losses, _ = objective.losses(model, batches[step].tensors, None)
        sum(loss for loss, _ in losses.values()).backward()
    assert graphs.frame_count <= 3, "the first shape, any other, and where a window of steps begins"


@pytest.mark.parametrize("name", ["bert", "electra", "gpt", "gpt-bert", "t5", "xlnet", "ulmfit", "elmo", "quick-thoughts", "skip-thoughts"])
def test_compile_is_refused_where_it_has_no_effect(name):
    """A model whose `forward` an objective does not call stays as it is, without a word."""
    torch._dynamo.reset()
    architecture, objective = PAIRS[name]
    raw = {**tiny_params()["models"]["gpt"], "architecture": architecture, "objective": objective, "prompts": []}
    block, graphs, tokens = params.Model.model_validate(raw), CompileCounter(), sizing._DummyTokenizer(200)
    try:
        params.Model.model_validate(raw | {"trainer": {"compile": True}})
        refused = False
    except ValidationError as error:
        refused = "trainer.compile has no effect" in str(error)
    built, model = objectives.build(block.objective, tokens), store.build(block.architecture, tokens)
    built.networks(model)
    batch = built.batches(sizing.text_of_rows(32, 8), 8, block.architecture.max_length, seed=0)[0]
    model.compile(backend=graphs, fullgraph=True)
    if name in ("ulmfit", "elmo"):  # recurrent: the training ends in one line
        with pytest.raises(Unsupported, match="RNN, GRU, or LSTM"):
            built.losses(model, batch.tensors, None)
        assert not refused
    else:
        built.losses(model, batch.tensors, None)
        assert refused == (graphs.frame_count == 0)


def test_a_model_that_cannot_be_compiled_is_one_line(project):
    """ELMo convolves each different piece once, and how many there are is no shape."""
    write_params(trainer={"compile": True})
    done = pretrain("elmo")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "trainer.compile: the model can't be compiled as one graph (" in done.stderr and "leave compile out" in done.stderr


@pytest.mark.parametrize(
    ("objective", "architecture", "shown"),
    [
        ({"name": "electra", "generator_size": 0.5}, {"embedding_size": 8}, {"detector_accuracy", "detector_precision", "perplexity"}),
        (
            {"next_sentence": False, "sentence_order": True},
            {"embedding_size": 8, "shared_layers": "all"},
            {"sop_accuracy", "sop_from_b_alone"},
        ),
        ({"next_sentence": False, "span_probability": 0.2, "span_boundary": True}, {"type_vocab_size": 1}, {"boundary_loss", "perplexity"}),
        ({}, {"name": "deberta", "position_buckets": 8}, {"nsp_loss", "perplexity"}),
        pytest.param(
            {"name": "electra", "generator_size": 1, "generator_layers": 0.5},
            {"name": "deberta", "shared_projections": True},
            {"detector_accuracy", "perplexity"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["electra", "albert", "spanbert", "deberta", "deberta_v3"],
)
def test_variants_of_bert_are_trained_and_tuned(project, objective, architecture, shown):
    write_params(objective=objective, architecture=architecture, prompts=[])
    done = pretrain("bert")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/pretrain/bert.json").read_text())
    assert shown <= metrics.keys() and all(math.isfinite(metrics[key]) for key in shown)
    block = params.load().models["bert"]
    setup = set_up(block, None)
    assert all(own.grad is None for module in (setup.model, *setup.networks.values()) for own in module.parameters()), "only counted"
    tuned = run_stage("components.finetune", "bert-same")
    assert tuned.returncode == 0, tuned.stderr


def test_parts_that_the_objective_does_not_train_are_not_saved_as_trained(project):
    write_params(budget={"steps": 2}, objective={"next_sentence": False})
    done = pretrain("bert")
    assert done.returncode == 0, done.stderr
    assert store.about(Path("data/models/bert")).absent == ["next_sentence", "pooler"]
    assert not any(key.startswith("pooler") for key in weights("bert"))
    model, _ = store.load(Path("data/models/bert"))
    assert model.absent == ["next_sentence", "pooler"]


@pytest.mark.parametrize(("name", "end"), [("bert", " [MASK]"), ("gpt", "")])
def test_a_prompt_that_is_not_read_to_its_end_is_refused(project, tokens, name, end):
    """Its [MASK], or all room to write in, was cut off, and its sample empty (as in transformers' pull request 26234)."""
    raw = tiny_params()
    block = params.check(raw).models[name]
    model = store.build(block.architecture, tokens)
    store.save(Path("data/models", name), model.state_dict(), block.architecture, tokens, [], [])

    def sampled(prompt: str) -> subprocess.CompletedProcess:
        raw["models"][name]["prompts"] = [prompt]
        with open("params.yaml", "w") as file:
            YAML().dump(raw, file)
        return run_stage("components.pretrain.sample", name)

    done = sampled(f"the dog sees{end}")
    assert done.returncode == 0, done.stderr
    assert all(row["output"] for row in json.loads(Path("data/samples", f"{name}.json").read_text()))
    done, most = sampled("dog " * block.architecture.max_length + end), block.architecture.max_length
    said = rf"models\.{name}\.prompts: '(dog ){{10}}\.\.\.' has \d+ tokens, and {name} reads {most}: shorten it"
    assert done.returncode == 2 and re.search(said, done.stderr), done.stderr


def test_nan_stops_with_the_step_and_keeps_the_last_good_checkpoint(project):
    write_params(budget={"steps": 40}, optimizer={"learning_rate": 1.0, "weight_decay": 1e20, "warmup": 0.0})
    done = pretrain("gpt")
    assert done.returncode == 2
    assert "not a number at step" in done.stderr and "Traceback" not in done.stderr
    [kept] = Path(".sesame/checkpoints").glob("gpt-*/last.ckpt")
    with pytest.raises(Diverged) as raised:
        training.pretrain(params.load().models["gpt"], "gpt", Path("data/models/gpt"), Run(None))
    assert raised.value.cost["tokens"] > 0 and raised.value.cost["flops"] > 1000 * raised.value.cost["tokens"], "what it has cost"
    good = torch.load(kept, weights_only=False)["state_dict"]
    assert all(value.isfinite().all() for value in good.values()) and not Path("data/models/gpt").exists()


def test_unreachable_ledger_costs_a_line_not_the_training(project):
    write_params()
    tracking.client.cache_clear()  # another test's ledger may have generate_target in this process
    done = pretrain("gpt", SESAME_TRACKING="on", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("MLflow at http://127.0.0.1:9 is not usable") == 1 and Path("data/models/gpt/model.safetensors").exists()


def test_a_ledger_that_can_not_grow_costs_a_line(tmp_path):
    """As on a full disk. MLflow logs a traceback for each of its errors."""
    script = """
import resource, signal
from components.core import tracking
with tracking.start("finetune@a", {}, {}) as run:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    run.log({"loss": 1.0})
print("goes on")
"""
    env = os.environ | {"SESAME_TRACKING": "on", "MLFLOW_TRACKING_URI": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    [line] = done.stderr.splitlines()
    assert re.fullmatch(r"warning: MLflow at sqlite:.* is not usable: \(sqlite3.OperationalError\) .* \(this run is not recorded.*", line)


def test_static_masks_need_a_second_epoch(project):
    write_params(objective={"static": True}, budget={"steps": 3})
    done = pretrain("bert")
    assert done.returncode == 2 and "objective.static makes no difference: the budget ends after 3 of the" in done.stderr, done.stderr
    write_params(objective={"static": True}, budget={"steps": 70})
    assert pretrain("bert").returncode == 0


def test_minutes_budget_ends(project):
    write_params(budget={"minutes": 0.02})
    done = pretrain("gpt")
    assert done.returncode == 0, done.stderr
    assert Path("data/curves/gpt.csv").exists()


def test_an_unreadable_checkpoint_is_one_line(project):
    from components.pretrain.training import checkpoint_folder

    write_params()
    folder = checkpoint_folder(params.load().models["gpt"], "gpt")
    folder.mkdir(parents=True)
    (folder / "last.ckpt").write_bytes(b"half a checkpoint")
    done = pretrain("gpt")
    assert done.returncode == 2 and "last.ckpt can't be read" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("isolate_documents", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_flops_match_a_count_by_hand(tokens, train_split, dropout, isolate_documents):
    """GPT: 6 FLOPs a weight and token in matrices, twice attention's two products, the head included.

    Without dropout attention is fused on a CPU.
    """
    block = params.check(tiny_params()).models["gpt"]
    config = block.objective.model_copy(update={"isolate_documents": isolate_documents})
    objective, model = objectives.build(config, tokens), store.build(block.architecture.model_copy(update={"dropout": dropout}), tokens)
    rows = {"ids": objective.batches(train_split, 4, 32, seed=0)[0].tensors["ids"].clone()}
    rows["ids"][rows["ids"] == 2] = 9  # every place is a target then
    batch, length, hidden, layers = 4, 32, 16, 2
    matrices_ = layers * (4 * hidden**2 + 2 * hidden * 32) + hidden * tokens.vocab_size
    by_hand = 6 * batch * length * matrices_ + 3 * layers * 2 * 2 * batch * length**2 * hidden
    assert training_flops(model, objective, rows) == pytest.approx(by_hand, rel=0.02)


def test_schedules():
    def rates(schedule):
        config = AdamW(learning_rate=1.0, schedule=schedule, warmup=0.1)
        return [round(factor(config, x), 3) for x in (0.05, 0.1, 0.55, 0.9, 1.0)]

    assert rates("linear") == [0.5, 1.0, 0.5, 0.111, 0.0]
    assert rates("cosine") == [0.5, 1.0, 0.5, 0.03, 0.0]
    assert rates("wsd") == [0.5, 1.0, 1.0, 0.5, 0.0]
    assert rates("constant") == [0.5, 1.0, 1.0, 1.0, 1.0]
    assert rates("inverse_sqrt") == [0.5, 1.0, 0.426, 0.333, 0.316]  # of .1 / x the root


def test_biases_and_norms_are_not_decayed():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    decayed, free = parameter_groups(module, 1e-3, 0.01)
    assert [p.shape for p in decayed["params"]] == [(4, 3)] and decayed["weight_decay"] == 0.01
    assert all(p.ndim == 1 for p in free["params"]) and len(free["params"]) == 3 and free["weight_decay"] == 0


def test_a_training_gives_each_layer_its_rate(tokens):
    """Heads and the top layer the whole rate, each layer below it half of the one above, as the optimizer's `layer_decay` says."""
    block = params.check(tiny_params()).models["gpt"]
    decayed = block.optimizer.model_copy(update={"layer_decay": 0.5, "learning_rate": 0.08})
    model = store.build(block.architecture.model_copy(update={"num_layers": 3}), tokens)
    module = Pretraining(
        block.model_copy(update={"optimizer": decayed}), model, {}, objectives.build(block.objective, tokens), 4, Run(None)
    )  # fmt: skip
    rates = {id(parameter): group["full_lr"] for group in module.configure_optimizers().param_groups for parameter in group["params"]}
    named = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
    assert named["final_norm.weight"] == named["blocks.2.attention.output.weight"] == 0.08
    assert named["blocks.1.attention.output.weight"] == 0.04 and named["blocks.0.feed_forward.0.bias"] == 0.02
    assert named["token_embedding.weight"] == 0.01


def test_the_rate_in_the_ledger_is_that_of_the_top(tokens, monkeypatch):
    """Not that of the first group, which under `layer_decay` is the lowest layer's."""
    block = params.check(tiny_params()).models["gpt"]
    decayed = block.optimizer.model_copy(update={"layer_decay": 0.5, "learning_rate": 0.08})
    model, logged = store.build(block.architecture, tokens), []
    ledger = SimpleNamespace(log=lambda row, step: logged.append((row["learning_rate"], step)))
    module = Pretraining(block.model_copy(update={"optimizer": decayed}), model, {}, objectives.build(block.objective, tokens), 4, ledger)
    optimizer = module.configure_optimizers()
    monkeypatch.setattr(module, "optimizers", lambda: optimizer)
    module.rate = 1.0
    module.latest.append((1.0, 1.0, 8))
    module._log(2)
    assert optimizer.param_groups[0]["lr"] < 0.08 and logged == [(0.08, 2)]


def test_layers_below_the_top_learn_slower():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    rates = {
        name: group["full_lr"] for group in parameter_groups(module, 1e-2, 0.01, 0.5, lambda name: 2 - int(name[0]))
        for name, parameter in module.named_parameters() if any(parameter is own for own in group["params"])
    }  # fmt: skip
    assert {name[0]: rate for name, rate in rates.items()} == {"2": 1e-2, "1": 1e-2, "0": 5e-3}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without a GPU is needed")
def test_a_machine_that_has_not_what_is_asked_for_is_one_line(project):
    write_params(run={"accelerator": "gpu"})
    done = pretrain("gpt")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("pretrain@")]
    assert done.returncode == 2 and line.startswith("pretrain@gpt: run: No supported gpu backend found!"), done.stderr
    assert "Traceback" not in done.stderr
