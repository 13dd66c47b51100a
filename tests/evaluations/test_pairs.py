"""Files of pairs: written and read again, published sets and tables of anyone's own, and what is wrong with them."""

import gzip
import json
from io import BytesIO
from pathlib import Path

import pytest

from components.core.errors import SesameError
from components.evaluations.minimal_pairs import pairs, readers
from components.evaluations.minimal_pairs.config import PairColumns
from components.evaluations.minimal_pairs.pairs import Pair
from components.text.sources.file import SourceFile

PAIR = Pair("is/are-0", "is/are", "agreement", "The dog is “here”.", "The dog are “here”.")


def file(name: str, content: str) -> SourceFile:
    raw = gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
    return SourceFile(name, lambda: BytesIO(raw))


def test_pairs_come_back(tmp_path):
    own = [PAIR, PAIR._replace(id="b", good="line\nbreak")]
    pairs.write(tmp_path / "pairs.jsonl", own)
    assert pairs.read(tmp_path / "pairs.jsonl") == own


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (PAIR._replace(bad=f" {PAIR.good} "), "pairs, pair 2: both sentences are 'The dog is .*'; leave the pair out"),
        (PAIR._replace(bad=PAIR.good), "pairs, pair 2: both sentences are 'The dog is .*'; leave the pair out"),
        (PAIR, "pairs, pair 2: its id 'is/are-0' is that of an earlier pair; rename one"),
        (PAIR._replace(id="b", good=" "), "pairs, pair 2: good is empty"),
        (PAIR._replace(id="b", bad=None), "pairs, pair 2: bad is None, where text is wanted"),
    ],
)
def test_a_bad_pair_is_a_line(wrong, said):
    with pytest.raises(SesameError, match=said):
        pairs.checked([PAIR, wrong])


def test_a_bad_file_is_a_line(tmp_path):
    path = tmp_path / "pairs.jsonl"
    with pytest.raises(SesameError, match=r"pairs\.jsonl: no such file"):
        pairs.read(path)
    path.write_text(json.dumps(PAIR._asdict()) + '\n{"id": "a", "paradigm": "b", "phenomenon": "c", "good": "d"}\n')
    with pytest.raises(
        SesameError, match=r"pairs\.jsonl, line 2: no column 'bad' \(there are: id, paradigm, phenomenon, good\)"
    ):
        pairs.read(path)
    path.write_text("")
    with pytest.raises(SesameError, match=r"pairs\.jsonl: no pairs"):
        pairs.read(path)
    path.write_text("[1]\n")
    with pytest.raises(SesameError, match="line 1: a JSON object expected, list found"):
        pairs.read(path)


@pytest.mark.parametrize("name", ["a: sets/verbs.tsv.gz", "verbs.csv", "verbs.jsonl"])
def test_a_table_of_ones_own(name):
    rows = [("the dog sees", "the dog see"), ("a man goes", "a man go")]
    if "jsonl" in name:
        content = "\n".join(json.dumps({"right": right, "wrong": wrong}) for right, wrong in rows)
    else:
        content = "\n".join(("\t" if "tsv" in name else ",").join(row) for row in [("right", "wrong"), *rows])
    found = list(readers.table([file(name, content)], PairColumns(good="right", bad="wrong")))
    assert found == [Pair(f"verbs-{i}", "verbs", "verbs", *row) for i, row in enumerate(rows)]
    with pytest.raises(SesameError, match=r"verbs.*(line|row) \d: no column 'good' \(there are: right, wrong\)"):
        list(readers.table([file(name, content)], PairColumns()))


def test_a_table_that_is_none_is_a_line():
    with pytest.raises(SesameError, match=r"pairs\.xls: a suffix \.jsonl, \.tsv, \.csv"):
        list(readers.table([file("pairs.xls", "")], PairColumns()))
    with pytest.raises(SesameError, match=r"pairs\.tsv, line 2: column 'bad' is empty; fill it"):
        list(readers.table([file("pairs.tsv", "good\tbad\na\t")], PairColumns()))


def test_published_sets():
    row = {
        "sentence_good": "Who left?",
        "sentence_bad": "Who leave?",
        "UID": "adjunct",
        "linguistics_term": "island",
        "pairID": "0",
    }
    table = "uid\tphenomenon\tgood\tbad\nadjunct\tisland\tWho left ?\tWho leave ?\nhypernym\t\tA\\nB .\tB\\nA ."
    assert list(readers.READERS["blimp"]([file("adjunct.jsonl", json.dumps(row))])) == [
        Pair("adjunct-0", "adjunct", "island", "Who left?", "Who leave?")
    ]
    assert [pair.phenomenon for pair in readers.blimp([file("blimp.tsv", table)])] == ["island", "hypernym"]
    assert not list(readers.blimp([file("blimp.tsv", "uid\tphenomenon\tgood\tbad\na\tb\tthe same\tthe same")]))
    alone = {key: row[key] for key in ("sentence_good", "sentence_bad")}
    dialogue = {"sentence_good": "A?\nB.", "sentence_bad": "B.\nA?"}
    found = list(readers.babylm([file("turn_taking.jsonl", json.dumps(dialogue)), file("supplement.tsv", table)]))
    assert (
        found[0] == Pair("turn_taking-0", "turn_taking", "turn_taking", "A?\nB.", "B.\nA?")
        and found[2].good == "A\nB ."
    )
    assert next(iter(readers.babylm([file("x.jsonl", json.dumps(alone | {"UID": "x"}))]))).phenomenon == "x"


def test_zorro_has_the_wrong_line_first():
    lines = "look at this things .\nlook at this thing .\nwho see , then ?\nwho sees , then ?\n"
    found = list(readers.zorro([file("agreement_noun-across_1.txt", lines)]))
    assert found[0] == Pair(
        "agreement_noun-across_1-0",
        "agreement_noun-across_1",
        "agreement_noun",
        "look at this thing.",
        "look at this things.",
    )
    assert found[1].good == "who sees, then?" and found[1].id.endswith("-1")
    with pytest.raises(SesameError, match=r"a\.txt: 1 lines; an even number is expected"):
        list(readers.zorro([file("a.txt", "alone .")]))
    [pair] = readers.zorro([file("zorro.tsv", "uid\tphenomenon\tgood\tbad\nx-y\tx\ta .\tb .")])
    assert pair == Pair("x-y-0", "x-y", "x", "a.", "b.")


def test_pairs_are_drawn_of_each_paradigm():
    pool = [Pair(f"{paradigm}-{i}", paradigm, "p", f"a {i}", f"b {i}") for i in range(50) for paradigm in ("one", "two")]
    chosen = pairs.drawn([*pool, PAIR], 10, seed=1)
    assert [sum(pair.paradigm == paradigm for pair in chosen) for paradigm in ("one", "two", "is/are")] == [10, 10, 1]
    assert chosen == [pair for pair in [*pool, PAIR] if pair in chosen], "in their order"
    assert chosen == pairs.drawn([*pool, PAIR], 10, seed=1) != pairs.drawn([*pool, PAIR], 10, seed=2)


SETS = Path(__file__).parents[3] / "shared/data/minimal_pairs"  # beside the checkout


@pytest.mark.skipif(not SETS.exists(), reason="the published sets are not here")
@pytest.mark.parametrize(
    ("name", "path", "count", "paradigms"),
    [
        ("blimp", "blimp/blimp.tsv.gz", 66_993, 67),
        ("babylm", "babylm_eval/supplement_filtered.tsv.gz", 5_218, 5),
        ("zorro", "zorro/zorro.tsv.gz", 46_000, 23),
    ],
)
def test_whole_sets_are_read(name, path, count, paradigms):
    found = pairs.checked(readers.READERS[name]([SourceFile(path, lambda: (SETS / path).open("rb"))]))
    assert len(found) == count and len({pair.paradigm for pair in found}) == paradigms
