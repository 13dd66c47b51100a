"""Stage `mix`: `python -m components.text.corpora.mix NAME` writes data/corpora/NAME.

A corpus together with the unlabelled training text of tasks, and without any sentence of their other splits.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unicodedata import normalize

from components.core.words import MARKS, UNSPACED, WORD, characters_apart
from components.params import Params
from components.stages import stage
from components.stages.outputs import read_lines, reading
from components.text import corpora
from components.text.corpora import SPLITS, Document, writer
from components.text.corpora.cleaning import digest_of, words_of
from components.text.corpora.sentences import sentences

NEAR = 6
"""Words of the shortest held-out text that is also found with one word changed: shorter ones are similar to many other sentences."""
TELLING = 8
"""Words of the shortest sentence of a held-out text that is removed by itself: shorter ones, as "He said so.", occur anywhere."""
CHARACTERS = 2
"""Characters that are as long as a word, in a script without blanks between words."""
_SKIPPED = re.compile(rf"[^\w{MARKS}]+[{MARKS}]*|_+")
_WORD = re.compile(WORD)
_UNSPACED = re.compile(UNSPACED)


def plain(sentence: str) -> str:
    """Normalise Unicode, where é may be one character or two, or of full width, and case."""
    return normalize("NFKC", sentence).casefold()


def key_of(sentence: str) -> str:
    """Return a sentence without case, white space, punctuation and forms of letters; sentences with the same key are the same."""
    return _SKIPPED.sub("", plain(sentence))


def texts(task: str, split: str, answers: bool = False) -> Iterator[Document]:
    """Yield the texts of each example in data/tasks/<task>/<split>.jsonl, in NFC like corpora: text_a, and text_b or the choices; with
    `answers` also the target texts."""
    path = Path("data/tasks", task, f"{split}.jsonl")
    with reading(path):
        for example in read_lines(path):
            fields = (example["text_a"], example["text_b"], *(example.get("choices") or {}).values())
            fields += tuple(example["label"] or ()) if answers else ()
            yield [" ".join(normalize("NFC", text).split()) for text in fields if text and text.strip()]


class HeldOut:
    """The texts of all splits of the tasks but train, and the longer sentences in them."""

    def __init__(self, params: Params, tasks: list[str]):
        self.keys: set[str] = set()
        self.near: set[bytes] = set()
        for task in tasks:
            for split in [split for split in params.tasks[task].splits if split != "train"]:
                for text in chain.from_iterable(texts(task, split, params.tasks[task].kind == "text")):
                    self._add(text)
                    for sentence in sentences(text):
                        if len(sentence.split()) >= TELLING or characters_in(sentence) >= TELLING * CHARACTERS:
                            self._add(sentence)
        self.keys -= {""}

    def _add(self, text: str) -> None:
        self.keys.add(key_of(text))
        words = words_in(text)
        characters = characters_in(plain(text))  # each of which is one of the words
        if len(words) - characters + characters / CHARACTERS >= NEAR:
            self.near |= {digest_of(" ".join(words)), *shortened(words)}

    def same(self, sentence: str) -> bool:
        return key_of(sentence) in self.keys

    def differs_by_a_word(self, sentence: str) -> bool:
        """Return whether a held-out text becomes this sentence by replacing, adding, removing or moving one word, or one character of a
        script without blanks.

        Two such sentences are the same without this word: one complete and the other shortened, or both shortened.
        """
        words = words_in(sentence)
        if len(words) < NEAR - 1:
            return False
        return digest_of(" ".join(words)) in self.near or not self.near.isdisjoint(shortened(words))


def words_in(sentence: str) -> list[str]:
    """Return the words of a sentence; in a script without blanks between words, its characters."""
    return _WORD.findall(characters_apart(plain(sentence)))


def characters_in(sentence: str) -> int:
    """Count the characters of scripts without blanks between words."""
    return 0 if sentence.isascii() else len(_UNSPACED.findall(sentence))


def shortened(words: list[str]) -> Iterator[bytes]:
    """Yield the digest of the sentence without each of its words in turn: of a long text these are too many to keep whole."""
    return (digest_of(" ".join((*words[:i], *words[i + 1 :]))) for i in range(len(words)))


def body(params: Params, name: str, run) -> dict:
    """Mix, remove the held-out texts of the tasks, split; return the counts. Raise SesameError if the corpus or a task is missing."""
    mix = params.mixes[name]
    base = Path("data/corpora", mix.corpus)
    held_out_tasks = [*mix.tasks, *mix.also_held_out]
    base_texts = [] if mix.only_tasks else [mix.corpus]
    held_out, origins = HeldOut(params, held_out_tasks), dict.fromkeys([*base_texts, *mix.tasks], 0)
    words, removed, near, dropped = Counter(), Counter(origins), Counter(origins), Counter(duplicates=0, emptied=0)

    def mixed() -> Iterator[tuple[str, Document]]:
        """Yield (origin: the corpus or a task, document)."""
        for split in () if mix.only_tasks else SPLITS:
            yield from ((mix.corpus, document) for document in corpora.read(base, split))
        for task in mix.tasks:
            yield from ((task, document) for document in texts(task, "train"))

    def documents() -> Iterator[tuple[str, Document]]:
        seen = set()
        for origin, document in mixed():
            text = "\n".join(document)
            if text in seen:
                dropped["duplicates"] += 1
                continue
            seen.add(text)
            others = [segment for segment in document if not held_out.same(segment)]
            kept = [segment for segment in others if not held_out.differs_by_a_word(segment)]
            removed[origin] += len(document) - len(others)
            near[origin] += len(others) - len(kept)
            if not kept:
                dropped["emptied"] += 1
                continue
            words[origin] += words_of(kept)
            # a task's pairs may share their first text, which determines the split; a document of the corpus keeps its split
            yield text if origin == mix.corpus else document[0], kept

    about = {
        "language": params.corpora[mix.corpus].language,
        "contains": f"{''.join(f'{corpus}; ' for corpus in base_texts)}unlabelled training text of tasks: {', '.join(mix.tasks) or 'none'}",
        "decontaminated": f"sentences of all splits but train of {', '.join(held_out_tasks) or 'no task'} are taken out, "
        f"from {NEAR} words on those that differ from one by a word, too",
        "sources": [] if mix.only_tasks else corpora.card(base)["sources"],
        "words": words,  # these four still count while documents are written
        "removed_sentences": removed,
        "removed_near_duplicates": near,
        "dropped": dropped,
    }
    card = writer.write(name, documents(), params.corpora[mix.corpus].splits, params.seed, about)
    for origin, count in words.items():
        left_out = f"{removed[origin]:,} sentences of other splits, {near[origin]:,} near-duplicates of these"
        print(f"{origin}: {count:,} words; left out: {left_out}", flush=True)
    return writer.counts(card) | {"parts": words, "removed_sentences": removed, "removed_near_duplicates": near}


if __name__ == "__main__":
    stage.main("mix", body)
