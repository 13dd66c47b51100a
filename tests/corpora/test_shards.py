"""Corpora of shards: the same text as in memory, by however many processes, whatever was killed; and what is made of them."""

import gzip
import hashlib
import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from components.core.errors import SesameError
from components.core.tracking import Run
from components.params import Corpus, CorpusPart, Encoding, Params, TextRun, Tokenizer, check
from components.stages import registry
from components.text import corpora, encode, tokenizer
from components.text.corpora import __main__ as corpus_stage
from components.text.corpora import cleaning, shards
from components.text.corpora.sentences import sentences
from components.text.corpora.shards import minhash, plan, steps
from components.text.encode import splits
from components.text.encode.__main__ import encode as encode_stage
from components.text.tokenizer.__main__ import train
from tests.conftest import tiny_params

WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrs"] + ["él", "ß", "naïve"]
LINES, GROUPS = {"format": "text", "document": "line"}, {"format": "text", "document": "blank_line"}


def words(draw: random.Random, count: int) -> list[str]:
    return draw.choices(WORDS, k=count)


def text_of(words: list[str]) -> str:
    """In sentences of ten words."""
    return " ".join(" ".join(words[i : i + 10]).capitalize() + "." for i in range(0, len(words), 10))


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def corpus(*parts: tuple[dict, list[str]], **settings) -> Corpus:
    read = [CorpusPart(source={"kind": "files", "paths": paths}, reader=reader) for reader, paths in parts or [(LINES, ["data.txt"])]]
    return Corpus(**{"language": "en", "licence": "none", "parts": read, "splits": {"valid": 0.1, "test": 0.1}} | settings)


def make(one: Corpus, workers: int = 1, name: str = "small", **run) -> dict:
    """Run the stage; its metrics."""
    return corpus_stage.body(Params.model_construct(seed=1, corpora={name: one}, text=TextRun(workers=workers, **run)), name, None)


def everything(name: str = "small") -> dict[str, list[list[str]]]:
    return {split: list(corpora.read(f"data/corpora/{name}", split)) for split in corpora.SPLITS}


def written(folder: str = "data/corpora/small") -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path(folder).iterdir())}


def both(count: int, *parts: tuple[dict, list[str]], **settings) -> tuple[dict, dict]:
    """What is written, and counted, in memory and as so many shards."""
    found = []
    for shards_ in (None, count):
        metrics = make(corpus(*parts, **settings, shards=shards_))
        counts = {split: {key: own[key] for key in ("documents", "segments", "words")} for split, own in metrics["splits"].items()}
        found.append((everything(), metrics["dropped"], counts, metrics["words"]))
    return found[0], found[1]


def documents(draw: random.Random, count: int) -> list[str]:
    """Some short, some said again."""
    own = [text_of(words(draw, draw.randint(3, 60))) for _ in range(count)]
    return [draw.choice(own[: i + 1]) if draw.random() < 0.2 else text for i, text in enumerate(own)]


@pytest.mark.parametrize("count", [1, 7])
def test_the_same_text_as_in_memory(project, count):
    """Plain files of lines and of groups (some blank lines too many, CRLF), packed ones, whole ones, and rows."""
    draw = random.Random(0)
    (project / "a.txt").write_text("\n".join(documents(draw, 60)))
    (project / "b.txt").write_bytes("\r\n\r\n".join(documents(draw, 40)).replace(". ", ".\r\n").encode() + b"\r\n\n\n \n")
    (project / "c.txt.gz").write_bytes(gzip.compress("\n".join(documents(draw, 30)).encode()))
    for i, text in enumerate(documents(draw, 5)):
        (project / f"whole{i}.txt").write_text(text)
    (project / "empty.txt").write_text("")
    (project / "d.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents(draw, 30)))
    (project / "e.tsv").write_text("\n".join(f"{i}\t{text}" for i, text in enumerate(documents(draw, 30))))
    parts = [
        (LINES, ["a.txt", "empty.txt", "c.txt.gz"]), (GROUPS, ["b.txt"]), ({"format": "text"}, ["whole*.txt", "empty.txt"]),
        ({"format": "jsonl", "column": "text"}, ["d.jsonl"]), ({"format": "tsv", "column": 1, "fields": 2}, ["e.tsv"]),
    ]  # fmt: skip
    memory, sharded = both(count, *parts, cleaning={"near_duplicates": None, "min_words": 5})
    assert memory == sharded and memory[1]["duplicates"] > 10 and memory[1]["short"] > 3
    card = corpora.card("data/corpora/small")
    names = {f"{split}-{rank:05}-of-{count:05}.txt" for split in corpora.SPLITS for rank in range(count)}
    assert card["shards"] == count and {path.name for path in Path("data/corpora/small").iterdir()} == {"card.json", *names}
    assert card["splits"]["train"]["bytes"] == sum(path.stat().st_size for path in Path("data/corpora/small").glob("train-*"))


def test_what_is_packed_or_one_document_goes_whole_to_one_shard(project):
    for name, reader, cut in (
        ("lines.txt", LINES, True), ("groups.txt", GROUPS, True),
        ("rows.jsonl", {"format": "jsonl", "column": "text"}, True), ("one.txt", {"format": "text"}, False),
        ("rows.tsv", {"format": "tsv", "column": 1, "fields": 2}, True),
        ("packed.txt.gz", LINES, False), ("rows.csv", {"format": "csv", "column": "text"}, False),
        ("named.tsv", {"format": "tsv", "column": "text", "header": True}, False),
    ):  # fmt: skip
        (project / name).write_text("a line\n\n" * 40)
        found = plan.portions("small", corpus((reader, [name]), shards=4))
        assert sum(map(len, found)) == (4 if cut else 1), name


def test_more_shards_than_there_is_text(project):
    (project / "data.txt").write_text("\n".join(f"the {i} th" for i in range(25)))
    memory, sharded = both(30, splits={"valid": 0.3, "test": 0.0}, cleaning={"near_duplicates": None})
    assert memory == sharded and len(sharded[0]["train"]) + len(sharded[0]["valid"]) == 25


def planted(draw: random.Random) -> tuple[list[str], set[str], set[str]]:
    """Lines; those of them that repeat an earlier one but for a word in two hundred; those that share a fifth of one's shingles."""
    own = [words(draw, 200) for _ in range(60)]
    near, far = [], []
    for number, original in enumerate(own):
        copy = list(original)
        if number % 3 == 0:
            copy[draw.randrange(200)] = "planted"
            near.append(copy)
        elif number % 3 == 1:
            far.append([*copy[:90], *words(draw, 110)])
    lines = [*own, *near, *far]
    return [text_of(line) for line in lines], {text_of(line) for line in near}, {text_of(line) for line in far}


@pytest.mark.parametrize("threshold", [0.8, 0.5])
def test_near_duplicates_are_found_whatever_shard_they_are_in(project, threshold):
    lines, near, far = planted(random.Random(0))
    (project / "data.txt").write_text("\n".join(lines))
    memory, sharded = both(5, cleaning={"near_duplicates": threshold})
    left = {" ".join(document) for split in sharded[0].values() for document in split}
    assert not near & left and far <= left and len(left) == 80, "recall and precision of 1"
    assert memory == sharded and sharded[1] == {"short": 0, "duplicates": 0, "near_duplicates": 20}


def test_the_earlier_one_stays_and_what_is_like_a_dropped_one_alone_stays(project):
    """The third is like the second, and the second like the first, but not the third like the first."""
    first = words(random.Random(106), 300)  # estimates of both are far from the threshold
    second, third = ["x"] * 30 + first[30:], ["x"] * 30 + first[30:-30] + ["y"] * 30
    (project / "data.txt").write_text("\n".join(map(text_of, [first, second, third, *(words(random.Random(i), 60) for i in range(1, 40))])))
    memory, sharded = both(4, cleaning={"near_duplicates": 0.8})
    left = [" ".join(document) for split in sharded[0].values() for document in split]
    assert memory == sharded and text_of(first) in left and text_of(second) not in left and text_of(third) in left


def test_near_duplicates_of_a_script_without_blanks(project):
    """In Chinese a character is a word: the copy with one new character goes, as it does from a corpus in memory."""
    draw = random.Random(1)
    first, *others = ("".join(chr(0x4E00 + draw.randrange(800)) for _ in range(300)) + "。" for _ in range(80))
    copy = f"{first[:150]}新{first[151:]}"
    (project / "data.txt").write_text("\n".join([first, *others[:6], copy, *others[6:]]))
    memory, sharded = both(4, cleaning={"near_duplicates": 0.8, "min_words": 1})
    left = [" ".join(document) for split in sharded[0].values() for document in split]
    assert memory == sharded and sorted(left) == sorted([first, *others])


def test_many_of_the_same_are_no_more_than_one_each(project):
    """A group of candidates in which each is like the first: as many pairs as documents, not their square."""
    base = words(random.Random(0), 150)
    lines = [text_of([*base[:140], *words(random.Random(i), 10)]) for i in range(60)]
    (project / "data.txt").write_text("\n".join([*lines, *(text_of(words(random.Random(-i), 150)) for i in range(1, 60))]))
    one = corpus(shards=3)
    metrics = make(one)
    assert metrics["dropped"]["near_duplicates"] == 59


def test_signatures():
    draw = random.Random(0)
    own = [draw.choices([f"w{i}" for i in range(10**5)], k=30_000) for _ in range(2)]
    text = " ".join(own[0]).encode()
    hashes = minhash.word_hashes(text)  # of pieces
    assert len(text) > 4 * minhash.PIECE and len(hashes) == 30_000
    by_word = dict(zip(own[0], hashes.tolist(), strict=True))
    assert [by_word[word] for word in own[0]] == hashes.tolist() and len(set(by_word.values())) == len(by_word)
    wrong = []
    for _ in range(200):
        a, b = words(draw, 200), None
        b = list(a)
        for place in draw.sample(range(200), draw.randint(0, 10)):
            b[place] = "other"
        sets = [{tuple(side[i : i + 5]) for i in range(196)} for side in (a, b)]
        alike = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        agree = (minhash.signature(text_of(a).encode()) == minhash.signature(text_of(b).encode())).mean()
        wrong.append((agree - alike) / max((alike * (1 - alike) / 128) ** 0.5, 1e-9) if alike < 1 else agree - 1)
    assert abs(np.mean(wrong)) < 0.25 and np.std(wrong) < 1.2, "as far off as 128 draws are"
    assert [cleaning.rows_of(threshold) for threshold in (1.0, 0.9, 0.8, 0.5, 0.0)] == [16, 8, 8, 2, 1]


def test_one_and_two_workers_write_the_same_bytes(project):
    lines, near, _ = planted(random.Random(0))
    (project / "data.txt").write_text("\n".join(lines * 2))
    one = corpus(shards=4)
    make(one)
    alone = written()
    make(one, workers=2)
    assert written() == alone and len(alone) == 13
    assert not any(Path(".sesame/text/corpora/small").iterdir()), "nothing is left of the work"


class KilledSplit(steps.Split):
    """As a process that the system kills for its memory, in its second shard, half-way."""

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        if rank == 1:
            (self.folder / "shards").mkdir(exist_ok=True)
            (self.folder / "shards" / "train-00001-of-00004.txt").write_text("half a")
            os.kill(os.getpid(), signal.SIGKILL)
        super().run(data, rank, world_size)


def test_a_killed_worker_is_noticed_and_the_next_run_goes_on(project, monkeypatch, capfd):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 200)))
    one = corpus(shards=4, cleaning={"near_duplicates": None})
    make(one)
    whole = written()
    for path in Path("data/corpora/small").iterdir():
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(steps, "Split", KilledSplit)
        with pytest.raises(SesameError, match=r"corpora.small: a worker was killed in the step split .*: run again"):
            make(one, workers=2)
    assert not written(), "nothing half-written"
    capfd.readouterr()
    make(one, workers=2)
    said = capfd.readouterr().out
    assert "clean: 0 of 4 tasks" in said and "split: 0 of 4" not in said
    assert written() == whole


def test_other_settings_or_files_begin_anew(project):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 100)))
    keys = set()
    for one, seed in (
        (corpus(shards=4), 1),
        (corpus(shards=4), 2),
        (corpus(shards=4, cleaning={"min_words": 2}), 1),
        (corpus(shards=3), 1),
    ):
        keys.add(shards._key(one, seed, plan.portions("small", one)))
    os.utime("data.txt", (1, 1))
    keys.add(shards._key(corpus(shards=4), 1, plan.portions("small", corpus(shards=4))))
    assert len(keys) == 5


def broken(reader: dict, count: int, line: bytes) -> str:
    """What is said of the last line but one of 300."""
    good = b'{"text": "One two three."}' if reader["format"] == "jsonl" else b"One two three."
    Path("data.txt").write_bytes(b"\n".join([*[good] * 298, line, good]))
    with pytest.raises(SesameError) as told:
        make(corpus((reader, ["data.txt"]), shards=count))
    return str(told.value)


@pytest.mark.parametrize("count", [1, 7])
def test_a_malformed_line_is_named(count):
    assert broken(LINES, count, b"caf\xe9 noir").startswith("data.txt, line 299: invalid UTF-8")
    assert broken({"format": "jsonl", "column": "text"}, count, b'{"text": ').startswith("data.txt, line 299: not valid JSON")
    assert broken({"format": "jsonl", "column": "text"}, count, b'{"other": "a"}').startswith("data.txt, line 299: no column 'text'")


def test_a_full_disk_is_one_line(project):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 200)))
    one = corpus(shards=3)
    folder = Path(".sesame/text/corpora/small", shards._key(one, 1, plan.portions("small", one)), "clean")
    folder.mkdir(parents=True)
    (folder / "00001.txt").symlink_to("/dev/full")
    for workers in (1, 2):
        with pytest.raises(SesameError, match=f"{folder.parent}: the disk of .* is full"):
            make(one, workers=workers)
    (folder / "00001.txt").unlink()
    make(one)
    assert len(written()) == 10


def test_where_nothing_can_be_written_is_one_line(project):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 50)))
    Path(".sesame").mkdir()
    Path(".sesame/text").write_text("a file")
    with pytest.raises(SesameError, match=r"\.sesame/text.*nothing can be written there"):
        make(corpus(shards=2))


def test_text_that_is_not_there_or_too_large_for_a_document(project):
    (project / "data.txt").write_text("a\n\nb\n")
    with pytest.raises(SesameError, match="corpora.small: no text is left; dropped: 3 short"):
        make(corpus(shards=2, cleaning={"min_words": 2}))
    with (project / "data.txt").open("wb") as file:
        file.truncate(plan.LARGEST + 1)
    with pytest.raises(SesameError, match=r"corpora.small, part 1: data.txt is one document of 0.3 GB, .*set `document: blank_line`"):
        make(corpus(({"format": "text"}, ["data.txt"]), shards=2))


def test_what_does_not_go_together_with_shards_is_refused():
    for reason, settings in {
        "smoothing counts the words of all text": {"smoothing": 0.7},
        "cleaning.quality needs shards": {"shards": None, "cleaning": {"quality": ["c4"]}},
        r"part 1: format: parallel reads two files": {"parts": [{"reader": {"format": "parallel"}}]},
        "part 1: max_words samples from all text": {"parts": [{"reader": LINES, "max_words": 10}]},
        "c4 is listed twice": {"cleaning": {"quality": ["c4", "c4"]}},
    }.items():
        parts = [{"source": {"kind": "files", "paths": ["a"]}, **own} for own in settings.pop("parts", [{"reader": LINES}])]
        with pytest.raises(ValidationError, match=reason):
            Corpus(**{"language": "en", "licence": "none", "parts": parts, "shards": 2} | settings)


def test_without_datatrove_it_says_what_to_install(project, monkeypatch):
    monkeypatch.setattr(corpus_stage, "find_spec", lambda name: None)
    with pytest.raises(SesameError, match=r"corpora.small.shards needs datatrove: pip install -c constraints.txt -e '.\[text\]'"):
        make(corpus(shards=2))


def test_quality_filters(project, capsys):
    draw = random.Random(0)
    good = [text_of(draw.choices([*WORDS, *["that", "with", "have"] * 5], k=150)) for _ in range(60)]
    lorem, bare = "Lorem ipsum dolor sit amet. " * 12, " ".join(words(draw, 80))
    repeated = "The same words come again and again with that. " * 20
    (project / "data.txt").write_text("\n".join([*good, lorem, bare, repeated]))
    metrics = make(corpus(shards=3, cleaning={"quality": ["gopher_repetition", "c4", "gopher_quality", "fineweb"]}))
    dropped = metrics["dropped"]
    assert metrics["documents"] == 60, dropped
    assert dropped["too_few_sentences"] == 1 and dropped["dup_line_frac"] == 2, dropped
    one = make(corpus(shards=3, cleaning={"quality": ["c4"]}))
    assert one["dropped"]["lorem_ipsum"] == 1 and one["documents"] == 61
    for language, without_stop_words in (("en", 1), ("de", 0)):
        found = make(corpus(language=language, shards=3, cleaning={"quality": ["gopher_quality"]}))["dropped"]
        assert found.get("gopher_enough_stop_words", 0) == without_stop_words, found
    make(corpus(shards=3, cleaning={"quality": ["gopher_repetition"]}))
    assert "sentences_removed" not in corpora_card()
    more = [f"{text} Yes. “Said he.” She never came" for text in good]
    short = sum(sentence == "Yes." for text in more for sentence in sentences(text))
    (project / "data.txt").write_text("\n".join(more))
    kept = make(corpus(shards=3, cleaning={"quality": ["c4"]}))
    removed = corpora_card()["sentences_removed"]
    assert short > 50 and removed == {"too_few_words": short, "no_terminal_punc": 120} and kept["documents"] == 60, removed
    assert "sentences removed within documents" in capsys.readouterr().out


def corpora_card() -> dict:
    return json.loads(Path("data/corpora/small/card.json").read_text())


def test_a_shard_that_is_missing_is_named(project):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 100)))
    make(corpus(shards=3))
    Path("data/corpora/small/train-00001-of-00003.txt").unlink()
    with pytest.raises(SesameError, match="train-00001-of-00003.txt: no such file"):
        list(corpora.read("data/corpora/small", "train"))


def test_words_by_language_are_of_what_is_left(project):
    for language in ("en", "de"):
        (project / f"{language}.txt").write_text("\n".join(documents(random.Random(language == "de"), 80)))
    parts = [
        CorpusPart(source={"kind": "files", "paths": [f"{language}.txt"]}, reader=LINES, language=language) for language in ("en", "de")
    ]
    found = [make(Corpus(language="en, de", licence="none", parts=parts, splits={"valid": 0.1}, shards=count)) for count in (None, 3)]
    assert found[0]["words_by_language"] == found[1]["words_by_language"] and set(found[0]["words_by_language"]) == {"en", "de"}


def test_encoded_shards_are_the_encoding_of_the_whole(project):
    """With the boundaries of segments and documents; a shard of the text may have nothing in a split."""
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 60)))
    texts = {"whole": corpus(), "parts": corpus(shards=6)}
    tokenizers = {"pieces": Tokenizer(corpus="whole", vocab_size=320)}
    encodings = {name: Encoding(corpus=name, tokenizer="pieces") for name in texts}
    run, settings = Run(None), {"seed": 1, "corpora": texts, "tokenizers": tokenizers, "encodings": encodings}
    p = Params.model_construct(**settings, text=TextRun(workers=1))
    for name in texts:
        corpus_stage.body(p, name, None)
    train(p, "pieces", run)
    metrics = {name: encode_stage(p, name, run) for name in texts}
    for split in corpora.SPLITS:
        whole, parts = (encode.load(Path("data/encoded", name), split) for name in texts)
        assert len(parts.shards) > 1 - (split != "train") and len(whole) == len(parts) and all(len(shard) for shard in parts.shards)
        assert np.array_equal(whole.shards[0].tokens, np.concatenate([shard.tokens for shard in parts.shards]))
        ends = [np.diff(shard.documents) for shard in (*whole.shards, *parts.shards)]
        assert np.array_equal(ends[0], np.concatenate(ends[1:]))
        lengths = [np.diff(shard.segments, axis=1) for shard in (*whole.shards, *parts.shards)]
        assert np.array_equal(lengths[0], np.concatenate(lengths[1:]))
        same = ("tokens", "segments", "documents", "bytes")
        assert {key: metrics["whole"][split][key] for key in same} == {key: metrics["parts"][split][key] for key in same}
    assert tokenizer.load(Path("data/encoded/parts")).vocab_size == 320
    first = written("data/encoded/parts")
    encode_stage(Params.model_construct(**settings, text=TextRun(workers=2)), "parts", run)
    assert written("data/encoded/parts") == first


def test_an_encoding_is_closed_into_shards_by_its_tokens(project, monkeypatch):
    """So that no more than the boundaries of one shard are held in training."""
    assert splits.SHARD_TOKENS == 2**27, "134 M"
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 60)))
    p = Params.model_construct(
        seed=1,
        corpora={"small": corpus()},
        tokenizers={"pieces": Tokenizer(corpus="small", vocab_size=320)},
        encodings={"own": Encoding(corpus="small", tokenizer="pieces")},
        text=TextRun(workers=1),
    )
    corpus_stage.body(p, "small", None)
    train(p, "pieces", Run(None))
    whole = encode_stage(p, "own", Run(None))
    [shard] = encode.load(Path("data/encoded/own"), "train").shards
    monkeypatch.setattr(splits, "DOCUMENTS_AT_ONCE", 1)
    monkeypatch.setattr(splits, "SHARD_TOKENS", len(shard.tokens) // 3)
    parts = encode_stage(p, "own", Run(None))
    shards = encode.load(Path("data/encoded/own"), "train").shards
    assert len(shards) == 3 and np.array_equal(shard.tokens, np.concatenate([own.tokens for own in shards]))
    assert all(len(own.tokens) >= len(shard.tokens) // 3 for own in shards[:-1])
    assert parts["train"]["tokens"] == whole["train"]["tokens"]


def test_a_tokenizer_learns_from_the_sample_that_is_declared(project):
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 150)))
    texts = {"whole": corpus(), "parts": corpus(shards=3)}
    sizes = {"all": None, "most": 10**6, "some": 100}
    tokenizers = {
        f"{name}_{size}": Tokenizer(corpus=name, vocab_size=300, sample_sentences=sizes[size]) for name in texts for size in sizes
    }
    p = Params.model_construct(seed=1, corpora=texts, tokenizers=tokenizers, text=TextRun(workers=1))
    for name in texts:
        corpus_stage.body(p, name, None)
    for name in tokenizers:
        train(p, name, Run(None))
    made = {name: tokenizer.load(Path("data/tokenizers", name)).pieces for name in tokenizers}
    assert made["whole_all"] == made["whole_most"] == made["parts_all"] and made["whole_some"] != made["whole_all"]
    assert made["whole_some"] == made["parts_some"]


def test_slurm_that_is_not_here_is_a_line(project, monkeypatch):
    """The one that is here: test_slurm.py."""
    (project / "data.txt").write_text("\n".join(documents(random.Random(0), 60)))
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(SesameError, match="text.executor slurm: no command 'sbatch' on this machine"):
        make(corpus(shards=1), executor="slurm")


def test_no_result_depends_on_who_works():
    raw = tiny_params()
    raw["corpora"]["base"]["shards"] = 4
    raw["tokenizers"]["tiny"]["corpus"] = raw["encodings"]["tiny"]["corpus"] = "base"
    entries = []
    for text in ({}, {"executor": "slurm", "workers": 7, "partition": "cpu"}):
        entries.append({(own.stage, own.name): (own.settings, own.code) for own in registry.entries(check(raw | {"text": text}))})
    assert entries[0] == entries[1] and entries[0]["corpus", "base"][0]["shards"] == 4
    [own] = [own for own in registry.entries(check(raw)) if own.stage == "encode"]
    assert "components.text.encode.shards" in own.modules
