"""Words in scripts that are written with combining marks (scikit-learn's issue 30935, tiktoken's 292)."""

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from components import params
from components.core import words
from components.embeddings import contexts, vectors
from components.tasks import Example
from components.tasks.bags import bags_of_words
from components.tasks.overlaps import in_train
from components.text.corpora import mix
from components.text.corpora.shards.quality import Words

HINDI = "आधुनिक मानक हिन्दी"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HINDI + "।", HINDI.split()),
        ("ప్రధానమంత్రిని కలుసుకున్నారు", ["ప్రధానమంత్రిని", "కలుసుకున్నారు"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("cafe\u0301, l'été", ["cafe\u0301", "l", "été"]),
        ("می\u200cخواهم کتاب\u200c", ["می\u200cخواهم", "کتاب"]),
        ("1\ufe0f\u20e3 a_b 12", ["a", "b"]),
        ("\u0301 👨\u200d👩", []),
    ],
)
def test_a_word_keeps_its_marks(text, found):
    assert re.findall(words.LETTERS, text) == found
    assert re.findall(words.WORD, text) == (["1", "a_b", "12"] if "a_b" in text else found)


def test_every_part_takes_a_word_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("data/corpora/hindi")
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text(f"{HINDI}।\n", encoding="utf-8")
    for numerals in (True, False):
        raw = {"kind": "ppmi_svd", "corpus": "hindi", "numerals": numerals}
        block = TypeAdapter(params.Vectors).validate_python(raw)
        assert vectors.sentences_of(block) == [HINDI.split()]
    assert [word.lowered() for word in contexts.words_in(HINDI)] == HINDI.split()
    assert mix.words_in(HINDI) == Words().word_tokenize(HINDI) == HINDI.split()
    assert mix.words_in("在2016年 ที่นี่") == ["在", "2016", "年", "ที่", "นี่"]
    example = Example("1", HINDI, None, "a")
    assert bags_of_words({"train": [example]}, pair=False)["train"].shape == (1, 3)


def test_texts_that_differ_by_a_mark_are_two():
    day, poor = "यह दिन है", "यह दीन है"
    assert mix.key_of(day) != mix.key_of(poor) and mix.key_of(day) == mix.key_of(f"{day} ।")
    assert mix.key_of("Snake_case, x!") == "snakecasex"
    seen = in_train([Example("1", day, None, "a")], [Example("2", poor, None, "a"), Example("3", f"{day} ।", None, "a")])
    assert seen == {"exact": 0, "normalised": 1, "other_order": 0}
