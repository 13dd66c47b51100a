"""Words through several periods, and words that two sets of writers use differently."""

import csv
import random
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ortho_group

from components import params
from components.comparison.verdicts import false_discovery_rates
from components.core.errors import SesameError
from components.embeddings import group, history
from components.embeddings.space import Space, save

PERIODS = ["early", "middle", "late"]
WORDS = [f"w{i}" for i in range(300)]


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def centuries(tmp_path, monkeypatch) -> None:
    """Three spaces, each turned another way, in which w7 goes from beside w1 to beside w2, and all others stay but for some noise."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    base = draw.standard_normal((300, 20))
    for i, period in enumerate(PERIODS):
        own = base + 0.1 * draw.standard_normal(base.shape)
        own[7] = (1 - i / 2) * base[1] + i / 2 * base[2] + 0.1 * draw.standard_normal(20)
        turn = ortho_group.rvs(20, random_state=i)
        save(Space(WORDS, np.arange(3000, 0, -10), (own @ turn).astype(np.float32)), Path("data/vectors", period))


def told(**options) -> dict:
    block = params.History(periods=PERIODS, **options)
    return history.trace(params.Params.model_construct(histories={"own": block}), "own", None)


@pytest.mark.parametrize(("row", "count"), [(3, 90_000), (250, 55)])
def test_a_word_that_stands_alone_in_frequency_is_seen_to_move(centuries, row, count):
    """The most frequent one, and the rarest: no fit to all words may run through it."""
    counts = np.arange(3600, 600, -10)
    counts[row] = count
    for i, period in enumerate(PERIODS):
        planted = np.load(Path("data/vectors", period, "vectors.npy"))
        planted[row] = planted[10 + i]
        save(Space(WORDS, counts, planted), Path("data/vectors", period))
    told()
    first = rows("data/align/own/changed.csv")[:2]
    assert [line["word"] for line in first] == ["w7", WORDS[row]] and float(first[1]["beyond_frequency"]) > 0.9


@pytest.mark.parametrize("onto", ["next", "last"])
def test_a_word_that_goes_from_one_sense_to_another(centuries, onto):
    metrics = told(onto=onto, words=["w7", "w20", "gone"], known={"w7": {"towards": ["w2", "gone"], "away": ["w1"]}})
    assert metrics["words"] == 296 and metrics["absent"] == ["gone"] and metrics["mean_distance"] < 0.1
    assert rows("data/align/own/changed.csv")[0]["word"] == "w7"
    way = [row for row in rows("data/align/own/trajectories.csv") if row["word"] == "w7"]
    assert [row["period"] for row in way] == PERIODS and float(way[0]["distance"]) == pytest.approx(0, abs=1e-6)
    assert 0.1 < float(way[1]["distance"]) < float(way[2]["distance"]) > 0.7
    assert way[0]["neighbours"].split()[0] == "w1" and way[2]["neighbours"].split()[0] == "w2"
    stays = [float(row["distance"]) for row in rows("data/align/own/trajectories.csv") if row["word"] == "w20"]
    assert max(stays) < 0.1

    known = {(row["other"], row["direction"]): row for row in rows("data/align/own/known.csv")}
    assert set(known) == {("w2", "towards"), ("w1", "away")} and all(row["as_known"] == "True" for row in known.values())
    assert float(known["w2", "towards"]["with_time"]) == 1 and float(known["w2", "towards"]["late"]) > 0.9
    assert (metrics["known"]["pairs"], metrics["known"]["as_known"], metrics["known"]["mean_rank"]) == (2, 2, 1)
    assert metrics["known"]["sign_test_p"] == 0.5, "two shifts of one word are one case"
    assert metrics["known"]["rank_test_p"] < 0.1
    drawn = rows("data/align/own/places.csv")
    assert [row["period"] for row in drawn if row["word"] == row["of"] == "w7"] == PERIODS
    assert {"w1", "w2"} <= {row["word"] for row in drawn if not row["period"]}


def test_a_neighbour_that_is_no_longer_used_is_drawn_where_it_last_was(centuries):
    """`w1`, beside which `w7` began, is in no text of the last period, and the other neighbours stay where they are."""
    folder = Path("data/vectors", PERIODS[-1])
    vectors, left = np.load(folder / "vectors.npy"), [i for i in range(300) if i != 1]
    save(Space([WORDS[i] for i in left], np.arange(3000, 10, -10), vectors[left]), folder)
    told(words=["w7"])
    near = rows("data/align/own/trajectories.csv")[0]["neighbours"].split()
    drawn = rows("data/align/own/places.csv")
    assert near[0] == "w1"
    at = {(row["word"], row["period"]): np.array([float(row["x"]), float(row["y"])]) for row in drawn}
    apart = [np.linalg.norm(at["w1", ""] - at["w7", period]) for period in PERIODS]
    assert apart[0] < apart[1] < apart[2]


def test_a_shift_the_other_way_is_not_as_known(centuries):
    metrics = told(known={"w7": {"towards": ["w1"], "away": ["w2"]}})
    assert metrics["known"]["as_known"] == 0 and metrics["known"]["sign_test_p"] == 1


def test_a_shift_without_a_trend_is_no_vote():
    """Neither for nor against: a sign test leaves ties out. Four cosines in the order 2, 4, 1, 3 don't go with time, nor do equal ones."""
    periods, words = ["a", "b", "c", "d"], {"war": 0, "as": 1, "so": 2}
    known = {"war": {"towards": ["as"], "away": ["so"]}}
    block = params.History(periods=periods, known=known)
    cosines = dict(zip(periods, (0.2, 0.4, 0.1, 0.3), strict=True))
    spaces = {period: np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)], [0, 1]]) for period, cosine in cosines.items()}
    rows = history.shifts("war", block, spaces, dict.fromkeys(periods, words))
    assert [row["as_known"] for row in rows] == [None, None]
    figures = history.known_shifts(rows, np.array([0.1, 0.2, 0.3]), [*words], block)
    assert (figures["pairs"], figures["as_known"], figures["without_trend"]) == (0, 0, 2) and "sign_test_p" not in figures


def test_periods_that_do_not_fit_are_one_line(centuries):
    with pytest.raises(
        SesameError,
        match="no two words occur 5000 times in every period: lower min_count, or take more text .the smallest is early: 451500 words",
    ):
        told(min_count=5000)
    save(Space(WORDS, np.zeros(300, int), np.ones((300, 20), np.float32)), Path("data/vectors/late"))
    with pytest.raises(SesameError, match="vectors late are imported, without the counts of their words"):
        told()
    save(Space(WORDS, np.ones(300, int), np.ones((300, 7), np.float32)), Path("data/vectors/late"))
    with pytest.raises(SesameError, match="periods of different vector_size"):
        told()


# ---------------------------------------------------------------- groups of writers

SUBJECTS = [[subject + a + b for a in "abcde" for b in "abcdef"] for subject in ("sea", "court", "farm")]


def writer(draw: random.Random, own: int) -> list[list[str]]:
    """Sentences about three subjects; `bank` stands among the words of the one that is the writer's `own`, `light` among all."""
    sentences = []
    for i in range(75):
        subject = draw.randrange(3)
        words = draw.choices(SUBJECTS[subject], k=7)
        if i % 2:
            words[draw.randrange(7)] = "light"
        elif subject == own:
            words[draw.randrange(7)] = "bank"
        sentences.append(words)
    return sentences


def corpora(different: bool) -> params.Groups:
    """Twenty-four writers each in two sets, who write `bank` of the sea and of the court, where they are different."""
    for name in ("one", "two"):
        draw = random.Random(f"{name} of many")
        sets = [writer(draw, int(name == "two") if different else i % 2) for i in range(24)]
        Path("data/corpora", name).mkdir(parents=True)
        text = "\n".join("\n".join(" ".join(sentence) for sentence in document) + "\n" for document in sets)
        Path("data/corpora", name, "train.txt").write_text(text)
    return params.Groups(first="one", second="two", window=3, min_count=20, permutations=39)


def compared(groups: params.Groups) -> dict:
    return group.compare_groups(params.Params.model_construct(groups={"own": groups}), "own", None)


def test_the_word_that_two_sets_use_differently_is_found_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    metrics = compared(corpora(different=True))
    assert metrics["documents"] == [24, 24] and metrics["words"] == 92 and metrics["beyond_family"] == 1
    used = rows("data/align/own/used.csv")
    assert used[0]["word"] == "bank" and float(used[0]["p_family"]) <= 0.05
    assert all(word.startswith("sea") for word in used[0]["first_neighbours"].split())
    assert all(word.startswith("court") for word in used[0]["second_neighbours"].split())


def planted(swapped: int) -> tuple[params.Groups, set[str]]:
    """Sixty texts in two sets: words of twenty subjects, of which each text has a few; two words that are everywhere, and some that each
    writer has among words of one subject. In the second set so many words change places with one as frequent of another subject."""
    draw = random.Random(1)
    subjects = [[f"{a}{b}{letter}" for letter in "abcdefghijklmnopqrst"] for a in "bdfg" for b in "aeiou"]
    habitual, zipf = [f"so{letter}" for letter in "abcdef"], [1 / (rank + 2) for rank in range(20)]
    one, other = subjects[:10], subjects[10:]
    pairs = [(one[i % 10][2 + i // 2], other[i % 10][2 + i // 2]) for i in range(swapped // 2)]
    swap = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    for name in ("one", "two"):
        documents = []
        for _ in range(30):
            own, lines = draw.sample(subjects, 8), []
            habits = {word: draw.choice(own) for word in habitual}
            for _ in range(90):
                subject = draw.choice(own)
                words = draw.choices(subject, zipf, k=6) + ["the", "the", "the", "of", "of"]
                words += [word for word in habitual if habits[word] is subject or draw.random() < 0.1]
                draw.shuffle(words)
                lines.append(" ".join(swap.get(word, word) if name == "two" else word for word in words))
            documents.append("\n".join(lines) + "\n")
        Path("data/corpora", name).mkdir(parents=True)
        Path("data/corpora", name, "train.txt").write_text("\n".join(documents))
    return params.Groups(first="one", second="two", window=3, min_count=20, permutations=99), set(swap)


@pytest.mark.parametrize("swapped", [20, 0])
def test_words_swapped_in_half_of_a_text_are_found(tmp_path, monkeypatch, swapped):
    """Of any frequency, whatever the spread of function words is, and with no more false ones than is stated."""
    monkeypatch.chdir(tmp_path)
    groups, words = planted(swapped)
    metrics = compared(groups)
    found = [row["word"] for row in rows("data/align/own/used.csv") if float(row["falsely"]) <= 0.05]
    assert metrics["used_differently"] == len(found) and len(words.intersection(found)) >= 0.6 * swapped, found
    assert len(set(found) - words) <= 2, found  # 5 % of those found is one


def test_a_few_words_of_large_spread_do_not_hide_the_others():
    """As function words do: each is held against its own deals, too, and the most frequent ones lead no trend."""
    draw = np.random.default_rng(0)
    counts = np.geomspace(60_000, 30, 1000).astype(int)
    spread = 0.3 / np.sqrt(counts)
    spread[2:30] *= 6
    deals = spread * draw.standard_normal((100, 1000))
    deals[:, :2] = 0  # two words alone at the end, which all fits run through
    planted = np.arange(300, 1000, 35)
    deals[0, planted] += 5 * spread[planted]
    own, chance = group.scores(deals, counts)
    found = np.flatnonzero(false_discovery_rates(own, chance.ravel()) <= 0.05)
    assert len(set(planted) & set(found)) >= 0.75 * len(planted) and len(set(found) - set(planted)) <= 1


def test_two_sets_that_write_alike_differ_in_no_word(tmp_path, monkeypatch):
    """Though in each some writers use `bank` otherwise than others."""
    monkeypatch.chdir(tmp_path)
    metrics = compared(corpora(different=False))
    assert metrics["used_differently"] == metrics["beyond_family"] == 0


def test_groups_whose_text_has_no_blanks_between_words_are_said(tmp_path, monkeypatch, capsys):
    """Their words are whole clauses."""
    monkeypatch.chdir(tmp_path)
    groups = corpora(different=False)
    group.read(groups)
    assert not capsys.readouterr().out
    for name in ("one", "two"):
        Path("data/corpora", name, "train.txt").write_text("我们在学校学习汉语，他们看书。\n\n" * 24)
    group.read(groups)
    assert "100% of the words are of scripts without blanks between words" in capsys.readouterr().out


def test_a_limit_of_words_draws_whole_documents_of_both_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    groups = corpora(different=True)
    every = group.read(groups.model_copy(update={"permutations": 1}))
    words = [int(every.counts[:24].sum()), int(every.counts[24:].sum())]
    some = group.read(groups.model_copy(update={"max_words": words[0] // 2, "permutations": 1}))
    known = every.counts[:, [every.words.index(word) for word in some.words]]  # both are in the order of frequency
    kept = [next(i for i, counts in enumerate(known) if (counts == row).all()) for row in some.counts[: some.sizes[0]]]
    assert kept == sorted(kept) and kept != list(range(len(kept))), "not the first ones"
    assert words[0] // 3 < some.counts[: some.sizes[0]].sum() <= words[0] // 2


def test_too_few_documents_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    groups = corpora(different=True)
    with pytest.raises(SesameError, match="no word occurs 10000 times in both one and two: lower min_count"):
        compared(groups.model_copy(update={"min_count": 10_000}))
    with pytest.raises(SesameError, match="one has 1 documents in its training text and two 1: there are 1 other ways to divide them"):
        compared(groups.model_copy(update={"max_words": 600}))
