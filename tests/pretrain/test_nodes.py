"""A training on several nodes: torchrun's agents in folders of their own, and saves that are sent elsewhere."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil
import pytest
import torch

from components import params
from components.core.errors import SesameError, Unreachable
from components.core.processes import LAUNCHED
from components.pretrain.remote_checkpoints import RemoteCheckpoints
from components.pretrain.training import check_checkpoint
from components.stages import launch
from components.stages.launch import agent, agreement
from components.stages.launch import store as head_store
from tests.conftest import free_port, run_stage, s3_server, tiny_params
from tests.hosts import Hosts
from tests.pretrain.test_pretrain import killed, pretrain, weights, write_params
from tests.waiting import until

ROOT = Path(params.__file__).parents[2]
SETTINGS = {"budget": {"steps": 24}, "trainer": {"accumulate": 4}}


def nodes(port: int, devices: int = 1, **rendezvous) -> dict:
    """Settings of two."""
    own = {"head": f"127.0.0.1:{port}", "wait": 120, **rendezvous}
    return {"launcher": "torchrun", "num_nodes": 2, "devices": devices, "rendezvous": own, "log_every": 1}


@contextmanager
def running(folder: Path, *args: str) -> Iterator[subprocess.Popen]:
    """`python -m ...` in a folder, its output in `said.txt` there; killed at the end, should it still run."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open(folder / "said.txt", "a") as said:
        process = subprocess.Popen([sys.executable, "-m", *args], cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def joining(folder: Path, port: int):
    return running(folder, "pipelines.cli", "join", f"127.0.0.1:{port}", "--wait", "100")


def said(folder: Path) -> str:
    return (folder / "said.txt").read_text()


def another(project: Path) -> Path:
    """A second node's folder: the same files, without what was trained."""
    other = project.parent / f"{project.name}-other"
    shutil.copytree(project, other, symlinks=True, ignore=shutil.ignore_patterns(".sesame", "models", "curves", "said.txt"))
    return other


def same(name: str, expected: dict[str, torch.Tensor]) -> None:
    for key, value in weights(name).items():
        torch.testing.assert_close(value, expected[key], atol=2e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


def single(budget: dict = SETTINGS["budget"]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """What one process makes of it."""
    write_params(**SETTINGS | {"budget": budget})
    done = pretrain("gpt")
    assert done.returncode == 0, done.stderr
    alone, curve = weights("gpt"), Path("data/curves/gpt.csv").read_text().splitlines()
    shutil.rmtree("data/models/gpt")
    return alone, curve


def written(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in (folder / "data").rglob("*") if path.is_file()}


@pytest.mark.cluster
def test_two_nodes_train_as_one_process(project):
    """Losses and weights; the node that joins writes nothing into its data, and is done when the head is."""
    alone, curve = single()
    port = free_port()
    write_params(**SETTINGS, run=nodes(port))
    other = another(project)
    before = written(other)
    with running(project, "components.pretrain", "gpt") as head, joining(other, port) as node:
        assert (head.wait(), node.wait()) == (0, 0), said(project) + said(other)
    assert f"waits for 1 node; there: sesame join 127.0.0.1:{port}" in said(project)
    same("gpt", alone)
    for ours, theirs in zip(curve[1:], Path("data/curves/gpt.csv").read_text().splitlines()[1:], strict=True):
        assert [float(x) for x in ours.split(",")[3:5]] == pytest.approx([float(x) for x in theirs.split(",")[3:5]], rel=1e-4)
    assert written(other) == before and not list(other.glob(".sesame/checkpoints/*")) and "done in" not in said(other)


class Two:
    """A head and a node that joins it, on hosts of their own."""

    def __init__(self, hosts: Hosts, project: Path):
        self.hosts, self.project, self.head = hosts, project, f"{hosts.address('one')}:29400"

    def begin(self, name: str) -> subprocess.Popen:
        folder = self.project if name == "one" else self.project.parent / f"{self.project.name}-other"
        command = ["components.pretrain", "gpt"] if name == "one" else ["pipelines.cli", "join", self.head, "--wait", "100"]
        env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return self.hosts.start(name, sys.executable, "-m", *command, cwd=folder, log=folder / "said.txt", **env)


@pytest.fixture
def two(project, tmp_path_factory) -> Iterator[Two]:
    with Hosts(tmp_path_factory.mktemp("hosts"), "one", "two") as hosts:
        yield Two(hosts, project)


@pytest.mark.cluster
@pytest.mark.parametrize("names", ["", "127.0.1.1 one two"], ids=["no names", "Debian's names"])
def test_two_hosts_train_as_one_process(project, two, names):
    """With addresses of their own; what their names stand for leads nowhere, and gloo alone would go by it."""
    alone, _ = single()
    (two.hosts.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}\n")
    write_params(**SETTINGS, run=nodes(0) | {"rendezvous": {"head": two.head, "wait": 120}})
    other = another(project)
    head, node = two.begin("one"), two.begin("two")
    until(lambda: head.poll() is not None and node.poll() is not None)
    assert (head.returncode, node.returncode) == (0, 0), said(project) + said(other)
    assert f"joined pretrain@gpt of {two.head}" in said(other)
    same("gpt", alone)


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["one", "two"], ids=["the head", "the other"])
def test_a_host_is_cut_off(project, two, name):
    """A power cut, of which nobody hears. The head goes on alone; without a head the other one waits for the next."""
    alone, _ = single()
    write_params(**SETTINGS, run=nodes(0) | {"rendezvous": {"head": two.head, "wait": 120, "min_nodes": 2 if name == "one" else 1}})
    other = another(project)
    head, node = two.begin("one"), two.begin("two")
    until_saved(6, project, other, head, node)
    two.hosts.lose(name)
    if name == "one":
        until(lambda: f"{two.head} went away; waits for it" in said(other))
        two.hosts.add("one")
        head = two.begin("one")
    until(lambda: head.poll() is not None and node.poll() is not None)
    assert head.returncode == 0 and (name == "two" or node.returncode == 0), said(project) + said(other)
    assert "resumed at step" in said(project), said(project)
    same("gpt", alone)


def until_saved(step: int, project: Path, other: Path, *nodes: subprocess.Popen) -> None:
    """Wait for the head's save of a step, as long as all nodes live."""

    def saved() -> bool:
        assert all(node.poll() is None for node in nodes), said(project) + said(other)
        return any(
            torch.load(last, weights_only=False)["global_step"] >= step for last in project.glob(".sesame/checkpoints/gpt-*/last.ckpt")
        )

    until(saved)


@pytest.mark.cluster
@pytest.mark.parametrize("min_nodes", [2, 1], ids=["comes back", "is gone"])
def test_a_node_is_killed_and_the_training_goes_on(project, min_nodes):
    """kill -9 of an agent, which takes its processes along: from the last save the others go on, with another or by themselves."""
    alone, _ = single()
    port = free_port()
    write_params(**SETTINGS, run=nodes(port, min_nodes=min_nodes))
    other = another(project)
    with running(project, "components.pretrain", "gpt") as head:
        with joining(other, port) as node:
            until_saved(6, project, other, head, node)
            workers = psutil.Process(node.pid).children(recursive=True)
            node.kill()
            until(lambda: not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers), 10)
        if min_nodes == 1:
            assert head.wait() == 0, said(project)
        else:
            with joining(other, port) as node:
                assert (head.wait(), node.wait()) == (0, 0), said(project) + said(other)
    assert "another process of this training was lost in step" in said(project), said(project)
    assert "resumed at step" in said(project) and "Traceback" not in said(project), said(project)
    same("gpt", alone)


@pytest.mark.cluster
def test_a_node_that_joins_later_is_taken_in(project):
    """By a training that has gone on without it: both go on from the last save."""
    budget = {"budget": {"steps": 400}}
    alone, _ = single(**budget)
    port = free_port()
    write_params(**SETTINGS | budget, run=nodes(port, min_nodes=1))
    other = another(project)
    with running(project, "components.pretrain", "gpt") as head:
        with joining(other, port) as node:
            until_saved(6, project, other, head, node)
            node.kill()
        until(lambda: "resumed at step" in said(project))
        with joining(other, port) as node:
            assert (head.wait(), node.wait()) == (0, 0), said(project) + said(other)
    assert said(project).count("resumed at step") >= 2, said(project)
    same("gpt", alone)


@pytest.mark.cluster
def test_restarts_come_to_an_end(project):
    write_params(budget={"steps": 10000}, run=nodes(free_port(), restarts=0) | {"num_nodes": 1, "devices": 2})
    with running(project, "components.pretrain", "gpt") as head:
        until_saved(1, project, project, head)
        for worker in psutil.Process(head.pid).children(recursive=True):
            if worker.environ().get("LOCAL_RANK") == "1":
                worker.kill()
        assert head.wait() not in (0, 75), said(project)
    assert "0 restarts did not help" in said(project) and "Traceback" not in said(project), said(project)


@pytest.mark.cluster
def test_the_head_is_killed_and_begun_again(project):
    """Its processes go with it, and the node that had joined waits for the next head of the same training."""
    alone, _ = single()
    port = free_port()
    write_params(**SETTINGS, run=nodes(port))
    other = another(project)
    with joining(other, port) as node:
        with running(project, "components.pretrain", "gpt") as head:
            until_saved(6, project, other, head, node)
            workers = psutil.Process(head.pid).children(recursive=True)
            head.kill()
            until(lambda: not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers), 10)
        with running(project, "components.pretrain", "gpt") as head:
            assert (head.wait(), node.wait()) == (0, 0), said(project) + said(other)
    assert f"127.0.0.1:{port} went away; waits for it" in said(other) and "resumed at step" in said(project)
    same("gpt", alone)


@pytest.mark.cluster
def test_a_head_that_is_stopped_ends_all(project):
    """As a flow stops a stage: no node is left waiting or training."""
    port = free_port()
    write_params(budget={"steps": 10000}, run=nodes(port))
    other = another(project)
    with running(project, "components.pretrain", "gpt") as head, joining(other, port) as node:
        until_saved(1, project, other, head, node)
        workers = [worker for process in (head, node) for worker in psutil.Process(process.pid).children(recursive=True)]
        head.terminate()
        assert head.wait() == 143 and node.wait() == 1, said(project) + said(other)
        assert "pretrain@gpt was stopped on 127.0.0.1" in said(other)
        assert workers and not any(worker.is_running() for worker in workers)


@pytest.mark.cluster
def test_a_save_of_two_ranks_goes_on_with_one_and_with_four(project, start):
    """Four are two on each of two nodes, one of which has no save until the head sends it."""
    alone, _ = single()
    write_params(**SETTINGS, run={"devices": 2, "log_every": 4})
    killed("gpt", start)
    port = free_port()
    shutil.copytree(".sesame", "saved")
    write_params(**SETTINGS)
    one = pretrain("gpt")
    assert one.returncode == 0 and "resumed at step" in one.stdout, one.stdout + one.stderr
    same("gpt", alone)
    shutil.rmtree("data/models/gpt")
    shutil.copytree("saved", ".sesame", dirs_exist_ok=True)
    write_params(**SETTINGS, run=nodes(port, devices=2))
    other = another(project)
    with running(project, "components.pretrain", "gpt") as head, joining(other, port) as node:
        assert (head.wait(), node.wait()) == (0, 0), said(project) + said(other)
    assert "resumed at step" in said(project)
    same("gpt", alone)
    assert not list(other.glob(".sesame/checkpoints/*"))


@pytest.mark.cluster
def test_what_is_wrong_in_the_training_ends_all_nodes_at_once(project):
    """Not tried again, since it would fail again: said on either, with the stage's own exit code."""
    port = free_port()
    wrong = {"optimizer": {"learning_rate": 1.0, "weight_decay": 1e20, "warmup": 0.0}}
    write_params(**SETTINGS | wrong, run=nodes(port))
    other = another(project)
    with running(project, "components.pretrain", "gpt") as head, joining(other, port) as node:
        assert head.wait() == 2 and node.wait() == 1, said(project) + said(other)
    assert "not a number at step" in said(project) and "not a number at step" in said(other)
    assert "Traceback" not in said(project) + said(other) and not Path("data/models/gpt").exists()


def described(**changes) -> dict:
    settings = {"models.gpt.seed": 1, "models.gpt.run.devices": 1}
    own = {"commit": "a" * 40, "code": "c", "settings": settings, "torch": "2.13.0", "inputs": {"data/encoded/tiny": "x"}}
    return own | changes


@pytest.mark.parametrize(
    ("own", "line"),
    [
        ({"commit": "b" * 40}, "n:1 trains with commit aaaaaaaaaaaa, here is bbbbbbbbbbbb: check that out first"),
        ({"commit": ""}, "trains with commit aaaaaaaaaaaa, here is none"),
        (
            {"settings": {"models.gpt.seed": 2, "models.gpt.run.devices": 1}},
            "n:1 trains with models.gpt.seed 1, in params.yaml here it is 2",
        ),
        ({"settings": {"models.gpt.seed": 1}}, "trains with models.gpt.run.devices 1, in params.yaml here it is None"),
        ({"code": "d"}, "n:1 runs other code than this node, though the commit is the same"),
        ({"torch": "2.12.0"}, "n:1 has torch 2.13.0, here is 2.12.0"),
        ({"inputs": {"data/encoded/tiny": "y"}}, "data/encoded/tiny differs from the file on n:1"),
        ({"inputs": {"data/encoded/tiny": ""}}, r"data/encoded/tiny is missing on this node: bring it from n:1 \(`dvc push` there"),
    ],
)
def test_a_node_that_has_not_what_the_head_has_is_refused(own, line):
    agreement.check_same(described(), described(), "n:1")
    with pytest.raises(SesameError, match=line):
        agreement.check_same(described(**own), described(), "n:1")


@contextmanager
def head_of(training: dict) -> Iterator[str]:
    """A store as a head has it."""
    port = free_port()
    store = head_store.open_store("127.0.0.1", port)
    store.set(head_store.TRAINING, json.dumps(training))
    yield f"127.0.0.1:{port}"


def test_joining_compares_the_folder_with_the_head(project, monkeypatch):
    """The head's description is made by the same function over its own files: one byte of the encoding changed is seen."""
    write_params(run=nodes(29400))
    training = {"stage": "pretrain", "section": "models", "name": "gpt", "attempt": "1", "command": []}
    training |= agreement.description(params.load(), "pretrain", "models", "gpt", ["data/encoded/tiny"])
    began = []
    monkeypatch.setattr(agent, "launch_agent", lambda config, *_: began.append(config.local_addr))
    with head_of(training) as head:
        launch.join(head, 1)
        assert len(began) == 1 and began[0] > "z", "numbered behind the head"
        for file, line in (("train-00000.bin", "data/encoded/tiny differs from the file"), (None, "data/encoded/tiny is missing")):
            if file:
                path = Path("data/encoded/tiny", file)
                path.write_bytes(path.read_bytes()[:-1] + b"x")
            else:
                shutil.rmtree("data/encoded/tiny")
            with pytest.raises(SesameError, match=line):
                launch.join(head, 1)
    with (
        head_of(training | {"name": "palm"}) as head,
        pytest.raises(SesameError, match="trains models.palm, which params.yaml here does not"),
    ):
        launch.join(head, 1)
    assert len(began) == 1


@pytest.mark.parametrize(("said", "line"), [
    (b"SSH-2.0-OpenSSH_9.0\r\n", r"127.0.0.1:\d+ answers, but is no head of a training"),
    (None, r"127.0.0.1:\d+ can't be reached for 0.2 s .*; does the training run there\?"),
    (b"", r"127.0.0.1:\d+ can't be reached for 0.2 s \(timed out\); does the training run there\?"),
])  # fmt: skip
def test_another_server_in_the_place_of_a_head_is_a_line(capfd, said, line):
    """One that speaks of itself, one that closes, one that waits for more: torch shows its stack, or waits for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            kept = []
            with suppress(OSError):
                while True:
                    connected, _ = server.accept()
                    if said is None:
                        connected.close()
                        continue
                    connected.sendall(said)
                    kept.append(connected)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(SesameError, match=line):
            launch.join(f"127.0.0.1:{server.getsockname()[1]}", 0.2)
    assert capfd.readouterr().err == ""


def test_a_head_that_is_not_there_is_a_line():
    port = free_port()
    with pytest.raises(SesameError, match=rf"127.0.0.1:{port} can't be reached for 0.2 s .*; does the training run there\?"):
        launch.join(f"127.0.0.1:{port}", 0.2)
    for address in ("here", "here:\u00b2"):  # a digit by `isdigit`, and no number
        with pytest.raises(SesameError, match=f"'{address}' is not the address of a head; write HOST:PORT, e.g. 10.0.0.1:29400"):
            launch.join(address, 1)


def test_a_port_that_is_taken_and_a_name_that_is_nobodys_are_lines(project):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        write_params(run=nodes(port))
        done = pretrain("gpt")
        assert done.returncode == 2 and f"port {port} is taken on this node" in done.stderr, done.stderr
    done = pretrain("gpt", SESAME_HEAD="no-such-host.invalid:29400")
    assert done.returncode == 2 and "no-such-host.invalid can't be found" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ({"num_nodes": 2}, "num_nodes 2 need a launcher"),
        ({"launcher": "torchrun", "num_nodes": 3}, "batch_size 8 is not divisible by 3"),
        ({"launcher": "torchrun", "num_nodes": 2, "rendezvous": {"min_nodes": 3}}, "min_nodes 3 is more than num_nodes 2"),
        (
            {"launcher": "torchrun", "num_nodes": 4, "rendezvous": {"min_nodes": 3}},
            "must be a multiple of each number of devices, as 12 is",
        ),
        ({"launcher": "torchrun", "rendezvous": {"head": "nowhere"}}, "rendezvous.head"),
    ],
)
def test_settings_that_cannot_be_are_lines(run, line):
    raw = tiny_params()
    raw["models"]["gpt"]["run"] |= run
    with pytest.raises(SesameError, match=line):
        params.check(raw)


def test_a_stage_of_one_process_within_a_slurm_job_is_no_task_of_it(project, monkeypatch):
    """A pool's worker that `srun` has started four of: the third trains by itself, and writes."""
    write_params(budget={"steps": 2})
    for key, value in {"PROCID": "2", "NTASKS": "4", "NTASKS_PER_NODE": "4", "LOCALID": "2", "NODEID": "0", "JOB_ID": "7"}.items():
        monkeypatch.setenv(f"SLURM_{key}", value)
    done = pretrain("gpt")
    assert done.returncode == 0 and Path("data/models/gpt/model.safetensors").exists(), done.stderr
    assert Path("data/metrics/pretrain/gpt.json").exists()


def test_a_stage_that_is_not_launched_says_so(project):
    """A variant or a derived model takes the block of a model over, and its launcher with it."""
    raw = tiny_params()
    raw["models"]["bert"]["run"] |= {"launcher": "torchrun"}
    Path("params.yaml").write_text(json.dumps(raw))
    done = run_stage("components.studies.variant", "rate-15-1")
    assert done.returncode == 2 and "run.launcher torchrun is for the stage `pretrain` alone" in done.stderr, done.stderr


# Saves that are sent elsewhere


@contextmanager
def bucket(monkeypatch) -> Iterator[str]:
    import boto3

    with s3_server() as address:
        own = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}
        for key, value in own.items():
            monkeypatch.setenv(f"AWS_{key}", value)
        boto3.client("s3").create_bucket(Bucket="lab")
        yield "s3://lab/saves"


def stored(address: str) -> list[str]:
    import fsspec

    files, root = fsspec.url_to_fs(address, use_listings_cache=False)
    return files.find(root)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_killed_here_and_resumed_elsewhere(project, start, kind, monkeypatch):
    """kill -9 in one folder, and the training goes on in another, bit for bit; the store is empty at the end."""
    settings = {"budget": {"steps": 60}}
    write_params(**settings)
    assert pretrain("gpt").returncode == 0
    whole = weights("gpt")
    shutil.rmtree("data/models/gpt")
    with bucket(monkeypatch) if kind == "s3" else nullcontext(str(project.parent / f"{project.name}-store")) as address:
        write_params(**settings, run={"checkpoints_to": address, "send_seconds": 0.001})
        child = start("-m", "components.pretrain", "gpt")
        until(lambda: any(path.endswith(".tar") for path in stored(address)))
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        other = another(project)
        monkeypatch.chdir(other)
        again = pretrain("gpt")
        assert again.returncode == 0 and "fetched from" in again.stdout and "resumed at step" in again.stdout, again.stdout + again.stderr
        assert stored(address) == []
    assert all(torch.equal(value, weights("gpt")[key]) for key, value in whole.items())


def test_the_newest_save_goes_on_with_the_models_kept_on_the_way(tmp_path):
    """Sent from one folder, fetched into another that has an older save and one of the models; a newer one stays."""
    here, there, store = tmp_path / "here/gpt-1", tmp_path / "there/gpt-1", tmp_path / "store"

    def save(folder: Path, step: int, *kept: str) -> None:
        for name in ("", *kept):
            (folder / "kept" / name).mkdir(parents=True, exist_ok=True)
            (folder / "kept" / name / "figures").write_text(f"{name} of {folder.parent.name}") if name else None
        torch.save({"global_step": step}, folder / "last.ckpt")

    sender = RemoteCheckpoints(str(store), here, 0.001)
    for step, kept in ((6, ["600"]), (12, ["600", "1200"])):
        save(here, step, *kept)
        time.sleep(0.002)
        sender.send(step)
        sender.upload.join()
    assert [path.name for path in store.rglob("*.*")] == ["12.tar"] and {path.name for path in here.iterdir()} == {"last.ckpt", "kept"}
    save(there, 9, "600")
    fetcher = RemoteCheckpoints(str(store), there, 60)
    fetcher.fetch()
    assert torch.load(there / "last.ckpt")["global_step"] == 12
    assert [(there / "kept" / name / "figures").read_text() for name in ("600", "1200")] == ["600 of there", "1200 of here"]
    save(there, 15)
    fetcher.fetch()
    assert torch.load(there / "last.ckpt")["global_step"] == 15
    (store / "gpt-1/99.tar").write_bytes(b"half a save")
    with pytest.raises(SesameError, match="99.tar can't be read .*; remove it"):
        fetcher.fetch()
    fetcher.remove()
    assert not (store / "gpt-1").exists()


class Runs:
    """What a pickle does as it is read."""

    def __reduce__(self):
        return Path("ran").touch, ()


@pytest.mark.parametrize(
    ("planted", "said"),
    [(Runs(), "has no readable checkpoint"), (None, "has no readable"), ({"global_step": 5}, "is the checkpoint of step 5")],
)
def test_a_save_from_elsewhere_runs_no_code(tmp_path, monkeypatch, planted, said):
    monkeypatch.chdir(tmp_path)
    Path("store/gpt-1").mkdir(parents=True)
    Path("gpt-1").mkdir()
    with tarfile.open("store/gpt-1/99.tar", "w") as whole:
        if planted:
            torch.save(planted, "last.ckpt")
            whole.add("last.ckpt")
    with pytest.raises(SesameError, match=rf"gpt-1/99.tar {said}.*; remove it"):
        RemoteCheckpoints("store", Path("gpt-1"), 60).fetch()
    if planted:
        Path("last.ckpt").replace("gpt-1/last.ckpt")
        with pytest.raises(SesameError, match="last.ckpt can't be read .*remove the folder"):
            check_checkpoint(Path("gpt-1/last.ckpt"))
    assert not Path("ran").exists()


@pytest.mark.long
def test_a_store_that_fails_costs_a_line_and_one_that_cannot_be_read_the_start(project, monkeypatch):
    write_params(run={"checkpoints_to": "s3://nobody/x", "send_seconds": 0.001})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    done = pretrain("gpt")
    assert done.returncode == 75 and "run.checkpoints_to: s3://nobody/x can't be read" in done.stderr, done.stderr
    write_params(run={"checkpoints_to": "no://where"})
    done = pretrain("gpt")
    assert done.returncode == 2 and "run.checkpoints_to: no://where: " in done.stderr, done.stderr
    write_params(run={"checkpoints_to": "http://127.0.0.1:9/x"})  # of which fsspec lists nothing, and does not say why
    done = pretrain("gpt")
    assert done.returncode == 75 and "run.checkpoints_to: http://127.0.0.1:9/x can't be read and written" in done.stderr, done.stderr


def test_a_store_that_fails_later_costs_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreachable, match="run.checkpoints_to: ftp://127.0.0.1:9/x can't be reached"):
        RemoteCheckpoints("ftp://127.0.0.1:9/x", Path("gpt-1"), 0)
    Path("gpt-1").mkdir()
    afar = RemoteCheckpoints("store", Path("gpt-1"), 0)
    afar.fetch()
    assert not [path for path in Path("store").rglob("*") if path.is_file()]  # nothing is left of the question whether it can be written to
    shutil.rmtree("store")
    Path("store").write_text("a file, and no folder")
    Path("gpt-1/last.ckpt").write_text("a save")
    afar.send(1)
    afar.upload.join()
    assert "training continues, and the next checkpoint is sent again" in capsys.readouterr().out


def test_launched_is_no_variable_of_this_process():
    """Or the tests above would say nothing."""
    assert LAUNCHED not in os.environ
