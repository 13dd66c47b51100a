"""A tiny project that tests run real stages in: generated text, a tokenizer and an encoding of it."""

import gc
import itertools
import json
import os
import random
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import requests
import torch
from filelock import FileLock
from ruamel.yaml import YAML

from components import params
from components.core.tracking import Run
from components.models import store
from components.text import encode, tokenizer
from tests import forks

os.environ["SESAME_TRACKING"] = "off"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it, whose children would be deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as nohup has it, under which a flow outlives its terminal
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
torch.set_num_threads(1)  # two that spin for the same cores beside child processes are many times slower than one

LONGEST = [
    "test_studies", "test_whole", "test_worktrees", "test_services", "test_flow", "test_deployments", "test_servers",
    "test_pretrain",
]  # fmt: skip
"""Files that take a minute or more; begun first, or the workers that are done wait for the last of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def pytest_collection() -> None:
    gc.disable()  # what is imported now stays


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # or each full collection looks at all of torch again


@pytest.fixture(autouse=True)
def denormals_again() -> Iterator[None]:
    """What training sets for its process is not left to the next test: hypothesis refuses to draw numbers where they are flushed."""
    yield
    torch.set_flush_denormal(False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: a run that is cut short never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed at {report.when}: {report.longreprtext.splitlines()[-1]}", flush=True)


SUBJECTS = ["the dog", "a man", "two children", "the old woman", "my friend", "the president", "a small bird", "the farmer"]
VERBS = ["sees", "likes", "carries", "paints", "follows", "buys", "forgets", "remembers"]
OBJECTS = ["the river", "a red ball", "his letter", "the city", "some bread", "an old song", "the green field", "a wooden house"]
TAILS = ["in the morning", "at night", "near the sea", "without a word", "with great joy", "every day"]


def sentence(rng: random.Random) -> str:
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)} {rng.choice(TAILS)} .".capitalize()


def text(documents: int, seed: int = 0) -> str:
    """Documents of two to six sentences, one a line, a blank line between documents."""
    rng = random.Random(seed)
    return "\n\n".join("\n".join(sentence(rng) for _ in range(rng.randint(2, 6))) for _ in range(documents)) + "\n"


def write_studies(root: Path, studies: dict[str, dict]) -> None:
    """Write each study into its file, in place of those that are there."""
    folder = root / "studies/params"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, study in studies.items():
        YAML().dump(study, folder / f"{name}.yaml")


def sections(block: str, parsed: dict) -> dict:
    """A YAML block of the docs as sections of params: what opens with `# studies/params/NAME.yaml` is that study's file."""
    study = re.match(r"# studies/params/(\w+)\.yaml\n", block)
    return {"studies": {study[1]: parsed}} if study else parsed


# A hundred ports for each process: workers of one test run have neighbouring process numbers, and a port that one
# of them is given is not yet taken. All are below those that a system gives to connections.
_ports = itertools.count(10_000 + os.getpid() % 200 * 100)


def free_port() -> int:
    """One that nobody has, and nobody is given meanwhile."""
    for port in _ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@contextmanager
def s3_server() -> Iterator[str]:
    """moto's S3 as a process, which a busy test does not hold up: its address, once it answers."""
    while True:
        address = f"http://127.0.0.1:{(port := free_port())}"
        with TemporaryFile("w+") as said:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            try:
                while server.poll() is None:  # however long a slow machine takes: what never comes is pytest-timeout's affair
                    with suppress(requests.RequestException):
                        requests.get(address, timeout=60)
                        yield address
                        return
                    time.sleep(0.1)
            finally:
                server.kill()
                server.wait()
            said.seek(0)
            text = said.read()
            assert "in use" in text, text  # else somebody took the port meanwhile: take another


def tiny_params(**changes) -> dict:
    """params.yaml of the tiny project, as a dictionary."""
    transformer = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 32}
    trainer = {"threads": 1, "precision": "32-true", "validations": 2}
    run = {"accelerator": "cpu", "log_every": 2, "checkpoint_seconds": 0.001}
    common = {
        "encoding": "tiny", "optimizer": {"learning_rate": 0.003}, "batch_size": 8, "budget": {"steps": 12},
        "trainer": trainer, "run": run,
    }  # fmt: skip
    recipe = {"learning_rate": 0.003, "epochs": 2, "batch_size": 8, "max_length": 32, "hidden_size": 8}
    task = {
        "licence": "none", "table": {"format": "tsv", "header": True, "text_a": "a", "text_b": "b", "label": "label"},
        "train": {"source": {"kind": "files", "paths": ["raw/pairs.tsv"]}}, "dev": {"share": 0.2}, "test": {"share": 0.2},
    }  # fmt: skip
    raw = {
        "seed": 1,
        "resources": {"pretrain": None, "finetune": None},
        "energy": {"pue": 1.58},
        "price": {
            "country": "USA", "kg_per_kwh": {"USA": 0.4, "FRA": 0.05}, "intensity_source": "made up",
            "core_hour": {"on_demand": 0.04, "preemptible": 0.01, "source": "made up"},
            "gpu_hour": {"on_demand": 2.5, "preemptible": 0.75, "source": "made up"},
        },
        "corpora": {"base": {
            "language": "en", "licence": "none",
            "parts": [{"source": {"kind": "files", "paths": ["raw/text.txt"]}, "reader": {"format": "text", "document": "blank_line"}}],
            "splits": {"valid": 0.1, "test": 0.1},
        }},
        "tasks": {"same": {**task, "kind": "classification", "labels": ["no", "yes"], "metrics": ["accuracy"]}},
        "mixes": {"tiny": {"corpus": "base", "tasks": ["same"]}},
        "tokenizers": {"tiny": {"corpus": "tiny", "vocab_size": 400, "lowercase": True}},
        "encodings": {"tiny": {"corpus": "tiny", "tokenizer": "tiny"}},
        "models": {
            "bert": {**common, "architecture": {"name": "encoder", **transformer}, "objective": {"name": "mlm"},
                     "prompts": ["the dog [MASK] the river"]},
            "gpt": {**common, "architecture": {"name": "decoder", **transformer}, "objective": {"name": "clm"}, "prompts": ["the dog"]},
            "elmo": {
                **common,
                "architecture": {
                    "name": "bilm", "hidden_size": 16, "projection_size": 8, "char_embedding_size": 4, "char_filters": [[1, 4], [3, 8]],
                },
                "objective": {"name": "bilm", "window": 8}, "prompts": ["the *river* is green"],
            },
        },
        "finetune": {
            "models": ["bert", "gpt", "elmo"], "tasks": ["same"], "inits": ["pretrained", "random"], "seeds": [1, 2],
            "train_examples": 60, "eval_examples": None,
            "accelerator": "cpu", "precision": "32-true", "threads": 1,
            "recipes": {
                "bert": {"method": "full", **recipe}, "gpt": {"method": "full", **recipe},
                "elmo": {"method": "features", "pair": "apart", **recipe},
            },
        },
        "checkpoints": {},
        "derived": {},
        "adapt": {"models": [], "methods": [], "tasks": [], "recipes": {}},
        "learning_curve": {"models": [], "tasks": []},
        "search": {
            "models": [], "tasks": [], "budget": {"trials": 4}, "train_examples": 40,
            "space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "epochs": {"choices": [1, 2]}},
        },
        "baselines": {
            "methods": ["majority", "logistic_regression"], "tokenizer": "tiny", "embedding_size": 8,
            "recipe": {"method": "full", "pair": "apart", **recipe},
        },
        "vectors": {
            "one": {"kind": "skip_gram", "corpus": "base", "vector_size": 8, "min_count": 2},
            "two": {"kind": "skip_gram", "corpus": "base", "vector_size": 8, "min_count": 2, "seed": 2},
        },
        "published_vectors": {},
        "contextual_vectors": {},
        "word_models": {},
        "alignments": {"again": {
            "source": "one", "target": "two", "dictionary": {"kind": "identical", "train": 30, "test": 8, "min_count": 2},
        }},
        "histories": {},
        "groups": {},
        "generations": {},
        "evaluations": {},
        "evaluate": {"models": [], "evaluations": []},
        "studies": {"rate": {
            "question": "How much should be masked?", "model": "bert", "base": "15", "tasks": ["same"], "seeds": [1, 2],
            "budget": {"steps": 6},
            "recipe": {"method": "full", **recipe}, "plot": {"x": "perplexity", "y": ["same"]},
            "variants": {"15": {}, "40": {"change": {"objective": {"mlm_probability": 0.4}}}},
        }},
    }  # fmt: skip
    return {**json.loads(json.dumps(raw)), **changes}  # no block is shared between models


def write_raw(folder: Path, documents: int = 200) -> None:
    """The raw files of the tiny project."""
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    (folder / "raw/text.txt").write_text(text(documents))
    rng = random.Random(1)
    rows = ["a\tb\tlabel"]
    for _ in range(150):
        a, other = sentence(rng), sentence(rng)
        same = rng.random() < 0.5
        rows.append(f"{a}\t{a if same else other}\t{'yes' if same else 'no'}")
    (folder / "raw/pairs.tsv").write_text("\n".join(rows) + "\n")


def save_random(checked: params.Params, name: str, tokens: tokenizer.Tokenizer) -> None:
    """A model with random weights in place of trained ones, always the same."""
    torch.manual_seed(0)
    architecture = checked.models[name].architecture
    store.save(Path("data/models", name), store.build(architecture, tokens).state_dict(), architecture, tokens)


def run_stage(module: str, *names: str, **environment: str) -> subprocess.CompletedProcess:
    """`python -m module NAME`, but in this process, which has torch imported: the exit status, and what was said."""
    said, warned, before = StringIO(), StringIO(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(warned), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(sys, "argv", [module, *names])
        for key, value in environment.items():
            patch.setenv(key, value)
        try:
            runpy.run_module(module, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
            warned.write("" if isinstance(end.code, int) else f"{end.code}\n")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess([module, *names], status, said.getvalue(), warned.getvalue())


def ran(module: str, name: str) -> str:
    """What a stage of `components` says, which has to end well."""
    done = run_stage(f"components.{module}", name)
    assert done.returncode == 0, done.stderr
    return done.stdout


AWAY = """
import json, sys
sys.path = [path for path in sys.path if path] + [sys.argv[1]]
from importlib.util import find_spec
assert find_spec("components") is None, "a checkout can be seen"
import mlflow
mlflow.set_tracking_uri(sys.argv[2])
model = mlflow.pyfunc.load_model(sys.argv[3])
assert [column.name for column in model.metadata.signature.inputs] == ["text"]
print(json.dumps(float(model.predict([{"text": "the dog"}])["log_probability"][0])))
"""


def away(address: str, lab: Path, folder: Path) -> float:
    """What a model of a project's MLflow says of `the dog` in a process that has packages alone: no checkout, no `.pth` file that leads to
    one, another folder to work in."""
    packages = Path(torch.__file__).parents[1]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", AWAY, str(packages), f"sqlite:///{lab}/mlflow.db", address]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def register(file: Path, *registries: str, name: str = "dummy") -> None:
    """Put a name at the end of tuples like `OBJECTIVES`, as one who adds a folder does."""
    text = file.read_text()
    for registry in registries:
        text, changed = re.subn(rf"^({registry} = \([^)]*?),?\s*\)", rf'\1, "{name}")', text, flags=re.M)
        assert changed == 1, registry
    file.write_text(text)


@contextmanager
def shared(tmp_path_factory, name: str, start: Callable[[Path], str], stop: Callable[[str, Path], None]) -> Iterator[str]:
    """What `start` gives, started by the first worker that asks and stopped by the last that has done with it, in a folder of all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    state = folder.with_suffix(".json")

    def users(more: int) -> str:
        with FileLock(folder.with_suffix(".lock")):
            known = json.loads(state.read_text()) if state.exists() else None
            if known is None:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                known = {"users": 0, "value": start(folder)}
            known["users"] += more
            state.write_text(json.dumps(known))
            if not known["users"]:
                stop(known["value"], folder)
                state.unlink()
            return known["value"]

    value = users(+1)
    try:
        yield value
    finally:
        users(-1)


@pytest.fixture(scope="session")
def forking(tmp_path_factory) -> Iterator[Path]:
    """The folder of the sockets of `forks`."""
    begun: Callable[[Path], str] = lambda folder: str(forks.start(folder))  # noqa: E731
    with shared(tmp_path_factory, "forks", begun, lambda pid, _: os.kill(int(pid), signal.SIGTERM)):
        base = tmp_path_factory.getbasetemp()
        yield (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "forks"


@pytest.fixture
def start(forking) -> Callable[..., forks.Command]:
    """Starts `python ...` in the current folder, forked off a process that has imported the libraries."""
    path = f"{forking}:{os.environ['PATH']}"  # the first of two ranks starts the other by it
    return lambda *args, **env: forks.Command(f"{forking}/stages", list(args), os.getcwd(), os.environ | {"PATH": path} | env)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """The tiny project with its data stages done: corpus, task, mix, tokenizer, encoding."""
    from components.tasks import __main__ as task_stage
    from components.text.corpora import __main__ as corpus_stage
    from components.text.corpora import mix
    from components.text.encode import __main__ as encode_stage
    from components.text.tokenizer import __main__ as tokenizer_stage

    folder, before = tmp_path_factory.mktemp("tiny"), Path.cwd()
    write_raw(folder)
    os.chdir(folder)
    try:
        checked, run = params.check(tiny_params()), Run(None)
        corpus_stage.body(checked, "base", run)
        task_stage.prepare(checked, "same", run)
        mix.body(checked, "tiny", run)
        tokenizer_stage.train(checked, "tiny", run)
        encode_stage.encode(checked, "tiny", run)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    """A writable copy of `built` as the current folder."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    (tmp_path / "components").symlink_to(Path(params.__file__).parents[1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def tokens(built) -> tokenizer.Tokenizer:
    return tokenizer.load(built / "data/tokenizers/tiny")


@pytest.fixture(scope="session")
def train_split(built) -> encode.Split:
    return encode.load(built / "data/encoded/tiny", "train")
