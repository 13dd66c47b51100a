"""Stages on other machines: a real pool, workers in clones of their own with caches of their own, a remote in S3 between them."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil
import pytest
import requests

from components.core.errors import SesameError
from pipelines.execution import graph, lockfile
from pipelines.machines import parcel, pools
from tests.conftest import free_port, s3_server, tiny_params
from tests.pipelines.conftest import BIN, Lab, serve, whole, write_params
from tests.waiting import until

cluster = pytest.mark.cluster

STAGES = """
  raw: {cmd: cp first.txt raw.out, deps: [first.txt], outs: [raw.out]}
  side:
    foreach: [a, b]
    do: {cmd: "python meet.py ${item}", deps: [raw.out, meet.py], outs: ["${item}.out", "data/metrics/${item}.json": {cache: false}]}
  both: {cmd: "pwd > $MEETING/both; cat a.out b.out > both.out", deps: [a.out, b.out], outs: [both.out], meta: {resource: gpu}}
  page: {cmd: "cat data/metrics/a.json data/metrics/b.json both.out > page.out", deps: [data/metrics, both.out], outs: [page.out]}
"""
MEET = """
import os, sys, time
from pathlib import Path
name, there = sys.argv[1], Path(os.environ["MEETING"])
(there / name).write_text(os.getcwd())
print("waits for the other one", flush=True)
while not all((there / other).exists() for other in "ab"):  # that is, while the other does not run at the same time
    time.sleep(0.05)
Path(f"{name}.out").write_text(Path("raw.out").read_text() + name)
Path("data/metrics").mkdir(parents=True, exist_ok=True)
Path(f"data/metrics/{name}.json").write_text('{"name": "%s"}' % name)
"""


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout


class Hosts:
    """A coordinator and workers, each with a clone of a bare repository; DVC's data goes through S3."""

    def __init__(self, lab: Lab, folder: Path, s3):
        self.lab, self.folder, self.s3, self.workers = lab, folder, s3, {}
        self.pool = f"pool-{os.getpid()}-{folder.name}".replace("_", "-")[:60].rstrip("-")

    def commit(self, text: str) -> None:
        git(self.lab.path, "add", "-A")
        git(self.lab.path, "commit", "-qm", text)
        git(self.lab.path, "push", "-q", "origin", "HEAD:main")

    def clone(self, name: str) -> Path:
        git(self.folder, "clone", "-q", "-b", "main", str(self.folder / "origin.git"), name)
        return self.folder / name

    def worker(self, name: str, **env: str) -> psutil.Process:
        """Start one in a clone of its own."""
        folder = self.folder / name
        if not folder.exists():
            self.clone(name)
        log = open(self.folder / f"{name}.log", "a")  # noqa: SIM115, the worker's as long as it lives
        options = ["worker", self.pool, *env.pop("OPTIONS", "").split()]
        own = os.environ | self.lab.env | env
        process = subprocess.Popen([BIN / "sesame", *options], cwd=folder, env=own, stdout=log, stderr=subprocess.STDOUT)
        self.workers[name] = psutil.Process(process.pid)
        return self.workers[name]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def at_work(self) -> list[psutil.Process]:
        """What lives in the workers' worktrees."""
        found = []
        for process in psutil.process_iter(["cwd", "status"]):
            if "/.sesame/pool/" in (process.info["cwd"] or "") and str(self.folder) in process.info["cwd"]:
                found += [process] if process.info["status"] != psutil.STATUS_ZOMBIE else []
        return found


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def hosts(lab, s3, tmp_path) -> Iterator[Hosts]:
    lab.env |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    client = boto3.client("s3", endpoint_url=s3, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    hosts = Hosts(lab, tmp_path, client)
    hosts.s3.create_bucket(Bucket=hosts.pool)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(lab.path, "remote", "add", "origin", str(tmp_path / "origin.git"))
    for args in (["remote", "add", "-q", "--default", "store", f"s3://{hosts.pool}/dvc"], ["remote", "modify", "store", "endpointurl", s3]):
        subprocess.run([BIN / "dvc", *args], cwd=lab.path, check=True)
    lab.write("params.yaml", lab.read("params.yaml").replace("run_on: here", f"run_on: {hosts.pool}"))
    lab.write("meet.py", MEET).write("first.txt", "one ").stages(STAGES)
    lab.env["MEETING"] = str(tmp_path / "meeting")
    (tmp_path / "meeting").mkdir()
    hosts.commit("stages")
    yield hosts
    for process in hosts.workers.values():
        for own in [*process.children(recursive=True), process] if process.is_running() else []:
            own.kill()


@cluster
@pytest.mark.parametrize("apart", ["", "an hour"])
def test_two_workers(hosts, apart):
    """Both work at once; the lock file is a single machine's; a fresh clone pulls and has nothing to do. So it is when clocks differ."""
    lab, clocks = hosts.lab, ({}, {})
    if apart:
        found = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            pytest.skip("Debian's package `faketime` is not installed: apt-get install faketime")
        clocks = tuple({"LD_PRELOAD": str(found[0]), "FAKETIME": offset} for offset in ("+1h", "-1h"))
    lab.write("first.txt", "two ")  # not committed: goes along
    hosts.worker("one", OPTIONS="--queue default", **clocks[0])
    hosts.worker("two", **clocks[1])
    output = lab.sesame("run")
    assert "5 stages: 0 cached, 5 done, 0 failed" in output
    assert set(lab.states(output).values()) == {"Completed"}
    assert "[side@a] waits for the other one" in output and len(set(re.findall(r"\[side@[ab]\] on (\S+)", output))) == 2
    folders = {(hosts.folder / "meeting" / name).read_text() for name in "ab"}
    assert folders == {str(hosts.folder / name / ".sesame/pool/0") for name in ("one", "two")}
    assert (hosts.folder / "meeting/both").read_text().strip() == str(hosts.folder / "two/.sesame/pool/0")  # the other takes no gpu stages
    assert lab.read("data/metrics/a.json") == '{"name": "a"}' and lab.read("page.out").endswith("two atwo b")
    assert not (lab.path / "raw.out").exists() and git(hosts.folder / "one", "status", "--short") == ""
    pooled = lab.read("dvc.lock")
    assert "5 stages, all unchanged" in lab.sesame("plan")
    assert "5 stages: 5 cached, 0 done" in lab.sesame("run")

    alone = Path(shutil.copytree(lab.path, hosts.folder / "alone", ignore=shutil.ignore_patterns(".sesame", "dvc.lock", "*.out", "cache")))
    params = (alone / "params.yaml").read_text()
    (alone / "params.yaml").write_text(re.sub("run_on: .*", "run_on: here", params))
    Lab(alone, lab.env, lab.forks).sesame("run")
    assert (alone / "dvc.lock").read_text() == pooled

    hosts.commit("results")
    fresh = hosts.clone("fresh")
    subprocess.run([BIN / "dvc", "pull", "-q"], cwd=fresh, check=True, env=os.environ | lab.env)
    params = (fresh / "params.yaml").read_text()
    (fresh / "params.yaml").write_text(re.sub("run_on: .*", "run_on: here", params))
    assert "5 stages: 5 cached, 0 done" in Lab(fresh, lab.env, lab.forks).sesame("run")
    until(lambda: not hosts.at_work())


TRAIN = """
import os, sys, time
from pathlib import Path
state = Path(os.environ["SAVES"]) / "step"
step = int(state.read_text()) if state.exists() else 0
with open(Path(os.environ["SAVES"]) / "log", "a") as log:
    log.write(f"begins at {step}\\n")
while step < 40:
    step += 1
    temporary = state.with_suffix(".tmp")
    temporary.write_text(str(step))
    temporary.replace(state)
    time.sleep(0.1 if not Path(os.environ["SAVES"], "hold").exists() or step < 5 else 3600)
Path("model.out").write_text(str(step))
"""
TRAINED = "  model: {cmd: python train.py, deps: [train.py], outs: [model.out]}\n"


@pytest.fixture
def training(hosts) -> Hosts:
    """A stage that saves where it is in a store that both workers see, and stands still when it is told to."""
    hosts.lab.env["SAVES"] = str(hosts.folder / "saves")
    (hosts.folder / "saves").mkdir()
    (hosts.folder / "saves/hold").touch()
    hosts.lab.write("train.py", TRAIN).stages(TRAINED)
    hosts.commit("a training")
    return hosts


def begun(hosts: Hosts, times: int = 1) -> None:
    log = hosts.folder / "saves/log"
    until(lambda: log.exists() and len(log.read_text().splitlines()) >= times)
    until(lambda: (hosts.folder / "saves/step").exists() and int((hosts.folder / "saves/step").read_text()) >= 5)


@cluster
@pytest.mark.parametrize("what", ["worker", "machine"])
def test_killed(training, what):
    """The other worker goes on from where the stage was; nothing of the killed one lives on."""
    first = training.worker("one")
    run = training.lab.start("run")
    begun(training)
    for process in [first, *(first.children(recursive=True) if what == "machine" else [])]:
        process.kill()
    (training.folder / "saves/hold").unlink()
    training.worker("two")
    output = training.lab.ended(run, code=0)
    said = r"worker \S+ is offline" if what == "machine" else r"worker \S+ was killed or has ended"
    assert re.search(rf"\[model\] lost: {said}; sent again", output), output
    assert "1 stage: 0 cached, 1 done" in output
    assert (training.folder / "saves/log").read_text().splitlines() == ["begins at 0", "begins at 5"]
    assert not (training.folder / "one/.sesame/pool/0/model.out").exists()
    until(lambda: not training.at_work())


@cluster
def test_cancelled(training):
    """From here by Ctrl-C's signal, nothing works on there; the run in the pool says so."""
    training.worker("one")
    run = training.lab.start("run")
    begun(training)
    run.send_signal(signal.SIGINT)
    output = training.lab.ended(run, code=130)
    assert "1 stopped" in output
    assert not training.at_work() and not (training.lab.path / "dvc.lock").exists()
    (training.folder / "saves/hold").unlink()
    assert "1 stage: 0 cached, 1 done" in training.lab.sesame("run")  # the worker is well


@cluster
def test_a_flow_is_killed(hosts):
    """Its stage goes on there; the next flow sends it again, and the worker has it in its cache."""
    lab, meeting = hosts.lab, hosts.folder / "meeting"
    command = "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo ran >> ran"
    command = f"(cd $MEETING; {command}); echo > model.out"
    lab.stages(f'  model: {{cmd: "{command}", deps: [first.txt], outs: [model.out]}}\n')
    hosts.commit("one stage")
    hosts.worker("one")
    run = lab.start("run")
    until((meeting / "begun").exists)
    run.kill()
    run.wait()
    (meeting / "go").touch()
    until(lambda: (meeting / "ran").exists() and not hosts.at_work())
    assert "1 stage: 1 cached, 0 done" in lab.sesame("run")
    assert (meeting / "ran").read_text() == "ran\n"


@cluster
def test_refused(hosts):
    """What can't be done is one line, from here before anything runs or from the worker; nothing is written down; then all is well."""
    lab = hosts.lab
    lab.stages("  raw: {cmd: cp first.txt raw.out, deps: [first.txt], outs: [raw.out]}\n")
    hosts.commit("one stage")
    hosts.worker("one")
    config = lab.read(".dvc/config")
    lab.write(".dvc/config", config.replace("remote = store", ""))
    assert "there is none: `dvc remote add --default store ADDRESS`" in lab.sesame("run", code=1)
    lab.write(".dvc/config", config).write("new.txt", "needed").stages(f"{STAGES}  more: {{cmd: 'true', deps: [new.txt]}}\n")
    assert "stages need files that git does not have (new.txt)" in lab.sesame("run", code=1)
    (lab.path / "new.txt").unlink()
    lab.stages("  raw: {cmd: cp first.txt raw.out, deps: [first.txt], outs: [raw.out], meta: {retries: 1}}\n")

    lab.write("first.txt", "three ")
    git(lab.path, "commit", "-qam", "not pushed")
    assert re.search(
        r"failed: \S+: commit \w{10} can't be fetched from \S+origin.git: `git "
        r"push` it",
        lab.sesame("run", code=1),
    )
    lab.write("constraints.txt", "torch==1.0\n")
    hosts.commit("other libraries")
    assert re.search(
        r"failed: \S+: constraints.txt of the sent commit differs from that in \S+/one: run `git pull", lab.sesame("run", code=1)
    )
    git(hosts.folder / "one", "pull", "-q")

    hosts.s3.delete_bucket(Bucket=hosts.pool)
    output = lab.sesame("run", code=1)
    assert re.search(r"\[raw\] failed: .*; trying again \(1 of 1\)", output) and re.search(r"\[raw\] failed: \S+: DVC: ", output)
    assert not (lab.path / "dvc.lock").exists() and not (lab.path / "raw.out").exists()
    hosts.s3.create_bucket(Bucket=hosts.pool)
    assert "1 stage: 1 cached, 0 done" in lab.sesame("run")  # the worker had kept what it could not send


@cluster
def test_a_store_that_is_new(hosts):
    """What the lock file knows and nobody has is made anew, in a clone where nothing ever ran; what is not needed is left."""
    lab, pooled = hosts.lab, hosts.lab.read("params.yaml")
    parts = "  {name}: {{cmd: 'mkdir -p {name}; cp first.txt {name}/x', deps: [first.txt], outs: [{name}]}}\n"
    stages = "".join(map(lambda name: parts.format(name=name), ("one", "two")))
    lab.write("params.yaml", re.sub("run_on: .*", "run_on: here", pooled))
    lab.stages(stages + "  both: {cmd: 'cat one/x > both.out', deps: [one], outs: [both.out]}\n").sesame("run")
    lab.write("params.yaml", pooled)
    lab.stages(stages + "  both: {cmd: 'cat one/x one/x > both.out', deps: [one], outs: [both.out]}\n")
    hosts.commit("results, and a change")
    fresh = Lab(hosts.clone("fresh"), lab.env, lab.forks)
    hosts.worker("one")
    output = fresh.sesame("run")
    assert "run again, as their outputs are neither here nor in DVC's remote: one" in output
    assert "3 stages: 1 cached, 2 done" in output
    assert "3 stages: 3 cached" in fresh.sesame("run")
    fresh.env = lab.env | {"AWS_SECRET_ACCESS_KEY": "", "AWS_ACCESS_KEY_ID": "", "HOME": str(hosts.folder)}
    fresh.stages(stages + "  both: {cmd: 'cp one/x both.out', deps: [one], outs: [both.out]}\n")
    assert "DVC's remote can't be asked (" in fresh.sesame("run", code=1)


@cluster
def test_many_stages_wait_at_home(hosts):
    """And not at Prefect's server, which would answer every question of a worker with all of them: a few of each queue do."""
    numbers = range(pools.QUEUED + 3)
    resource = {0: "gpu", 1: "gpu"}
    stages = [
        f"  s{n}: {{cmd: cp first.txt {n}.out, deps: [first.txt], outs: [{n}.out], meta: {{resource: {resource.get(n, 'null')}}}}}\n"
        for n in numbers
    ]
    hosts.lab.stages("".join(reversed(stages)))  # those of the other queue last, and sent all the same
    hosts.commit("stages")
    flow = hosts.lab.start("run", MLFLOW_TRACKING_URI="http://joe:s3cret@127.0.0.1:9")

    def sent() -> list[dict[str, str]]:
        asked = requests.post(f"{hosts.lab.env['PREFECT_API_URL']}/work_pools/{hosts.pool}/get_scheduled_flow_runs", json={})
        return [own["flow_run"]["parameters"] for own in asked.json()] if asked.ok else []

    def waiting() -> list[str]:
        return sorted(own["name"] for own in sent())

    until(lambda: len(waiting()) == pools.QUEUED + 2)
    time.sleep(2)
    first = waiting()
    assert len(first) == pools.QUEUED + 2 and {"s0", "s1"} < set(first)
    ledgers = {parcel.Order.unpacked(own["order"]).env["MLFLOW_TRACKING_URI"] for own in sent()}
    assert ledgers == {"http://127.0.0.1:9"}, "without its password"
    hosts.worker("one")
    until(lambda: set(waiting()) - set(first))  # for one that was taken another one is sent
    flow.send_signal(signal.SIGINT)
    assert ", 0 failed, " in hosts.lab.ended(flow, code=130)


@cluster
def test_a_full_queue_holds_up_no_other(hosts):
    """Nor what was done before, and what comes after that."""
    chains = "".join(
        f"  g{n}: {{cmd: cp first.txt g{n}.out, deps: [first.txt], outs: [g{n}.out], meta: {{resource: gpu}}}}\n"
        f"  x{n}: {{cmd: cp g{n}.out x{n}.out, deps: [g{n}.out], outs: [x{n}.out]}}\n"
        f"  y{n}: {{cmd: 'true', deps: [x{n}.out]}}\n"  # their ways are longer, so they go first
        for n in range(pools.QUEUED)
    )
    done = "  done: {cmd: cp first.txt done.out, deps: [first.txt], outs: [done.out], meta: {resource: gpu}}\n"
    hosts.lab.stages(f"{chains}{done}  after: {{cmd: cp done.out after.out, deps: [done.out], outs: [after.out]}}\n")
    hosts.commit("stages")
    of_all = hosts.worker("one")
    hosts.lab.sesame("run", "done")
    of_all.kill()
    hosts.worker("two", OPTIONS="--queue default")
    flow = hosts.lab.start("run")
    until(lambda: "after:" in (hosts.lab.path / "dvc.lock").read_text())
    flow.send_signal(signal.SIGINT)
    assert f"{2 + 3 * pools.QUEUED} stages: 1 cached, 1 done, 0 failed" in hosts.lab.ended(flow, code=130)


@cluster
def test_two_coordinators(hosts):
    """On one branch: each has its own lock file, what both ask for is made twice, and comes out the same."""
    lab = hosts.lab
    meet = "touch $MEETING/$$; while [ $(ls $MEETING | wc -l) -lt 2 ]; do sleep 0.1; done"  # that is, until both are at work
    lab.stages(f'  raw: {{cmd: "{meet}; cp first.txt raw.out", deps: [first.txt], outs: [raw.out]}}\n')
    hosts.commit("one stage")
    second = Lab(hosts.clone("second"), lab.env, lab.forks)
    for name in ("one", "two"):
        hosts.worker(name)
    runs = [each.start("run") for each in (lab, second)]
    assert all("1 stage: 0 cached, 1 done" in lab.ended(run, code=0) for run in runs)
    assert lab.read("dvc.lock") == second.read("dvc.lock")


def test_entry_of_another_graph(inside):
    """Is not written down, whatever it differs in."""
    inside.stages("  a: {cmd: echo > a.out, outs: [a.out]}\n  b: {cmd: cp a.out b.out, deps: [a.out], outs: [b.out]}\n")
    subprocess.run([BIN / "dvc", "repro", "-q"], check=True)
    [a, b] = graph.plan()
    entries = lockfile.plain(Path("dvc.lock"))
    lines, md5 = entries["b"], re.search("md5: (.{32})", entries["b"]).group(1)
    order = parcel.Order("", "", b.address, "b", [a.address], {}, {"dvc.lock": entries}, False, None, {})
    assert pools._wrong(b, order, parcel.Answer(0, 1.0, entry=lines)) == ""
    for other, why in (
        (lines.replace("cp a.out", "mv a.out"), "it ran `mv a.out b.out` as b"),
        (lines.replace("  b:", "  c:", 1), "it ran `cp a.out b.out` as c"),
        (lines.replace("path: b.out", "path: c.out"), "it wrote other outputs, they differ in b.out, c.out"),
        (lines.replace(md5, "0" * 32, 1), "it read another version of a.out"),
    ):
        assert pools._wrong(b, order, parcel.Answer(0, 1.0, entry=other)) == why
    other = {
        "../b.out": "../b.out is not one of its outputs",
        "c.out": "c.out is not one of its outputs",
        "b.out": "b.out is not the file that its entry records",
    }
    for path, why in other.items():
        answer = parcel.Answer(0, 1.0, entry=lines, files={path: parcel.read(["dvc.yaml"])["dvc.yaml"]})
        assert pools._wrong(b, order, answer) == why
    assert pools._wrong(b, order, parcel.Answer(0, 1.0, entry=lines, files=parcel.read(["b.out"]))) == ""


def test_a_stage_whose_inputs_came_out_as_they_were(inside):
    """Is not sent; one that was never run, reads another file, or a folder of several stages, is."""
    inside.stages("  a: {cmd: echo > a.out, outs: [a.out]}\n  b: {cmd: cp a.out b.out, deps: [a.out], outs: [b.out]}\n")
    subprocess.run([BIN / "dvc", "repro", "-q"], check=True)
    [a, b] = graph.plan()
    entries = lockfile.plain(Path("dvc.lock"))

    def same(**changed: str) -> bool:
        sent = {name: lines for name, lines in (entries | changed).items() if lines}
        return pools._same(b, parcel.Order("", "", b.address, "b", [a.address], {}, {"dvc.lock": sent}, False, None, {}))

    assert same()
    assert not same(a=re.sub("md5: .{32}", f"md5: {'0' * 32}", entries["a"]))
    assert not same(b="")
    assert not same(a=entries["a"].replace("path: a.out", "path: d/a"), b=entries["b"].replace("path: a.out", "path: d"))


def test_a_parcel_comes_out_as_it_went_in(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(bytes(range(256)))
    files = parcel.read([tmp_path / "a", tmp_path / "none"])
    answer = parcel.Answer(0, 1.5, entry="  a:\n", files=files)
    assert parcel.Answer.unpacked(answer.packed()) == answer
    with pytest.raises(SesameError, match="the flow and the worker run different versions of Sesame: `git pull` where it is older"):
        parcel.Order.unpacked(answer.packed())
    assert {path: parcel.content(text) for path, text in files.items()} == {(tmp_path / "a/b").as_posix(): bytes(range(256))}


@cluster
def test_pretraining_goes_on_elsewhere(hosts):
    """A machine that dies in a pre-training: the other fetches its last save, and ends with the weights of one that was never disturbed."""
    lab, store = hosts.lab, hosts.folder / "saves"
    config = lab.read(".dvc/config")
    shutil.rmtree(lab.path / "studies", ignore_errors=True)
    raw = tiny_params(run_on=hosts.pool)
    raw["models"]["bert"] |= {"budget": {"steps": 1000}, "run": {**raw["models"]["bert"]["run"], "checkpoint_seconds": 0.2}}
    raw["models"]["bert"]["run"] |= {"checkpoints_to": str(store), "send_seconds": 0.2}
    whole(lab, raw)
    lab.env["SESAME_TRACKING"] = "off"
    lab.write(".dvc/config", config)
    hosts.commit("the tiny project")
    assert "git, which does not have it" in lab.sesame("run", "pretrain@bert", code=1)  # the entries have just been written
    write_params(lab, raw | {"run_on": "here"})
    lab.sesame("run", "encode@tiny")
    write_params(lab, raw)
    hosts.commit("entries of its stages, which the pool finds in the remote")
    first = hosts.worker("one")
    run = lab.start("run", "pretrain@bert")
    until(lambda: list(store.glob("*/*.tar")))
    for process in [first, *first.children(recursive=True)]:
        process.kill()
    hosts.worker("two")
    output = lab.ended(run, code=0)
    assert re.search(r"\[pretrain@bert\] lost: .*sent again", output) and "[pretrain@bert] checkpoint of step " in output, output
    assert not list(store.glob("*/*.tar"))
    subprocess.run([BIN / "dvc", "pull", "-q", "pretrain@bert"], cwd=lab.path, check=True, env=os.environ | lab.env)

    raw["run_on"], raw["models"]["bert"]["run"]["checkpoints_to"] = "here", None
    alone = Lab(hosts.clone("alone"), lab.env, lab.forks)
    write_params(alone, raw)
    alone.sesame("run", "pretrain@bert")
    weights = "data/models/bert/model.safetensors"
    assert (lab.path / weights).read_bytes() == (alone.path / weights).read_bytes()


@cluster
def test_prefect_is_killed(hosts):
    """While a stage ends, which nobody hears of: the worker tells it when the server is back."""
    lab, home, address = hosts.lab, hosts.folder / "prefect", f"http://127.0.0.1:{free_port()}"
    go, ended = hosts.folder / "meeting/go", hosts.folder / "meeting/ended"
    command = "touch $MEETING/begun; while [ ! -e $MEETING/go ]; do sleep 0.1; done; echo > model.out; touch $MEETING/ended"
    lab.stages(f'  model: {{cmd: "{command}", outs: [model.out]}}\n')
    hosts.commit("one stage")
    lab.env["PREFECT_API_URL"] = f"{address}/api"
    server = serve(home, address)
    try:
        hosts.worker("one")
        run = lab.start("run")
        until((hosts.folder / "meeting/begun").exists)
        server.kill()
        server.wait()
        go.touch()
        until(ended.exists)
        time.sleep(20)  # longer than its clients try
        server = serve(home, address)
        output = lab.ended(run, code=0)
        assert "1 stage: 0 cached, 1 done" in output and "lost" not in output, output
    finally:
        server.kill()


CHAIN = """
  a: {cmd: "cut -c1 first.txt > a.out", deps: [first.txt], outs: [a.out]}
  b: {cmd: "cp a.out b.out; echo ran >> $MEETING/b", deps: [a.out], outs: [b.out]}
"""


@cluster
def test_what_is_stale_and_what_is_not(hosts):
    """By lock files alone: data that is not here, or lies here from before, says nothing."""
    lab = hosts.lab
    lab.write("params.yaml", re.sub("run_on: .*", "run_on: here", lab.read("params.yaml"))).stages(CHAIN)
    lab.sesame("run")  # at home: a.out and b.out lie here from now on
    ran = hosts.folder / "meeting/b"
    lab.write("params.yaml", re.sub("run_on: .*", f"run_on: {hosts.pool}", lab.read("params.yaml")))
    hosts.commit("chain")
    hosts.worker("one")
    lab.write("first.txt", "ones ")
    assert "2 stages: 1 cached, 1 done" in lab.sesame("run")  # a ran and came out the same: nobody sends b
    lab.write("first.txt", "two ")
    assert "1 stage: 0 cached, 1 done" in lab.sesame("run", "a")  # and the flow ends there
    assert "2 stages: 1 cached, 1 done" in lab.sesame("run") and ran.read_text().split() == ["ran"] * 2
    assert "2 stages: 2 cached, 0 done" in lab.sesame("run") and lab.read("b.out") == "o\n"  # from before, and nobody asks
    (hosts.folder / "one/.git/worktrees/0/index.lock").touch()  # a power cut
    lab.write("first.txt", "three ")
    assert "2 stages: 1 cached, 1 done" in lab.sesame("run")
    output = lab.sesame("exp", "run", "--name", "forced", "-S", "seed=2")
    assert "forced" in subprocess.run([BIN / "dvc", "exp", "list", "--name-only"], cwd=lab.path, capture_output=True, text=True).stdout, (
        output
    )


@cluster
def test_lanes_of_a_sweep_run_side_by_side(hosts):
    """Without being told, since it is not this machine's cores that they take: each waits for the other two."""
    meet = "touch $MEETING/$$; while [ $(ls $MEETING | wc -l) -lt 3 ]; do sleep 0.1; done"
    hosts.lab.stages(f'  raw: {{cmd: "{meet}; cp first.txt raw.out", deps: [first.txt], params: [seed], outs: [raw.out]}}\n')
    hosts.commit("one stage")
    for name in ("one", "two", "three"):
        hosts.worker(name)
    output = hosts.lab.sesame("exp", "sweep", "-S", "seed=1,2,3")
    assert "3 worktree runs, 3 at a time" in output and len(re.findall(r"\] done after ", output)) == 3, output
