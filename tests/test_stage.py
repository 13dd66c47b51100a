"""The frame of a stage: outputs whole or not at all, errors in one line, a full disk, estimated energy."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import save_file
from torch.testing._internal.distributed.fake_pg import FakeStore

from components import params, tasks
from components.core import storage
from components.core.errors import SesameError
from components.embeddings import space
from components.models import store
from components.stages import cost, local_files
from components.stages.cost import energy_kwh
from components.text import corpora, encode, tokenizer
from tests.conftest import run_stage, tiny_params, write_raw


def test_output_is_whole_or_not_there(tmp_path):
    target = tmp_path / "a/out"
    with storage.output(target) as folder:
        folder.mkdir()
        (folder / "x").write_text("1")
        assert not target.exists()
    with pytest.raises(RuntimeError), storage.output(target) as folder:
        folder.mkdir()
        raise RuntimeError
    assert (target / "x").read_text() == "1" and [path.name for path in target.parent.iterdir()] == ["out"]


def test_undefined_is_null_and_nan_is_refused(tmp_path):
    storage.write_json(tmp_path / "m.json", {"pearson": None})
    assert json.loads((tmp_path / "m.json").read_text()) == {"pearson": None}
    with pytest.raises(ValueError):
        storage.write_json(tmp_path / "m.json", {"pearson": float("nan")})
    assert json.loads((tmp_path / "m.json").read_text()) == {"pearson": None}


def test_energy_matches_the_papers_formula():
    """Strubell et al. 2019: BERT-base, 12041.51 W for 79 h at PUE 1.58 is 1503 kWh by their formula (their table: 1507)."""
    energy = params.Energy(watts_per_core=0.000001, watts_per_gib=0.000001, watts_per_gpu=12041.51)
    assert energy_kwh(energy, 79 * 3600, 0, 0, 1) == pytest.approx(1503, abs=0.5)


def test_a_stage_knows_which_local_files_it_has_read(project, monkeypatch):
    """Files edited, gone, or new with an old date; not those that were only copied to another clone."""
    raw = tiny_params()
    Path("my").mkdir()
    for i in range(3):
        Path(f"my/{i}.txt").write_text(f"text number {i}")
    raw["corpora"]["base"]["parts"][0]["source"]["paths"] = ["my/*.txt"]
    checked = params.check(raw)

    def others() -> bool:
        return local_files.changed(checked, "corpus", "base", read)

    read = local_files.of_stage(checked, "corpus", "base")
    assert read["files"] == 3 and not others() and local_files.of_stage(checked, "pretrain", "bert") is None
    os.utime("my/0.txt", (0, 0))
    assert not others(), "another date alone is no other text"
    Path("my/1.txt").write_text("text number 9")
    os.utime("my/1.txt", (0, 0))
    assert others()
    read = local_files.of_stage(checked, "corpus", "base")
    Path("my/1.txt").unlink()
    Path("my/1.txt").write_text("text number 8")
    os.utime("my/1.txt", (0, 0))
    assert others(), "another text of the same size and date, as archives without dates and links to other folders have"
    read = local_files.of_stage(checked, "corpus", "base")
    Path("my/2.txt").rename("gone.txt")
    assert others()
    Path("gone.txt").rename("my/2.txt")
    assert not others()
    Path("my/3.txt").write_text("more")
    os.utime("my/3.txt", (0, 0))
    assert others()
    Path("my/4.txt").write_bytes(b"a" * 2**22)
    read = local_files.of_stage(checked, "corpus", "base")
    Path("my/4.txt").write_bytes(b"a" * 2**21 + b"b" + b"a" * (2**21 - 1))
    assert others(), "one letter in the middle of a long file"
    monkeypatch.setattr(local_files, "WHOLE", 2**20)
    for place, seen in ((0, True), (2**21, False), (2**22 - 1, True)):
        text = bytearray(b"a" * 2**22)
        Path("my/4.txt").write_bytes(text)
        read = local_files.of_stage(checked, "corpus", "base")
        text[place] = ord("b")
        Path("my/4.txt").write_bytes(text)
        assert others() == seen, "of a larger file the ends are compared"
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    done = run_stage("components.tasks", "same")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("data/metrics/task/same.json").read_text())["local_files"]["files"] == 1


def test_the_memory_of_a_child_is_that_of_the_stage():
    """Trainings on several CPUs and workers of a corpus hold theirs in children, whose seconds are counted, too."""
    held = "held = bytearray(2**30); held[::4096] = b'x' * 2**18"
    subprocess.run([sys.executable, "-c", held], check=True)
    assert cost.measured(params.check(tiny_params()), {})["memory_mib"] >= 1024


def test_a_clock_that_is_set_back_changes_no_duration(project, monkeypatch):
    """Nor one that is set forward: seconds and kWh are those that passed."""
    with open("params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    cost = []
    for shift in (0, -3600, 3600):
        now = time.time
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now=now, shift=shift: now() + shift)
            assert run_stage("components.text.encode", "tiny").returncode == 0
        cost.append(json.loads(Path("data/metrics/encode/tiny.json").read_text())["cost"])
    assert 0 < cost[0]["seconds"] <= cost[1]["seconds"] <= cost[2]["seconds"] < cost[0]["seconds"] + 60
    assert all(own["kwh"] > 0 for own in cost)


def test_a_night_that_the_machine_slept_through_is_no_work(monkeypatch):
    """A laptop that is closed in a training: the clock since boot goes on, and a GPU would be charged for all night."""
    settings = params.check(tiny_params())
    before, clock = cost.measured(settings, {"gpus": 1}), time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda own: clock(own) + 8 * 3600 * (own == time.CLOCK_BOOTTIME))
    after = cost.measured(settings, {"gpus": 1})
    assert after["gpus"] == 1 and "gpus" not in cost.measured(settings, {})
    assert 0 <= after["seconds"] - before["seconds"] < 60 and after["kwh"] < before["kwh"] * 1.5


def test_each_process_of_a_training_costs_as_much():
    """Of two processes that train by their CPUs the first one's energy and memory alone was counted."""
    settings = params.check(tiny_params())
    one = cost.measured(settings, {})
    torch.distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        four = cost.measured(settings, {})
    finally:
        torch.distributed.destroy_process_group()
    assert four["processes"] == 4 and four["memory_mib"] >= 4 * one["memory_mib"] - 4
    assert four["kwh"] > 3.9 * one["kwh"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_raw(tmp_path)
    with open(tmp_path / "params.yaml", "w") as file:
        YAML().dump(tiny_params(), file)
    (tmp_path / "components").symlink_to(Path(params.__file__).parents[1])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=os.environ | {"SESAME_TRACKING": "off"})


def test_a_stage_writes_its_output_metrics_and_cost(folder):
    done = run("components.text.corpora", "base")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(Path("data/metrics/corpus/base.json").read_text())
    assert metrics["cost"]["seconds"] > 0 and metrics["cost"]["kwh"] > 0 and Path("data/corpora/base/train.txt").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("components.text.corpora", "other"), "corpus@other: no 'other' under corpora in params.yaml (there are: base)"),
        (("components.text.tokenizer", "tiny", "small"), "tokenizer@tiny: unexpected argument small; a stage takes one name"),
        (("components.text.tokenizer", "tiny"), "tokenizer@tiny: data/corpora/tiny/train.txt: no such file"),
        (("components.pretrain", "bert"), "pretrain@bert: data/encoded/tiny: no such encoding; run `sesame run encode@tiny` first"),
        (("components.finetune", "bert-none"), "finetune@bert-none: bert-none is not in finetune of params.yaml"),
    ],
)
def test_errors_are_one_line(folder, start, command, said):
    """Fine-tuning imports what the others do: it alone shows, in a process of its own, that no library has a word to say."""
    done = run(*command) if command[0] == "components.finetune" else start("-m", *command)
    printed = done.stderr if command[0] == "components.finetune" else done.communicate()[0]
    assert done.returncode == 2 and printed.startswith(said) and len(printed.splitlines()) == 1, printed


def test_what_may_pass_is_told_from_what_can_not(folder, monkeypatch):
    """By the exit status: the flow tries again after 75 only."""
    raw = tiny_params()
    raw["corpora"]["base"]["parts"][0]["source"] = {
        "kind": "pypi", "project": "demo", "version": "1", "filename": "demo.whl", "sha256": "0" * 64, "members": ["*"],
    }  # fmt: skip
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    done = run("components.text.corpora", "base")
    assert done.returncode == 75 and "can't be read (no connection)" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_ctrl_c_in_an_import_is_no_traceback(folder, monkeypatch):
    (folder / "early").mkdir()
    (folder / "early/sentencepiece.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    monkeypatch.setenv("PYTHONPATH", str(folder / "early"))
    done = run("components.text.tokenizer", "tiny")
    assert (done.returncode, done.stderr) == (-2, "")


def test_ctrl_c_in_a_stage_is_one_line(folder, monkeypatch):
    (folder / "early").mkdir()
    (folder / "early/ftfy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (folder / "raw/text.txt").write_text("naïve\n")
    raw = tiny_params()
    raw["corpora"]["base"]["cleaning"] = {"unicode": "ftfy"}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    monkeypatch.setenv("PYTHONPATH", str(folder / "early"))
    done = run("components.text.corpora", "base")
    assert (done.returncode, done.stderr) == (1, "corpus@base: stopped; nothing half-written, the next run continues\n")
    assert not list(Path("data").rglob("*.txt"))


def test_vocabulary_larger_than_the_text(folder):
    raw = tiny_params()
    raw["tokenizers"]["tiny"] |= {"vocab_size": 30000, "corpus": "base"}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    assert run("components.text.corpora", "base").returncode == 0
    done = run("components.text.tokenizer", "tiny")
    assert done.returncode == 2 and "30000 is more than the text of base supports; at most" in done.stderr, done.stderr
    assert not Path("data/tokenizers/tiny").exists() and not list(Path("data/tokenizers").glob(".*"))


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A disk of its own at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a machine that lets it")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_full_disk_is_one_line_and_leaves_nothing(folder):
    """Where data/ is a link to another disk, that disk is named."""
    (folder / "raw/text.txt").write_text("\n\n".join(f"Number {i} is a sentence of its own." * 20 for i in range(8000)))
    (folder / "data").symlink_to(folder / "disk")
    with mounted(folder / "disk", "size=1m"):
        done = run("components.text.corpora", "base")
        left = [path for path in Path("data").rglob("*") if path.is_file()]
    assert done.stderr.startswith(f"corpus@base: data/corpora/base: the disk of {folder}/disk/corpora is full (0 MiB free)"), done.stderr
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and left == []


def test_full_disk_whatever_a_library_makes_of_it(folder):
    with mounted(folder / "disk", "size=64k"):
        with pytest.raises(SesameError, match=r"disk/a: the disk of .*/disk is full"), storage.output(Path("disk/a")) as temporary:
            save_file({"a": torch.zeros(100_000)}, temporary)  # SafetensorError
        with pytest.raises(SesameError, match=r"disk/b: the disk of .*/disk is full"), storage.output(Path("disk/b")) as temporary:
            np.save(temporary.open("wb"), np.zeros(100_000))  # an OSError without a number
        with pytest.raises(SesameError, match="its own"), storage.output(Path("disk/c")):
            raise SesameError("its own")
        assert not list(Path("disk").iterdir())


def test_places_where_nothing_can_be_written_are_one_line(folder):
    with mounted(folder / "data", "size=1m"):
        subprocess.run(["mount", "-o", "remount,ro", folder / "data"], check=True)
        done = run("components.text.corpora", "base")
    assert done.returncode == 2 and done.stderr.startswith("corpus@base: data/corpora: Read-only file system"), done.stderr
    (folder / "data").rmdir()
    (folder / "data").write_text("a file")
    done = run("components.text.corpora", "base")
    assert done.returncode == 2 and done.stderr.startswith("corpus@base: data/corpora: Not a directory"), done.stderr


def test_broken_files_between_stages_name_the_file_and_the_stage_to_run_again(project):
    """Cut off, empty, of another form: whoever opens it."""
    store.save(Path("data/models/bert"), *model_of(tokenizer.load(Path("data/encoded/tiny"))))
    Path("data/metrics/pretrain").mkdir(parents=True)
    Path("data/metrics/pretrain/bert.json").write_text("{}")
    Path("data/metrics/mix").mkdir(parents=True)
    Path("data/metrics/mix/tiny.json").write_text("{}")
    Path("data/scores/bert/same").mkdir(parents=True)
    Path("data/scores/bert/same/predictions.jsonl").write_text('{"init": "pretrained", "seed": 1}\n')
    Path("data/metrics/vectors").mkdir(parents=True)
    Path("data/metrics/vectors/one.json").write_text("{}")
    Path("data/vectors/one").mkdir(parents=True)
    Path("data/vectors/one/vocabulary.txt").write_text("a\t1\n")
    np.save("data/vectors/one/vectors.npy", np.zeros((2, 3)))
    encoded, model = Path("data/encoded/tiny"), Path("data/models/bert")
    opened = {
        "data/corpora/tiny/train.txt": (lambda: list(corpora.read("data/corpora/tiny", "train")), "mix@tiny"),
        "data/corpora/tiny/card.json": (lambda: corpora.card("data/corpora/tiny"), "mix@tiny"),
        "data/tasks/same/dev.jsonl": (lambda: tasks.read("data/tasks/same", "dev"), "task@same"),
        "data/tokenizers/tiny/tokenizer.model": (lambda: tokenizer.load(Path("data/tokenizers/tiny")), "tokenizer@tiny"),
        "data/encoded/tiny/meta.json": (lambda: encode.load(encoded, "train"), "encode@tiny"),
        "data/encoded/tiny/train-00000.bin": (lambda: encode.load(encoded, "train"), "encode@tiny"),
        "data/encoded/tiny/train-00000.segments.npy": (lambda: encode.load(encoded, "train"), "encode@tiny"),
        "data/encoded/tiny/train-00000.documents.npy": (lambda: encode.load(encoded, "train"), "encode@tiny"),
        "data/models/bert/config.json": (lambda: store.load(model), "pretrain@bert"),
        "data/models/bert/model.safetensors": (lambda: store.load(model), "pretrain@bert"),
        "data/scores/bert/same/predictions.jsonl": (
            lambda: tasks.predictions(Path("data/scores/bert/same"), "dev", "pretrained"),
            "finetune@bert-same",
        ),
        "data/vectors/one/vocabulary.txt": (lambda: space.load("data/vectors/one"), "vectors@one"),
        "data/vectors/one/vectors.npy": (lambda: space.load("data/vectors/one"), "vectors@one"),
    }
    form, noise = b'{"another": "form"}\n', b"\xff\xfe\x00" * 50
    for file, (load, maker) in opened.items():
        path, whole = Path(file), Path(file).read_bytes()
        half = whole[: len(whole) // 2 + 1]
        # can't be told here
        textual = {
            "train.txt": (half, b"", form), "card.json": (form,), "vocabulary.txt": (half,), "predictions.jsonl": (b"",),
            "dev.jsonl": (None,),
        }  # fmt: skip
        for broken in (half, b"", form, noise, None):
            path.unlink()
            if broken is not None:
                path.write_bytes(broken)
            if broken in textual.get(path.name, ()):
                continue
            with pytest.raises(SesameError) as caught:
                load()
            message = str(caught.value)
            command = f"`sesame run {maker}`"
            assert message.startswith(file) and command in message and "\n" not in message, message
        path.write_bytes(whole)


def model_of(tokens):
    block = params.check(tiny_params()).models["bert"].architecture
    return store.build(block, tokens).state_dict(), block, tokens


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_place_that_holds_no_files_is_not_called_full():
    with pytest.raises(SesameError, match=r"/proc/x/y: nothing can be written in /proc"), storage.output(Path("/proc/x/y")) as temporary:
        temporary.write_text("some")


def test_more_memory_than_there_is_is_one_line(project):
    """By `dvc repro` alone: `sesame run` refuses it before."""
    raw = tiny_params()
    raw["models"]["bert"]["architecture"]["hidden_size"] = 2**40
    YAML().dump(raw, Path("params.yaml"))
    done = run_stage("components.pretrain", "bert")
    assert done.returncode == 2 and done.stderr.startswith("pretrain@bert: out of memory ("), done.stderr
    assert len(done.stderr.splitlines()) == 1
