"""Corpora end to end: the files and the card a stage writes, from local files to splits."""

import bz2
import gzip
import hashlib
import json
import lzma
import random
import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import get_args

import ftfy
import pytest

from components.core import storage
from components.core.errors import SesameError
from components.params import Cleaning, Corpus, CorpusPart, Mix, Params, Reader, Splits, Task, TaskSplit, check
from components.params.text import ParallelReader, TableReader, TextReader
from components.stages import stage
from components.text import corpora
from components.text import stages as text_stages
from components.text.corpora import __main__ as corpus_stage
from components.text.corpora import cleaning, mix, readers, writer
from components.text.corpora.sentences import SENTENCE_END, WIDE_END, sentences
from tests.conftest import tiny_params

WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrs"]


def sentence(draw: random.Random, length: int = 8) -> str:
    return " ".join(draw.choices(WORDS, k=length)).capitalize() + "."


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def params(
    reader: dict, cleaning: dict | None = None, max_words: int | None = None, splits: dict | None = None, tasks=None, seed: int = 1
) -> Params:
    """The part of params.yaml that these stages read: one corpus `small` of the file `data.txt`, and a mix of it."""
    part = CorpusPart(source={"kind": "files", "paths": ["data.txt"]}, reader=reader, max_words=max_words)
    small = Corpus(language="en", licence="none", parts=[part], cleaning=cleaning or {}, splits=splits or {"valid": 0.1, "test": 0.1})
    tasks = tasks or {}
    return Params.model_construct(
        seed=seed,
        corpora={"small": small},
        tasks=tasks,
        mixes={"mixed": Mix(corpus="small", tasks=list(tasks)[:1], also_held_out=list(tasks)[1:])},
    )


def make(project, text: str | bytes, *args, **kwargs) -> dict:
    """Write the file, run the stage; its metrics."""
    (project / "data.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return corpus_stage.body(params(*args, **kwargs), "small", None)


def everything() -> list[list[str]]:
    return [document for split in corpora.SPLITS for document in corpora.read("data/corpora/small", split)]


LINES = {"format": "text", "document": "line"}


def test_format_card_and_metrics(project):
    draw = random.Random(0)
    text = "\n\n".join(f"{sentence(draw)} {sentence(draw)}\n{sentence(draw)}" for _ in range(100))
    metrics = make(project, text, {"format": "text", "document": "blank_line"})
    assert metrics["documents"] == 100 and metrics["words"] == 2400 and all(len(document) == 3 for document in everything())
    card = corpora.card("data/corpora/small")
    for split in corpora.SPLITS:
        raw = (project / "data/corpora/small" / f"{split}.txt").read_bytes()
        counts = card["splits"][split]
        assert counts["bytes"] == len(raw) and counts["sha256"] == hashlib.sha256(raw).hexdigest()
        assert raw.decode().count("\n\n") == counts["documents"] - 1
        assert counts["words"] == len(raw.split()) == counts["segments"] * 8
    assert card["sources"] == [{"kind": "files", "paths": ["data.txt"]}]


@pytest.mark.parametrize("document, count", [("file", 1), ("blank_line", 2), ("line", 3)])
def test_what_a_document_is(project, document, count):
    (project / "data.txt").write_text("One. Two.\r\nThree.\r\n\r\nFour.\r\n")
    part = params({"format": "text", "document": document}).corpora["small"].parts[0]
    documents = [kept for kept in cleaning.Cleaner(Cleaning())(readers.documents(part))]
    assert len(documents) == count and [segment for kept in documents for segment in kept] == ["One.", "Two.", "Three.", "Four."]


def test_every_reader_that_can_be_declared_is_a_file():
    named = {block.__name__.removesuffix("Reader").lower() for block in get_args(get_args(Reader)[0])}
    there = {path.stem for path in Path(readers.__file__).parent.glob("*.py")} - {"__init__"}
    assert there == named == {"text", "table", "parallel"}


def test_sentences_are_cut_roughly():
    text = 'Mr. Smith met J. Doe in St. Louis. "Why?" he asked. It cost 3.5 dollars! Élan vital… Été. 你好。再见。'
    assert sentences(text) == [
        "Mr. Smith met J. Doe in St. Louis.", '"Why?" he asked.', "It cost 3.5 dollars!", "Élan vital…", "Été.", "你好。", "再见。", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "count"),
    [("यह एक वाक्य है। यह दूसरा है॥ हाँ।", 3), ("هل أنت هنا؟ نعم. یہ ہے۔ ہاں", 4), ("Սա է։ Այո", 2), ("ሰላም ነው። አዎ", 2)],
)
def test_sentences_end_with_the_marks_of_other_scripts(text, count):
    assert len(sentences(text)) == count and " ".join(sentences(text)) == text


@pytest.mark.parametrize("text", [
    "He lived, cf. the book, approx.  ten years.", "Narodil se r. 1990, např. český spisovatel tzv. školy.",
    "Urodził się tj. środek kraju, np. łódzkie.", "Ο γιατρός ζει εδώ, δηλ. στην Αθήνα.", "Жил в Москве, напр. дома, и пр. там.",
])  # fmt: skip
def test_no_sentence_begins_in_lower_case(text):
    assert sentences(text) == [text]
    assert sentences("გუშინ მოვიდა. დღეს წავიდა.") == ["გუშინ მოვიდა.", "დღეს წავიდა."], "Georgian has no other case"


@pytest.mark.parametrize("cut", [
    ["他说：“我不去。”", "然后他走了。"], ["「はい。」", "と彼は言った。", "「行きます。」"], ["（这是注释。）", "下一句。"],
    ["えっ！？", "本当。。。", "そう！！"], ["（彼は「はい。」）", "終わり"],
])  # fmt: skip
def test_marks_and_closing_quotes_stay_with_the_sentence_that_they_end(cut):
    """Behind 。 no blank has to follow: a closing quote began the next sentence, or was one."""
    assert [sentence for sentence in sentences("".join(cut)) if sentence] == cut


def test_sentences_end_where_the_patterns_say():
    """They are looked for faster than by them."""
    draw = random.Random(0)
    for _ in range(2000):
        line = "".join(draw.choices([*".!?…\"'”’»)]。！？」） aAßö", "\u00a0", "Mr.", "J.", " He"], k=draw.randint(0, 16)))
        wide = re.sub(WIDE_END, r"\g<0>\0", line).split("\0") if line else []
        assert sentences(line) == [sentence for part in wide for sentence in SENTENCE_END.split(part)], line


def test_table_column_with_separator(project):
    rows = "".join(f"word{i}\tfirst sense of {i}. Not cut | second sense of {i}\n" for i in range(60))
    make(project, rows, {"format": "tsv", "column": 1, "separator": " | "})
    assert sorted(everything())[0] == ["first sense of 0. Not cut", "second sense of 0"]
    make(project, rows, {"format": "tsv", "column": 1, "headword": 0, "separator": " | "})
    assert sorted(everything())[0] == ["word0: first sense of 0. Not cut", "word0: second sense of 0"]


def test_cleaning(project):
    cleaner = cleaning.Cleaner(Cleaning(min_words=2))
    raw = [
        ["cafe\u0301  noir\u00a0\tet\x07 \u200bthé\ufeff"],
        ["one"],
        [" ", ""],
        ["café noir et thé"],
        ["two words", " "],
        ["lone \ud800 surrogate"],
    ]
    assert list(cleaner(raw)) == [["café noir et thé"], ["two words"], ["lone surrogate"]]
    assert cleaner.dropped == {"short": 2, "duplicates": 1, "near_duplicates": 0}
    assert list(cleaning.Cleaner(Cleaning(unicode="NFKC"))([["ﬁne №"]])) == [["fine No"]]
    assert list(cleaning.Cleaner(Cleaning(unicode="ftfy"))([["schÃ¶n"]])) == [["schön"]]


def test_a_byte_of_mojibake_ends_no_line():
    """Python ends a line at U+0085, which is a byte of Å, of х, and an ellipsis of Windows: ftfy got the halves of letters."""
    whole = ["Åsa Öberg bor i Ångermanland och åker till Åbo i dag.", "Хорошо, что у них есть хлеб."]
    broken = " ".join(whole).encode().decode("latin-1")
    assert cleaning.normalised(sentences(f"{broken}\r\nHe waited\x85 and left."), "ftfy") == [*whole, "He waited… and left."]
    assert cleaning.normalised(sentences("one\x85two\x0bthree\u2028four"), "NFC") == ["one two", "three", "four"]


@pytest.mark.parametrize("unicode", ["NFC", "ftfy"])
def test_a_segment_is_cleaned_to_one_segment(unicode):
    assert cleaning.normalised(["one\u2028 of two\u2029lines\n", "é"], unicode) == ["one of two lines", "é"]
    assert len(cleaning.normalised(["Café one&#10;two\rthree", "Kaffee eins zwei drei"], unicode)) == 2


def test_ftfy_repairs_ascii_as_any_text():
    """An entity was left alone where no other character of the document needed a repair, so that duplicates were missed."""
    assert cleaning.normalised(["AT&amp;T"], "ftfy") == cleaning.normalised(["AT&amp;T", "é"], "ftfy")[:1] == ["AT&T"]
    printable = "".join(map(chr, range(32, 127)))
    alone = [first + second for first in printable for second in printable]
    assert [each for each in alone if "&" not in each and ftfy.fix_text(each) != each] == [], "which is not asked then"
    for other in set(map(chr, range(128))) - set(printable):
        [apart], [beside, _] = (cleaning.normalised([f"a{other}b", *more], "ftfy") for more in ([], ["é"]))
        assert apart == beside == ("a b" if other.isspace() else "ab"), hex(ord(other))


@pytest.mark.parametrize(("broken", "repaired"), [
    ("it\u00e2\x80\x99s", "it's"), ("aqu\u00c3\u00ad", "aquí"), ("co&shy;op", "coop"), ("one&#8203; word", "one word"),
    ("\x1b[31mred\x1b[0m", "red"),
])  # fmt: skip
def test_control_characters_are_removed_after_ftfy_has_repaired_the_text(broken, repaired):
    """They are bytes of mojibake, which could not be repaired without them; and entities brought new ones."""
    assert cleaning.normalised([broken], "ftfy") == [repaired]


WRAPPED = "It was a dark and\nstormy night . The rain\nfell in torrents .\n\nNobody was\nthere .\n"


@pytest.mark.parametrize(("document", "joined"), [
    ("blank_line", [["It was a dark and stormy night .", "The rain fell in torrents ."], ["Nobody was there ."]]),
    ("file", [["It was a dark and stormy night .", "The rain fell in torrents .", "Nobody was there ."]]),
])  # fmt: skip
def test_the_lines_of_a_paragraph_are_joined_if_it_is_wrapped(project, capsys, document, joined):
    Path("data.txt").write_text(WRAPPED)
    part = {"source": {"kind": "files", "paths": ["data.txt"]}, "reader": {"format": "text", "document": document, "wrapped": True}}
    assert list(readers.documents(CorpusPart(**part))) == joined and not capsys.readouterr().out
    part["reader"]["wrapped"] = False
    apart = [segment for text in readers.documents(CorpusPart(**part)) for segment in text]
    assert apart[:2] == ["It was a dark and", "stormy night ."] and len(apart) == 6
    assert "after 100% of line ends the text goes on with a small letter" in capsys.readouterr().out
    Path("data.txt").write_text("გუშინ მოვიდა.\nდღეს წავიდა.\n")
    assert len(list(readers.documents(CorpusPart(**part)))) == 1 and not capsys.readouterr().out, "a script without case"
    with pytest.raises(ValueError, match="wrapped has no effect: document: line makes a document of each line"):
        CorpusPart(**part | {"reader": {"format": "text", "document": "line", "wrapped": True}})


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("小明昨天在北京的图书馆\n里读了一本，\n关于历史的书。\n", "小明昨天在北京的图书馆里读了一本，关于历史的书。"),
        ("彼はコンピュー\nターを買った\n人々を「知\nる」。\n", "彼はコンピューターを買った人々を「知る」。"),
        ("他用 Google\n搜索了\nSesame\n", "他用 Google 搜索了 Sesame"),
        ("나는 오늘\n학교에 간다\n", "나는 오늘 학교에 간다"),
    ],
)
def test_lines_of_chinese_and_japanese_are_joined_without_blanks(project, lines, joined):
    """A blank stood within words. Korean has blanks between its words."""
    Path("data.txt").write_text(lines)
    source = {"kind": "files", "paths": ["data.txt"]}
    [document] = readers.documents(CorpusPart(source=source, reader={"format": "text", "document": "file", "wrapped": True}))
    assert "".join(document) == joined


def test_a_line_without_a_translation_is_counted(project):
    Path("a.txt").write_text("one\ntwo\nthree\nfour\n")
    Path("b.txt").write_text("eins\n\u200b\n\n&nbsp;&#8203;\n")
    source = CorpusPart(source={"kind": "files", "paths": ["a.txt", "b.txt"]}, reader={"format": "parallel"})
    assert list(readers.documents(source)) == [["one", "eins"], [], [], []], "one would be left alone by ftfy"


def test_near_duplicates_of_long_documents_only(project):
    draw = random.Random(0)
    long = [draw.choice(WORDS) for _ in range(200)]
    almost = [*long[:100], "different", *long[101:]]
    short = long[:20]
    documents = [[" ".join(words)] for words in (long, almost, long[100:] + long[:50], short, [*short[:-1], "different"])]
    cleaner = cleaning.Cleaner(Cleaning())
    kept = list(cleaner(documents))
    assert kept == [documents[0], documents[2], documents[3], documents[4]] and cleaner.dropped["near_duplicates"] == 1
    assert list(cleaning.Cleaner(Cleaning(near_duplicates=None))(documents)) == documents


def test_near_duplicates_of_scripts_without_blanks():
    """Of characters in place of words, of which a document needs as many."""
    long = "小明昨天在北京的图书馆里读了一本关于历史的书觉得这本书非常有意思所以今天又去借了一本打算周末在家里慢慢看完然后写一篇读后感"
    documents = [[long], [long.replace("周末", "明天")], [long[::-1]], ["今天很好"], ["今天很坏"]]
    cleaner = cleaning.Cleaner(Cleaning(near_duplicates=0.6, near_duplicates_min_words=20))
    assert list(cleaner(documents)) == [documents[0], *documents[2:]] and cleaner.dropped["near_duplicates"] == 1


@pytest.mark.parametrize("limit", [0.4, 0.6, 0.8])
def test_near_duplicates_are_those_as_alike_as_the_setting_says(limit):
    """By the Jaccard index of 5-word shingles, counted exactly; what is closer to the limit than hashes can tell may go either way."""
    draw, cleaner = random.Random(0), cleaning.Cleaner(Cleaning(near_duplicates=limit))
    for shared in [*range(60, 200, 10)] * 8:  # words of 200 that the second document has from the first
        first = [draw.choice(WORDS) + draw.choice(WORDS) for _ in range(200)]
        second = first[:shared] + [draw.choice(WORDS) + draw.choice(WORDS) for _ in range(200 - shared)]
        one, other = ({tuple(words[i : i + 5]) for i in range(196)} for words in (first, second))
        alike = len(one & other) / len(one | other)
        dropped = len(list(cleaner([[" ".join(first)], [" ".join(second)]]))) == 1
        assert dropped == (alike >= limit) or abs(alike - limit) < 0.15, (shared, alike)


@pytest.mark.parametrize("limit", [0.8, 1.0])
def test_most_documents_a_little_above_the_limit_are_dropped(limit):
    """datasketch's own bands found a third of them, and had none for a limit of .99 and more."""
    draw, cleaner, found = random.Random(0), cleaning.Cleaner(Cleaning(near_duplicates=limit)), 0
    for _ in range(60):
        first = [f"{draw.random()}" for _ in range(200)]
        second = [*first[:180], *(f"{draw.random()}" for _ in range(20))] if limit < 1 else [*first[:100], "and", *first[100:]]
        found += len(list(cleaner([[" ".join(first)], [" ".join(second)]]))) == 1
    assert found > 40 if limit < 1 else found == 0, "a Jaccard index of .82, and of .96"
    assert not list(cleaner([[" ".join(second).upper()]])), "of 1"


def test_sample_is_seeded_within_its_limit_and_in_order():
    documents = [[f"document {i} has five words"] for i in range(1000)]
    dropped = Counter()
    kept = list(cleaning.sample(documents, 500, 1, dropped))
    assert 95 <= len(kept) <= 100 and dropped["not_sampled"] == 1000 - len(kept) and kept == sorted(kept, key=documents.index)
    assert kept == list(reversed(list(cleaning.sample(reversed(documents), 500, 1, dropped))))
    assert kept != list(cleaning.sample(documents, 500, 2, dropped))


@pytest.mark.parametrize("more", ["", " Indeed."])
def test_what_a_sample_leaves_out_makes_no_duplicate(project, more):
    """Nor a near one: such a document was a duplicate in the second part, left out of the first, and in neither."""
    draw = random.Random(0)
    lines = [sentence(draw, 60) for _ in range(50)]
    settings = params(LINES, max_words=400)
    [part] = settings.corpora["small"].parts
    other = part.model_copy(update={"source": part.source.model_copy(update={"paths": ["other.txt"]}), "max_words": None})
    settings.corpora["small"].parts.append(other)
    (project / "data.txt").write_text("\n".join(lines))
    (project / "other.txt").write_text("\n".join(line + more for line in lines))
    metrics = corpus_stage.body(settings, "small", None)
    assert sorted(document[0].removesuffix(more) for document in everything()) == sorted(lines)
    assert metrics["dropped"] == {"short": 0, "duplicates": 0, "near_duplicates": 0, "not_sampled": 44} | {
        "near_duplicates" if more else "duplicates": 6
    }


def test_a_document_longer_than_a_sample_drives_no_other_out(capsys):
    """The sample was empty where its hash was small. A sample of long documents says how much of it is left empty."""
    short, long = [[f"document {i} has five words"] for i in range(50)], ["word " * 300]
    for seed in range(5):
        dropped = Counter()
        assert list(cleaning.sample([*short[:25], long, *short[25:]], 250, seed, dropped)) == short
        assert dropped == {"longer_than_sample": 1} and not capsys.readouterr().out
    kept = list(cleaning.sample([["word " * 70 + str(i)] for i in range(9)], 100, 1, dropped := Counter()))
    assert len(kept) == 1 and dropped == {"not_sampled": 8}
    assert "sample: 71 of 100 words: whole documents are drawn" in capsys.readouterr().out


def test_a_document_never_changes_sides(project):
    draw = random.Random(0)
    lines = [sentence(draw) for _ in range(2000)]
    sides = []
    for text in (lines[:1000], list(reversed(lines))):
        make(project, "\n".join(text), LINES)
        sides.append({document[0]: split for split in corpora.SPLITS for document in corpora.read("data/corpora/small", split)})
    assert len(sides[0]) == 1000 and all(sides[1][text] == split for text, split in sides[0].items())
    shares = [list(sides[1].values()).count(split) / 2000 for split in corpora.SPLITS]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.03)
    assert any(writer.split_of(text, Splits(valid=0.1, test=0.1), seed=2) != split for text, split in sides[0].items())


def test_a_sample_is_split_like_any_text(project):
    """The hash that samples must not be the one that splits: the sampled documents would all be held out."""
    draw = random.Random(0)
    metrics = make(project, "\n".join(sentence(draw) for _ in range(3000)), LINES, max_words=4000)
    assert metrics["splits"]["train"]["documents"] == pytest.approx(400, abs=30)


def test_same_input_same_bytes(project):
    draw = random.Random(0)
    text = "\n".join(sentence(draw) for _ in range(200))
    first = make(project, text, LINES)
    card = corpora.card("data/corpora/small")
    assert make(project, text, LINES) == first and corpora.card("data/corpora/small") == card


@pytest.mark.parametrize("text, reader, message", [
    (b"", LINES, "corpora.small: no text is left"),
    (b" \n\n \n", LINES, "corpora.small: no text is left; dropped: 3 short$"),
    (b"some\0thing\n", LINES, "data.txt, line 1: a NUL byte"),
    (b"fine\nn\xe4chste\n", LINES, "data.txt, line 2: invalid UTF-8 .*iconv -f cp1252 -t utf-8"),
    (gzip.compress(b"text\n", mtime=0), LINES, "data.txt: no text: it is compressed by gzip; let its name end in .gz"),
    (bz2.compress(b"text\n"), LINES, "data.txt: no text: it is compressed by bzip2; decompress it first"),
    (lzma.compress(b"text\n"), LINES | {"errors": "replace"}, "data.txt: no text: it is compressed by xz; decompress it first"),
    ("text\n".encode("utf-16"), LINES, r"data.txt: no text: it is UTF-16; convert it \(`iconv -f utf-16 -t utf-8`\)"),
    (b"only one document\n", LINES, "no document of 1 fell into"),
    (b"only one document\n" * 3, LINES, r"no document of 1 fell into \w+ \(.*; dropped: 2 duplicates\)"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", LINES, "data.txt: no text: it is a pointer of Git LFS; bring the file"),
    (b'["a"]\n', {"format": "jsonl", "column": "text"}, r"line 1: a JSON object expected, list found; write an object a line \(`jq -c"),
    (b'{"text": 3}\n', {"format": "jsonl", "column": "text"}, "line 1: column 'text' holds int, not text"),
    (b'{"text": "a"}\n', {"format": "jsonl", "column": "body"}, "line 1: no column 'body'"),
])  # fmt: skip
def test_errors_leave_nothing_behind(project, text, reader, message):
    with pytest.raises(SesameError, match=message):
        make(project, text, reader)
    assert not list((project / "data/corpora").iterdir())


def test_invalid_utf8_replaced_by_choice(project):
    draw = random.Random(0)
    text = "\n".join(sentence(draw) for _ in range(100)).encode() + b"\nn\xe4chste Zeile\n"
    make(project, text, LINES | {"errors": "replace"})
    assert ["n\ufffdchste Zeile"] in everything()


def test_reading_what_is_not_there():
    with pytest.raises(SesameError, match="run the stage that writes it first"):
        list(corpora.read("data/corpora/none", "train"))


# ---------------------------------------------------------------- mix


DECLARED = check(tiny_params()).tasks["same"].model_copy(update={"licence": "free", "test": TaskSplit(share=0.1)})


def task(name: str, **splits: list[tuple[str, str | None]]) -> Task:
    for split in ("train", "dev", "test"):
        storage.write_json(stage.Path("data/tasks", name, "card.json"), {})
        rows = [{"id": i, "text_a": a, "text_b": b, "label": 0} for i, (a, b) in enumerate(splits.get(split, []))]
        stage.Path("data/tasks", name, f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DECLARED


def test_mix(project):
    draw = random.Random(0)
    base = [f"{sentence(draw)} {sentence(draw)}" for _ in range(100)]
    stolen = sentences(base[0])[0]
    pairs = [(sentence(draw), sentence(draw)) for _ in range(50)]
    tasks = {
        "used": task(
            "used",
            train=[*pairs, pairs[0], ("Shared text here.", None), ("A leaked pair .", "Not leaked.")],
            dev=[("a  LEAKED, pair", None)],
        ),
        "other": task("other", train=[("Never read.", None)], test=[("Unrelated.", stolen.lower().replace(" ", "  ").rstrip("."))]),
    }
    (project / "data.txt").write_text("\n".join([*base, "Shared text here."]))
    settings = params(LINES, tasks=tasks)
    corpus_stage.body(settings, "small", None)
    metrics = mix.body(settings, "mixed", None)

    mixed = {split: list(corpora.read("data/corpora/mixed", split)) for split in corpora.SPLITS}
    documents = [document for split in corpora.SPLITS for document in mixed[split]]
    segments = [segment for document in documents for segment in document]
    assert list(pairs[0]) in documents and documents.count(list(pairs[0])) == 1
    assert documents.count(["Shared text here."]) == 1 and ["Not leaked."] in documents and ["Never read."] not in documents
    assert stolen not in segments and "A leaked pair ." not in segments
    assert metrics["removed_sentences"] == {"small": 1, "used": 1}
    assert metrics["dropped"] == {"duplicates": 2, "emptied": 0}
    assert metrics["parts"]["small"] == 100 * 16 - 8 + 3 and metrics["words"] == sum(metrics["parts"].values())
    card = corpora.card("data/corpora/mixed")
    assert card["contains"] == "small; unlabelled training text of tasks: used"
    for split in corpora.SPLITS:  # nobody changed sides
        assert {tuple(d) for d in corpora.read("data/corpora/small", split) if stolen not in d} <= {tuple(d) for d in mixed[split]}


def test_what_differs_from_a_held_out_text_by_a_word_is_taken_out(project):
    """Replaced, added or left out; a short one, or two words, are another text."""
    judged = "Two young dogs run through the wet grass."
    kept = ["Two old cats run through the wet grass.", "Two young dogs sleep.", "Dogs run through the grass.", "A man sings ."]
    near = [
        "two young DOGS walk through the wet grass",
        "Two young dogs run through wet grass.",
        "Two very young dogs run through the wet grass!",
    ]
    tasks = {"used": task("used", train=[(text, None) for text in (*kept, *near, judged)], dev=[(judged, None), ("A man sings it.", None)])}
    draw = random.Random(0)
    base = [sentence(draw) for _ in range(100)]
    (project / "data.txt").write_text("\n".join(base))
    settings = params(LINES, tasks=tasks)
    corpus_stage.body(settings, "small", None)
    metrics = mix.body(settings, "mixed", None)
    mixed = {segment for split in corpora.SPLITS for document in corpora.read("data/corpora/mixed", split) for segment in document}
    assert mixed == {*kept, *base}
    assert metrics["removed_sentences"]["used"] == 1 and metrics["removed_near_duplicates"] == {"small": 0, "used": 3}


@pytest.mark.parametrize(
    ("first", "second", "near", "short"),
    [
        ("小明昨天在北京的图书馆里读了一本关于历史的书。", "他觉得这本书非常有意思，所以今天又去借了一本。",
         "他觉得这本书非常有意思，所以昨天又去借了一本。", "他这样说了。"),
        ("太郎は昨日図書館で歴史についての本を読みました。", "とても面白かったので、今日また一冊を借りに行きました。",
         "とても面白かったので、今日また二冊を借りに行きました。", "彼はそう言った。"),
    ],
)  # fmt: skip
def test_sentences_of_scripts_without_blanks_are_taken_out(project, first, second, near, short):
    """Each was one word: too short to be taken out by itself, and what differs by a character another text."""
    held_out = mix.HeldOut(params(LINES, tasks={"used": task("used", dev=[(f"{short}。{first}{second}", None)])}), ["used"])
    assert held_out.same(first) and held_out.same(second) and not held_out.same(short)
    assert held_out.differs_by_a_word(near) and held_out.differs_by_a_word(first[:3] + first[4:])
    assert not held_out.differs_by_a_word(short[1:]) and not held_out.differs_by_a_word(first[4:])


def test_a_held_out_text_is_taken_out_in_whatever_form_of_unicode(project):
    """Letters with their accents apart, as on Macs, were other words (as in vshulcz/deja-vu's issue 1098)."""
    judged = ["Zoë's café is très près du marché.", "I´m at the ２０１６ fair.", "Deux garçons mangent près de la forêt."]
    leaks = [judged[0], "I'm at the 2016 fair.", "Deux garçons mangent près de la vieille forêt."]
    tasks = {
        "used": task(
            "used", train=[(unicodedata.normalize("NFD", text), None) for text in (*leaks, "Une fête à Orléans.")],
            dev=[(unicodedata.normalize("NFD", text), None) for text in judged],
        ),
    }  # fmt: skip
    draw = random.Random(0)
    (project / "data.txt").write_text("\n".join([*(sentence(draw) for _ in range(100)), *leaks, judged[1]]))
    settings = params(LINES, tasks=tasks)
    corpus_stage.body(settings, "small", None)
    metrics = mix.body(settings, "mixed", None)
    mixed = {document[0] for split in corpora.SPLITS for document in corpora.read("data/corpora/mixed", split)}
    assert not mixed & {*leaks, *judged} and "Une fête à Orléans." in mixed
    assert metrics["removed_sentences"]["small"] == 3 and metrics["removed_near_duplicates"]["small"] == 1
    assert metrics["dropped"] == {"duplicates": 3, "emptied": 4}  # those of the task are the corpus' own


def test_pairs_with_the_same_first_text_stay_together(project):
    draw = random.Random(0)
    premises = [sentence(draw) for _ in range(60)]
    tasks = {"used": task("used", train=[(premise, sentence(draw)) for premise in premises for _ in range(3)])}
    (project / "data.txt").write_text("\n".join(sentence(draw) for _ in range(60)))
    settings = params(LINES, tasks=tasks)
    corpus_stage.body(settings, "small", None)
    mix.body(settings, "mixed", None)
    sides = [{document[0] for document in corpora.read("data/corpora/mixed", split)} for split in corpora.SPLITS]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and sides[1] and sides[2]


def test_mix_without_its_tasks_says_what_to_run(project):
    settings = params(LINES, tasks={"missing": DECLARED})
    with pytest.raises(SesameError, match="data/tasks/missing/dev.jsonl: no such file; run the stage"):
        mix.body(settings, "mixed", None)


def test_stages_run_as_commands(project, monkeypatch, capfd):
    """The frame of a stage around both: an unknown name is one line."""
    monkeypatch.setattr(sys, "argv", ["corpora", "nowhere"])
    monkeypatch.setenv("SESAME_TRACKING", "off")
    with pytest.raises(SystemExit, match="2"):
        stage.main("corpus", corpus_stage.body, "corpora")
    assert "params.yaml" in capfd.readouterr().err


def test_a_corpus_depends_on_the_module_of_its_reader():
    """Of each kind, and of one that is added: after an edit of its code the text is read again."""

    class DialogueReader(TextReader):
        """A kind that somebody adds."""

    checked = check(tiny_params())
    for reader, module in (
        (TextReader(format="text"), "text"), (TableReader(format="csv", column=0), "table"),
        (ParallelReader(format="parallel"), "parallel"), (DialogueReader(format="text"), "dialogue"),
    ):  # fmt: skip
        part = checked.corpora["base"].parts[0].model_copy(update={"reader": reader})
        one = checked.model_copy(update={"corpora": {"base": checked.corpora["base"].model_copy(update={"parts": [part]})}})
        [entry] = text_stages.corpora(one)
        assert f"components.text.corpora.readers.{module}" in entry.modules
