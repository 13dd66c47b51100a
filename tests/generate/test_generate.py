"""What models write: step by step as at once, beams as `transformers` has them, draws by their probability; figures; what can't be."""

import json
import math
import re
import shutil
from html import escape
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
import transformers
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from typer.testing import CliRunner

from components import params
from components.core.errors import SesameError
from components.derive.checkpoints import export
from components.generate import novelty, search, word_by_word, writing
from components.generate.__main__ import p_value, score
from components.models import store
from components.params import Beam, Greedy, Sample
from components.stages import registry
from components.text import corpora
from components.text.encode import Shard, Split
from components.text.tokenizer import SEP
from pipelines import cli
from tests.conftest import run_stage, text, tiny_params

SIZES = {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "max_length": 48}
POSITIONS = ("learned", "sinusoidal", "rotary", "relative", "alibi")
FAMILIES = ("decoder", "encoder_decoder")
OF_TRANSFORMERS = (*FAMILIES, "prefix_decoder")
RECURRENT = {"num_layers": 2, "hidden_size": 32, "max_length": 48}


def kept(tokens, name: str, family: str, **changes) -> writing.Writer:
    """A model in data/models with random weights, so far from a start that texts differ."""
    sizes = SIZES if family in OF_TRANSFORMERS else RECURRENT
    architecture = TypeAdapter(params.Architecture).validate_python({"name": family, **sizes, **changes})
    torch.manual_seed(0)
    model = store.build(architecture, tokens)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.5)
    store.save(Path("data/models", name), model.state_dict(), architecture, tokens)
    return writing.load(name)


def inputs(writer: writing.Writer, count: int = 6) -> list[list[int]]:
    return [writer.source(line)[:12] for line in text(20).split("\n") if line][:count]


def at_once(writer: writing.Writer, source: list[int], written: list[int]) -> torch.Tensor:
    """Scores of the piece after each written one, by the whole model."""
    model, made = writer.model, torch.tensor([written])
    if writer.reads_source:
        ids = torch.tensor([source])
        padded = torch.cat([made, made[:, :1]], 1)  # what stands at a place is predicted from those before
        return model.logits(model(ids, torch.tensor([len(source)]), padded))[0]
    return model.logits(model(torch.tensor([[*source, *written]])))[0, len(source) - 1 :]


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_at_a_time_computes_what_all_at_once_do(project, tokens, family, positions):
    """For several rows side by side, kept and reordered on the way; sources may be of unequal length."""
    writer = kept(tokens, "any", family, positions=positions, norm_first=positions != "alibi")
    sources = [source[: 5 + i * writer.reads_source] for i, source in enumerate(inputs(writer, 3))]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
    decoding = writer.decoding(writer.model, ids, torch.tensor([len(source) for source in sources]), 30)
    state = search.State(decoding, writer.model.logits)
    written = [[], [], []]
    rows, picked = torch.tensor([0, 1, 2]), torch.Generator().manual_seed(1)
    for step in range(6):
        for row, origin in enumerate(rows.tolist()):
            torch.testing.assert_close(state.scores[row], at_once(writer, sources[origin], written[row] or [9])[step], atol=1e-4, rtol=1e-4)
        if step == 3:
            state.select(again := torch.tensor([2, 0, 0]))
            rows, written, state.scores = rows[again], [list(written[i]) for i in again.tolist()], state.scores[again]
        new = torch.randint(5, 60, (3,), generator=picked)
        for own, token in zip(written, new.tolist(), strict=True):
            own.append(token)
        state.add(new)


@pytest.mark.parametrize(("name", "family", "changes"), [
    ("gpt2", "decoder", {}), ("bart", "encoder_decoder", {}),
    ("t5", "encoder_decoder", {"positions": "relative", "norm": "rms_norm", "norm_first": True, "biases": False,
                               "embedding_norm": False, "activation": "relu", "layer_norm_eps": 1e-6}),
])  # fmt: skip
def test_beams_and_greedy_are_those_of_transformers(project, tokens, name, family, changes):
    """`generate` on the exported weights, for several widths and length penalties."""
    writer = kept(tokens, name, family, **changes)
    theirs = getattr(transformers, "AutoModelForSeq2SeqLM" if writer.reads_source else "AutoModelForCausalLM").from_pretrained(
        export.export(name)[0]
    ).eval()  # fmt: skip
    sources = inputs(writer)
    settings = {"bad_words_ids": [[i] for i in (0, 1, 2, 4)], "pad_token_id": 0, "eos_token_id": 3}
    settings |= {"decoder_start_token_id": 2} if writer.reads_source else {}

    def generated(source: list[int], **how) -> list[int]:
        made = theirs.generate(torch.tensor([source]), max_new_tokens=20, do_sample=False, **settings, **how)[0].tolist()
        made = made[1:] if writer.reads_source else made[len(source) :]
        return made[: made.index(3)] if 3 in made else made

    for width, penalty in ((2, 1.0), (4, 0.6), (4, 0.0), (3, 2.0)):
        ours = writer.write(sources, Beam(kind="beam", beams=width, length_penalty=penalty, max_new_tokens=20), 4)
        assert ours == [generated(source, num_beams=width, length_penalty=penalty) for source in sources], (width, penalty)
    for penalty in (1.0, 1.3):
        ours = writer.write(sources, Greedy(kind="greedy", repetition_penalty=penalty, max_new_tokens=20), 4)
        assert ours == [generated(source, repetition_penalty=penalty) for source in sources]
    assert len({tuple(own) for own in ours}) > 1


@pytest.mark.parametrize("family", [*OF_TRANSFORMERS, "recurrent_encoder_decoder"])
def test_a_text_does_not_depend_on_its_batch(project, tokens, family):
    writer = kept(tokens, "any", family)
    sources = inputs(writer)
    for how in (Sample(kind="sample", seed=3, max_new_tokens=12), Beam(kind="beam", beams=3), Greedy(kind="greedy")):
        whole = writer.write(sources, how, 64)
        assert whole == writer.write(sources, how, 1) == writer.write(sources, how, 4)
    other = writer.write(sources, Sample(kind="sample", seed=4, max_new_tokens=12), 64)
    assert other != writer.write(sources, Sample(kind="sample", seed=3, max_new_tokens=12), 64)
    streamed = "".join(writer.stream(sources[0], Greedy(kind="greedy")))
    assert streamed == writer.tokens.decode(writer.write(sources[:1], Greedy(kind="greedy"), 1)[0])


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, [0.4, 0.3, 0.2, 0.1]), ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0]), ({"top_p": 0.6}, [4 / 7, 3 / 7, 0, 0]),
    ({"top_p": 0.71}, [4 / 9, 3 / 9, 2 / 9, 0]), ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
    ({"top_k": 3, "top_p": 0.5}, [4 / 7, 3 / 7, 0, 0]),
])  # fmt: skip
def test_draws_have_their_probability(changes, expected):
    scores = torch.tensor([0.2, 0.4, 0.1, 0.3]).log().repeat(20_000, 1)
    drawn = search.draw(scores, Sample(kind="sample", **changes), torch.arange(20_000), 5)
    shares = np.bincount(drawn.numpy(), minlength=4)[[1, 3, 0, 2]] / 20_000
    assert np.abs(shares - expected).max() < 4 * 0.5 / math.sqrt(20_000)
    assert (shares[np.array(expected) == 0] == 0).all()


def split(*documents: list[int]) -> Split:
    tokens = np.array([token for document in documents for token in document], np.uint16)
    return Split((Shard(tokens, np.zeros((0, 2), int), np.array([0])),))


def test_copies_are_counted():
    train = split([2, 10, 11, 12, 13, 3, 2, 20, 21, 22, 3], [2, 30, 31, 3])
    figures = novelty.copied([[10, 11, 12, 13], [10, 11, 99, 20, 21, 22], [98, 97]], train, sizes=(2, 3))
    assert figures["novel_2"] == pytest.approx(3 / 9) and figures["novel_3"] == pytest.approx(3 / 6)
    assert figures["longest_copy"] == 4 and figures["copy"] == pytest.approx((4 + 3 + 0) / 3)
    assert novelty.copied([[10]], train, sizes=(2,))["novel_2"] is None
    rng = np.random.default_rng(0)
    long, own = rng.integers(0, 300, 5000), rng.integers(0, 300, 400)
    for n in (1, 2, 3):
        there = {tuple(long[i : i + n]) for i in range(len(long) - n + 1)}
        [met] = novelty.known([own.tolist()], split(long.tolist()))[n - 1]
        assert met.tolist() == [tuple(own[i : i + n]) in there for i in range(len(own) - n + 1)]


def test_a_copy_over_two_chunks_is_found(monkeypatch):
    monkeypatch.setattr(novelty, "CHUNK", 4)
    train = split(list(range(10, 30)))
    for start in range(0, 15):
        assert novelty.copied([list(range(10 + start, 16 + start))], train, sizes=(2,))["longest_copy"] == min(6, 20 - start)


def test_half_a_copy_is_less_like_a_sentence_than_a_whole_one():
    """Unknown words were left out before the length of the vector was taken, and Chinese sentences were single words."""
    sentences = ["the dog", "a cat runs", "他觉得这本书很有意思", "我们去公园"]
    texts = ["the dog", "the dog zzz qqq", "zzz", "他觉得这本书没有意思", "狗"]
    found = novelty.nearest(texts, sentences)
    assert [sentence for sentence, _ in found[:2]] == ["the dog", "the dog"] and found[3][0] == sentences[2]
    likeness = [value for _, value in found]
    assert likeness[0] == pytest.approx(1) and 0.4 < likeness[1] < 0.7 and likeness[2] == likeness[4] == 0 and 0.8 < likeness[3] < 1


def test_words_find_their_translations():
    pairs = [("der Hund läuft .", "the dog runs ."), ("der Mann singt .", "the man sings ."), ("ein Hund singt", "a dog sings")]
    pairs += [("ein Mann läuft", "a man runs"), ("der Hund", "the dog"), ("Mann", "man")]
    baseline = word_by_word.WordByWord(pairs)
    assert baseline.translate("ein Hund singt .") == "a dog sings." and baseline.translate("der Wal") == "the Wal"
    chinese = [("他爱猫", "he loves cats"), ("他", "he"), ("猫", "cats"), ("他爱", "he loves"), ("我爱猫", "I love cats")]
    assert word_by_word.WordByWord(chinese).translate("他爱猫。") == "he loves cats 。"
    assert word_by_word.WordByWord([("cats", "猫"), ("he", "他")]).translate("he cats") == "他猫"
    assert word_by_word.WordByWord([("cats", "")]).translate("he cats") == "he cats", "without a pair that has words on both sides"


def test_words_without_blanks_are_the_longest_that_the_training_text_has_between_blanks():
    """Cut into characters, words were translated by halves: 我们 is more than 我, and 们 is nothing."""
    cut = [("我们 爱 猫", "we love cats"), ("我 爱 狗", "i love dogs"), ("我们 看 狗", "we see dogs"), ("我 看 猫", "i see cats")]
    baseline = word_by_word.WordByWord(cut)
    assert baseline.translate("我们看猫。") == baseline.translate("我们 看 猫。") == "we see cats 。"
    assert baseline.translate("我看狗们") == "i see dogs 们", "no word, so a character"


@pytest.fixture(scope="module")
def translator(built, tmp_path_factory) -> tuple[Path, dict]:
    """The tiny project with a translator of text read backwards, and a left-to-right model; its params."""
    folder = tmp_path_factory.mktemp("translator")
    shutil.copytree(built, folder, dirs_exist_ok=True)
    (folder / "components").symlink_to(Path(params.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, made_translator()


@pytest.fixture
def translated(translator, tmp_path, monkeypatch) -> dict:
    """A writable copy of it as the current folder; its params."""
    folder, raw = translator
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    return json.loads(json.dumps(raw))


def made_translator() -> dict:
    raw = tiny_params()
    lines = [line for line in text(80).split("\n") if line]
    for name, side in {"en": lines, "back": [" ".join(line.split()[::-1]) for line in lines]}.items():
        Path("raw", f"pairs.{name}").write_text("\n".join(side[:-20]) + "\n")
        Path("raw", f"test.{name}").write_text("\n".join(side[-20:]) + "\n")
    both = {"kind": "files", "paths": ["raw/pairs.en", "raw/pairs.back"]}
    raw["corpora"]["base"]["parts"] = [{"source": both, "reader": {"format": "parallel"}}]
    raw["tokenizers"]["tiny"]["corpus"] = raw["encodings"]["tiny"]["corpus"] = "base"
    model = {"architecture": {"name": "encoder_decoder", **SIZES}, "objective": {"name": "translation"}, "budget": {"steps": 60}}
    raw["models"] = {"back": raw["models"]["bert"] | model | {"optimizer": {"learning_rate": 0.01}}, "gpt": raw["models"]["gpt"]}
    raw["finetune"] |= {"models": [], "recipes": {}}
    raw["studies"] = {}
    files = {"kind": "files", "paths": ["raw/test.en", "raw/test.back"]}
    raw["generations"] = {
        "reversed": {"model": "back", "inputs": {"kind": "parallel", "source": files}, "decoding": {"kind": "beam", "max_new_tokens": 30}},
        "goes_on": {
            "model": "gpt", "inputs": {"kind": "beginnings", "tokens": 4, "split": "valid"}, "most": 5,
            "decoding": {"kind": "sample", "max_new_tokens": 8},
        },
    }  # fmt: skip
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    for module, name in (
        ("text.corpora", "base"), ("text.tokenizer", "tiny"), ("text.encode", "tiny"), ("pretrain", "back"), ("pretrain", "gpt"),
        ("pretrain.sample", "back"), ("pretrain.sample", "gpt"),
    ):  # fmt: skip
        assert (done := run_stage(f"components.{module}", name)).returncode == 0, done.stderr
    return raw


def test_what_models_write_is_kept_and_judged(translated):
    for name in ("reversed", "goes_on"):
        assert (done := run_stage("components.generate", name)).returncode == 0, done.stderr
    figures = json.loads(Path("data/metrics/generate/reversed.json").read_text())
    rows = [json.loads(line) for line in Path("data/generated/reversed/texts.jsonl").read_text().splitlines()]
    assert len(rows) == figures["texts"] == 20 and {"input", "written", "reference", "nearest", "likeness"} == rows[0].keys()
    assert {"bleu_interval", "bleu_p", "chrf_interval", "chrf_p"} <= figures.keys()
    new = {*(f"novel_{size}" for size in (2, 3, 4, 6, 8)), "copy", "longest_copy"}
    assert figures["written"].keys() == figures["by_people"].keys() == new
    assert 0 <= figures["bleu"] <= 100 and figures["word_by_word"]["bleu"] > 0 and figures["by_people"]["novel_2"] < 0.5
    card = json.loads(Path("data/generated/reversed/card.json").read_text())
    assert card["signatures"]["BLEU"].startswith("nrefs:1|bs:1000|seed:12345|case:lc|eff:no|tok:13a|smooth:exp|version:")
    going = [json.loads(line) for line in Path("data/generated/goes_on/texts.jsonl").read_text().splitlines()]
    assert len(going) == 5 and "bleu" not in json.loads(Path("data/metrics/generate/goes_on.json").read_text())


def test_the_p_value_of_a_difference_is_uniform_where_there_is_none():
    """Systems that are equally good: three words of ten are wrong in either. And texts that are the same differ by nothing."""
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(200)]

    def written(references: list[str]) -> list[str]:
        return [" ".join(word if rng.random() > 0.3 else rng.choice(words) for word in text.split()) for text in references]

    values = []
    for _ in range(60):
        references = [" ".join(rng.choice(words, 10)) for _ in range(40)]
        values.append(p_value(sacrebleu.BLEU(), written(references), written(references), references))
    assert 0.35 < np.median(values) < 0.65 and max(values) > 0.9 and np.mean(np.array(values) < 0.05) <= 0.15
    assert p_value(sacrebleu.BLEU(), references, references, references) == 1
    assert p_value(sacrebleu.BLEU(), written(references), references, references) < 0.01


def test_a_derived_model_is_judged_by_what_it_was_trained_on_last(translated):
    """Pre-trained on by translation, the other way round: the baseline and what is new are of that."""
    raw = translated
    more = {key: raw["models"]["back"][key] for key in ("optimizer", "batch_size", "trainer", "run")} | {"budget": {"steps": 3}}
    by = {"name": "pretrained", "objective": {"name": "translation", "reverse": True}, **more}
    raw["derived"] = {"forth": {"start": "back", "on": "encoded/tiny", "by": by}}
    raw["generations"]["reversed"]["model"] = "forth"
    checked = params.check(raw)
    assert [objective.reverse for _, objective in checked.read_by("forth")] == [False, True]
    trained = {own.name: own.settings["trained"] for own in registry.entries(checked) if own.stage == "generate"}
    assert [step["objective"]["reverse"] for step in trained["reversed"]] == [False, True] and len(trained["goes_on"]) == 1
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    for module, name in (("derive", "forth"), ("generate", "reversed")):
        assert (done := run_stage(f"components.{module}", name)).returncode == 0, done.stderr
    figures = json.loads(Path("data/metrics/generate/reversed.json").read_text())
    assert figures["word_by_word"]["bleu"] > 0
    signature = json.loads(Path("data/generated/reversed/card.json").read_text())["signatures"]["BLEU"]
    assert "case:lc" in signature, "its pieces have no capitals"


def test_what_follows_a_beginning_ends_where_the_models_text_does(translated):
    assert (done := run_stage("components.generate", "goes_on")).returncode == 0, done.stderr
    rows = [json.loads(line) for line in Path("data/generated/goes_on/texts.jsonl").read_text().splitlines()]
    sentences = {line.lower() for document in corpora.read(Path("data/corpora/base"), "valid") for line in document}
    for row in rows:
        whole = f"{row['input']} {row['reference']}".lower()
        assert any(sentence.startswith(row["input"].lower()[:8]) for sentence in sentences) and whole.count(" . ") <= 1


def test_the_page_shows_it_without_tasks_or_spaces_too(translated):
    raw = translated | {"alignments": {}, "vectors": {}, "mixes": {}, "tasks": {}}
    raw["finetune"]["tasks"] = []
    raw["tokenizers"] = {"tiny": raw["tokenizers"]["tiny"]}
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    for name in ("reversed", "goes_on"):
        assert (done := run_stage("components.generate", name)).returncode == 0, done.stderr
    done = run_stage("components.report")
    assert done.returncode == 0, done.stderr
    page = Path("data/report/index.html").read_text()
    assert "What models write" in page and 'id="tasks"' not in page and 'id="alignment"' not in page
    texts = [json.loads(line) for line in Path("data/generated/reversed/texts.jsonl").read_text().splitlines()]
    assert escape(texts[0]["reference"]) in page and escape(texts[0]["nearest"]) in page and "layer 2" in page


def test_the_command_writes(translated, tmp_path):
    def sesame(*args: str) -> str:
        done = CliRunner().invoke(cli.app, ["generate", *args])
        assert done.exit_code == 0, done.output
        return done.output

    assert sesame("back", "The dog sees the [MASK] near the sea .").strip(), "a source may have gaps, as BART's and T5's have"
    one = sesame("back", "The dog sees the river near the sea .")
    Path("lines.txt").write_text("The dog sees the river near the sea .\nA man likes his letter at night .\n")
    both = sesame("back", "--file", "lines.txt")
    assert both.splitlines()[0] == one.strip() and len(both.splitlines()) == 2
    sesame("back", "--file", "lines.txt", "--how", "beam", "--out", "made.txt")
    assert len(Path("made.txt").read_text().splitlines()) == 2
    drawn = ["gpt", "the dog", "--how", "sample", "--top-k", "50", "--max-new-tokens", "6"]
    assert sesame(*drawn, "--seed", "7") == sesame(*drawn, "--seed", "7") != sesame(*drawn, "--seed", "8")


def test_a_source_that_is_cut_is_said_to_be(translated):
    """A translation of the first 48 tokens alone came without a word."""
    long, short = "the dog sees the river . " * 12, "A man likes his letter at night ."
    done = CliRunner().invoke(cli.app, ["generate", "back", long])
    assert done.exit_code == 0 and done.stderr == "the end of the text is cut off: back reads 48 tokens\n"
    Path("lines.txt").write_text(f"{long}\n{short}\n")
    done = CliRunner().invoke(cli.app, ["generate", "back", "--file", "lines.txt"])
    assert len(done.stdout.splitlines()) == 2 and done.stderr == "1 of 2 texts cut: back reads 48 tokens\n"
    assert CliRunner().invoke(cli.app, ["generate", "back", short]).stderr == ""
    Path("lines.txt").write_text(f"{short}\n\n{long}\n")
    done = CliRunner().invoke(cli.app, ["generate", "gpt", "--file", "lines.txt"])
    assert str(done.exception).startswith("sesame: lines.txt, line 3: the beginning has ")


def test_an_empty_answer_is_said_to_be_one(translated):
    model, tokens = store.load(Path("data/models/gpt"))
    with torch.no_grad():
        model.token_embedding.weight *= 0.01
        model.token_embedding.weight[SEP] = model.final_norm.bias[:] = 1
        model.final_norm.weight.zero_()
    store.save(Path("data/models/silent"), model.state_dict(), store.about(Path("data/models/gpt")).architecture, tokens)
    done = CliRunner().invoke(cli.app, ["generate", "silent", "the dog"])
    assert done.stdout == "\n" and done.stderr == "silent writes nothing here: it ends the text at once\n"


def test_what_can_not_be_is_one_line(translated, tokens):
    def said(*args: str) -> str:
        done = CliRunner().invoke(cli.app, ["generate", *args])
        assert done.exit_code == 1
        return str(done.exception)

    assert "--top-p: Input should be less than or equal to 1" in said("gpt", "a", "--how", "sample", "--top-p", "2")
    for idle, needs in (("--temperature", "sample"), ("--top-k", "sample"), ("--beams", "beam"), ("--length-penalty", "beam")):
        assert said("gpt", "a", idle, "7") == f"sesame: {idle} has no effect with --how greedy: it needs --how {needs}"
    default = said("gpt", "a", "--how", "greedy", "--beams", "4")
    assert default == "sesame: --beams has no effect with --how greedy: it needs --how beam", "also where its value is the default"
    beams = said("gpt", "a", "--how", "beam", "--repetition-penalty", "2")
    assert beams == "sesame: --repetition-penalty has no effect with --how beam: it needs --how greedy or sample"
    assert "gpt goes on with a text and fills no [MASK]" in said("gpt", "a [MASK] dog")
    assert "nowhere.txt: no such file" in said("gpt", "--file", "nowhere.txt")
    assert "data/models/none: no model there" in said("none", "a")
    assert "the beginning has 200 tokens, and the model reads 32" in said("gpt", "the " * 199)
    store.save(Path("data/models/elmo"), {}, params.check(tiny_params()).models["elmo"].architecture, tokens)
    able = "decoder, encoder_decoder, recurrent, recurrent_encoder_decoder, prefix_decoder"
    assert f"elmo is of the family bilm, which does not generate from left to right (those that do: {able})" in said("elmo")
    raw = translated
    for change, refused in (
        ({"model": "gpt"}, "generations.reversed.inputs: gpt goes on with a text and has no source; take kind: beginnings"),
        ({"model": "masked"}, "generations.reversed.model: masked does not write from left to right (it reads both_sides)"),
        (
            {"model": "gpt", "inputs": {"kind": "beginnings", "tokens": 32}},
            "generations.reversed.inputs.tokens 32: gpt reads 32 and has no room to go on; give fewer",
        ),
    ):
        with pytest.raises(SesameError, match=re.escape(refused)):
            models = raw["models"] | {"masked": tiny_params()["models"]["bert"]}
            params.check(raw | {"models": models, "generations": {"reversed": raw["generations"]["reversed"] | change}})
    Path("raw/test.back").write_text("one line\n")
    raw["generations"]["reversed"]["model"] = "back"
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    done = run_stage("components.generate", "reversed")
    assert done.returncode == 2 and "test.en has 20 lines and raw/test.back 1: not each other's translations" in done.stderr
    lines = Path("raw/test.en").read_text().splitlines()
    Path("raw/test.back").write_text("".join(f"{line}\n" for line in lines[1:]))  # the first is gone: each has another's translation
    raw["generations"]["reversed"]["most"] = 5
    with open("params.yaml", "w") as file:
        YAML().dump(raw, file)
    done = run_stage("components.generate", "reversed")
    assert done.returncode == 2 and "test.en has 20 lines and raw/test.back 19: not each other's translations" in done.stderr
    Path("raw/test.back").write_text("".join("\n" if number in (1, 3) else f"{line}\n" for number, line in enumerate(lines)))
    done = run_stage("components.generate", "reversed")
    assert done.returncode == 0 and "2 of 5 pairs are left out: a side is empty" in done.stdout, done.stderr
    raw["generations"]["reversed"]["model"] = "nobody"
    with pytest.raises(SesameError, match=r"generations\.reversed\.model: no 'nobody' in models or checkpoints or derived"):
        params.check(raw)


def test_bleu_of_a_writing_without_blanks_is_of_its_characters():
    signatures: dict[str, str] = {}
    decomposed = "l’e\u0301te\u0301 a e\u0301te\u0301 tre\u0300s beau"
    assert score({"ours": ["l’été a été très beau"]}, [decomposed], False, {})["ours"]["bleu"] == pytest.approx(100)
    marked, written = "او\u200f در خانه است و می\u200cرود", "او در خانه است و می رود"  # a mark of direction, and a non-joiner
    assert score({"ours": [written]}, [marked], False, {})["ours"]["bleu"] == pytest.approx(100)
    figures = score({"ours": ["他 在 河边 看到 一只 狗".replace(" ", "")]}, ["他在河边看到一只猫"], False, signatures)
    assert figures["ours"]["bleu"] > 50 and "tok:zh" in signatures["BLEU"]
    assert all(signature.endswith("|text:nfkc") for signature in signatures.values())
