"""Pairs generated from held-out sentences: one word is replaced by its partner.

Both directions of a pair of words are drawn equally often, so that word frequencies alone solve one half. Whatever people
write either way is left out: precision matters more than yield. Each paradigm is its two words, `is/are`; the rules are
for English.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from components.evaluations.minimal_pairs.accuracy import TIE
from components.evaluations.minimal_pairs.ngrams import NGrams
from components.evaluations.minimal_pairs.pairs import Pair
from components.evaluations.minimal_pairs.words import TOKEN, tokens

MIN_WORDS, MAX_WORDS = 4, 30
"""Of a sentence, separated by blanks."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COLLECTIVE = words(
    "cluster clusters pile stack bouquet mix mixture combination host multitude body bodies mass masses group "
    "groups couple couples family families team teams crowd crowds pair pairs number numbers band bands bunch "
    "majority minority lot lots set class staff police audience congress senate government committee cabinet "
    "council company army navy public press crew choir orchestra party pack herd flock swarm gang trio duo quartet "
    "variety series range row line plenty percent half rest part portion handful dozen troop troupe batch "
    "collection assortment house board court commission militia population nation enemy force squad cast club "
    "faculty jury mob cavalry gathering kind kinds type types sort sorts tribe genus order"
)
"""Nouns that take a singular or a plural verb."""
INVARIANT = words(
    "fish sheep deer species series aircraft data offspring means moose salmon trout bison shrimp swine fowl craft "
    "media headquarters works crossroads gallows barracks politics mathematics physics statistics ethics economics "
    "athletics acoustics gymnastics tactics news glass pants scissors jeans shorts goods others graffiti bacteria "
    "criteria spaghetti elk squid buffalo pike cod tuna bass percent stuff"
)
"""Nouns whose singular and plural are equal, or on which writers disagree."""
OPEN = words(
    "all some none any most more half rest either neither such what who which that same one ones there's whose "
    "whatever whichever whoever how where why when here only as than enough each every both or nor"
)
"""Before a verb: its number is unclear, or depends on more than the sentence."""
INFINITIVE = words(
    "to do does did don't doesn't didn't can can't cannot could couldn't will won't would wouldn't shall should "
    "shouldn't may might must let lets make makes made help helps helped see sees saw hear hears heard watch "
    "watches watching ought need"
)
"""Anywhere before `have` and `do`: these may be infinitives, which agree with nothing."""
SUBJUNCTIVE = words("if wish wished wishes though unless whether lest suppose supposing would rather that")
"""Anywhere before `was` and `were`."""
SINGULAR_SUBJECTS, PLURAL_SUBJECTS = words("he she it this that"), words("they we you these those")
SUBJECTS = SINGULAR_SUBJECTS | PLURAL_SUBJECTS | words("i there one")
ONE, SEVERAL = words("a an one another"), words("two three four five six seven many several few some")
"""After `there is` and `there are`."""
PERSONS = words("man woman child person boy girl lady guy dog")
PREPOSITIONS = words(
    "of in to at on for from with by about into under over through during after before against between upon within "
    "without toward towards near behind"
)
AUXILIARY = words(
    "is are was were has have had do does did will would can could shall should may might must isn't wasn't hasn't "
    "hadn't doesn't didn't won't wouldn't can't couldn't"
)
WITHOUT_NOUN = words(
    "a an the this that these those and or but nor so yet as if than then there here not no i you he she it we "
    "they me him her us them my your his its our their who whom whose which what when where why how all both each "
    "every many much more most few less far very too also just only even ever never always often soon now again "
    "once seems seem makes make means became becomes become did done being been be up down out off away along "
    "across like because while since until although though whether go goes went came comes come got gets get took "
    "takes take gave gives give says said say long high big bad good well right way one ones other others same "
    "such"
)
FUNCTION = AUXILIARY | PREPOSITIONS | WITHOUT_NOUN
"""Function words; no noun phrase begins with them."""
PARTICIPLES = words("found made given used seen known shown taken held born written grown")
BARE_PLURALS = words(
    "people men women children feet teeth mice geese oxen firemen policemen workmen sportsmen fishermen countrymen "
    "gentlemen statesmen freemen congressmen businessmen policewomen"
)
AMBIGUOUS_CASE = words(
    "than as but except like is are was were be been being am and or not nor 's save between both either neither "
    "it's that's ain't isn't wasn't"
)
"""Before a pronoun: both cases are in use."""
OBJECT_NEXT = words(
    ". , ; : ! ? ) in on at to for from with by as into over through under about down up out off away and while "
    "when because before after during across along around again"
)
"""After `her`: no noun follows, so it is not a possessive."""


class Sentence(NamedTuple):
    """A segment of a document, split into tokens."""

    text: str
    spans: list[tuple[int, int]]
    """The characters of each token."""
    tokens: list[str]
    low: list[str]
    """The tokens in lower case."""

    @classmethod
    def of(cls, text: str) -> "Sentence":
        matches = list(TOKEN.finditer(text))
        tokens = [match[0] for match in matches]
        return cls(text, [match.span() for match in matches], tokens, [token.lower() for token in tokens])

    def at(self, i: int) -> str:
        """A token in lower case; empty before the first and after the last."""
        return self.low[i] if 0 <= i < len(self.low) else ""

    def replaced(self, i: int, word: str) -> str:
        """The text with another word at a position, capitalised where the old one was."""
        first, last = self.spans[i]
        # `I` is always a capital, so its position decides about its partner
        is_first = i == 0 or self.tokens[i - 1] in ('"', "“", "‘")
        capital = is_first if self.low[i] == "i" else self.tokens[i][0].isupper()
        return self.text[:first] + (word.capitalize() if capital and word != "I" else word) + self.text[last:]


Applies = Callable[[Sentence, int], bool]


class Rule(NamedTuple):
    """Two words, each wrong where the other is right."""

    phenomenon: str
    words: tuple[str, str]
    applies: Applies
    """Whether a sentence is right with the word at a position, and wrong with its partner."""

    @property
    def paradigm(self) -> str:
        return "/".join(self.words)


def _is_plural(word: str) -> bool:
    has_ending = word.endswith("s") and not word.endswith(("ss", "us", "is", "'s"))
    return word in BARE_PLURALS or (has_ending and len(word) > 3)


def _noun_phrase(sentence: Sentence, start: int) -> list[str]:
    """Up to three words from `start` that are not function words."""
    phrase = []
    for word in sentence.low[start : start + 3]:
        if not word.isalpha() or word in FUNCTION:
            break
        phrase.append(word)
    return phrase


def _agrees(sentence: Sentence, i: int) -> bool:
    """Whether the verb has a subject in the sentence whose number is clear."""
    before, after = sentence.low[:i], sentence.low[i + 1 :]
    if i == 0 or not after or not before[-1].isalpha() or sentence.tokens[i].isupper():
        return False
    if {*before, *after[:4]} & COLLECTIVE or {*before[-8:], *after[:4]} & INVARIANT:
        return False
    previous = before[-1]
    if "or" in before or "one of" in " ".join(before) or previous in OPEN or previous in FUNCTION - SUBJECTS:
        return False
    singular = sentence.low[i] in ("is", "was", "has", "does")
    if previous == "there":
        return after[0] in (ONE if singular else SEVERAL)
    if previous in (PLURAL_SUBJECTS if singular else SINGULAR_SUBJECTS):
        return False  # an error, or a subject farther away
    joined = "and" in before
    if singular and joined and previous not in SINGULAR_SUBJECTS:
        return False  # `A man and a woman is` would be an error that this rule cannot see
    if not joined and not PREPOSITIONS & {*before}:  # the noun before the verb is its subject, or the sentence has an error
        return not (_is_plural(previous) if singular else previous in PERSONS)
    return True


def _agrees_in_the_past(sentence: Sentence, i: int) -> bool:
    return _agrees(sentence, i) and not SUBJUNCTIVE & {*sentence.low[:i]}


def _agrees_and_is_finite(sentence: Sentence, i: int) -> bool:
    return _agrees(sentence, i) and not INFINITIVE & {*sentence.low[:i]}


def _before_a_noun(sentence: Sentence, i: int) -> bool:
    """Whether a demonstrative agrees with a noun phrase after it whose number is clear."""
    phrase = _noun_phrase(sentence, i + 1)
    if not phrase or INVARIANT & {*phrase} or COLLECTIVE & {*phrase}:
        return False
    if sentence.low[i] in ("these", "those"):
        return _is_plural(phrase[0]) or (len(phrase) > 1 and _is_plural(phrase[1]))
    not_noun = phrase[0].endswith(("ly", "ing", "ed")) or phrase[0] in PARTICIPLES
    return not any(map(_is_plural, phrase)) and not not_noun


def _no_conjunction(sentence: Sentence, i: int) -> bool:
    """The same for `that` and `those`, after a preposition, where neither begins a clause."""
    return _before_a_noun(sentence, i) and sentence.at(i - 1) in PREPOSITIONS


def _case(sentence: Sentence, i: int) -> bool:
    """Whether a pronoun stands alone, and only one case is right."""
    previous, following = sentence.at(i - 1), sentence.at(i + 1)
    if previous in AMBIGUOUS_CASE or following in words("and or & / ' ’ who that"):
        return False
    if sentence.tokens[i] == "US":
        return False
    if sentence.low[i] in words("he she they i we"):
        return following.isalpha() and following not in PREPOSITIONS | words("the a an")
    return i > 0 and (previous.isalpha() or previous.isdigit())


def _first_person(sentence: Sentence, i: int) -> bool:
    """`_case` for `I`, which is not a number as in `World War I`."""
    if sentence.low[i] != "i":
        return _case(sentence, i)
    numbered = i > 0 and sentence.tokens[i - 1][0].isupper() and sentence.low[i - 1] not in FUNCTION
    return sentence.tokens[i] == "I" and not numbered and _case(sentence, i)


def _her(sentence: Sentence, i: int) -> bool:
    """`_case` for `her`, which is not a possessive."""
    following = sentence.at(i + 1)
    wanted = AUXILIARY if sentence.low[i] == "she" else OBJECT_NEXT | {""}
    return following in wanted and _case(sentence, i)


SPELT_OTHERWISE = re.compile(r"[hu]|e[uw]|once|one|ouija|yttr|[b-df-hj-np-tv-z]{1,3}$|.$")
"""Words before which writers differ, or whose spelling does not show the first sound."""


def _sounds(sentence: Sentence, i: int) -> bool:
    """Whether an article agrees with the first sound of the next word, where its spelling shows that."""
    following = sentence.at(i + 1)
    if not following.isalpha() or SPELT_OTHERWISE.match(following) or sentence.tokens[i + 1].isupper():
        return False
    if sentence.tokens[i] not in ("a", "an") and i > 0:
        return False  # vitamin A
    if sentence.text[sentence.spans[i][1] : sentence.spans[i + 1][0]] != " ":
        return False
    return (sentence.low[i] == "an") == (following[0] in "aeio")


AGREEMENT, DETERMINER, CASE, ARTICLE = "subject_verb_agreement", "determiner_noun_agreement", "pronoun_case", "article"
RULES = (
    Rule(AGREEMENT, ("is", "are"), _agrees),
    Rule(AGREEMENT, ("was", "were"), _agrees_in_the_past),
    Rule(AGREEMENT, ("has", "have"), _agrees_and_is_finite),
    Rule(AGREEMENT, ("does", "do"), _agrees_and_is_finite),
    Rule(DETERMINER, ("this", "these"), _before_a_noun),
    Rule(DETERMINER, ("that", "those"), _no_conjunction),
    Rule(CASE, ("he", "him"), _case),
    Rule(CASE, ("she", "her"), _her),
    Rule(CASE, ("they", "them"), _case),
    Rule(CASE, ("I", "me"), _first_person),
    Rule(CASE, ("we", "us"), _case),
    Rule(ARTICLE, ("a", "an"), _sounds),
)


class Chosen(NamedTuple):
    """A selection of the generated pairs, with both directions of two words equally often."""

    pairs: list[Pair]
    found: dict[str, tuple[int, int]]
    """Paradigm -> the number of pairs that are right with its first word, and with its second, before the selection."""
    kept: dict[str, int]
    """Paradigm -> the number of selected pairs."""


def candidates(documents: Iterable[Sequence[str]], seed: int = 0) -> list[Pair]:
    """All pairs that the rules generate from documents of segments; most are right with the more frequent word.

    A sentence is used once for two words and a direction. What is drawn for it does not depend on the others.
    """
    sentences = [Sentence.of(text) for text in dict.fromkeys(segment for document in documents for segment in document)]
    sentences = [sentence for sentence in sentences if MIN_WORDS <= len(sentence.text.split()) <= MAX_WORDS]
    pairs: list[Pair] = []
    for rule in RULES:
        generated = []
        for word, partner in (rule.words, rule.words[::-1]):
            for sentence in sentences:
                positions = [i for i, token in enumerate(sentence.low) if token == word.lower() and rule.applies(sentence, i)]
                if positions:
                    position = positions[_hash(seed, rule.paradigm, sentence.text) % len(positions)]
                    generated.append((sentence.text, sentence.replaced(position, partner)))
        pairs += [Pair(f"{rule.paradigm}-{i}", rule.paradigm, rule.phenomenon, *pair) for i, pair in enumerate(generated)]
    return pairs


def balanced(pairs: Sequence[Pair], seed: int = 0) -> Chosen:
    """As many pairs of each direction, drawn with the seed: a unigram solves one half."""
    chosen, counts, kept = [], {}, {}
    for paradigm, directions in _by_direction(pairs).items():
        counts[paradigm] = (len(directions[0]), len(directions[1]))
        size = min(counts[paradigm])
        chosen += [pair for side in directions for pair in _smallest(side, lambda pair: _hash(seed, *pair[3:]), size)]
        kept[paradigm] = 2 * size
    return Chosen(chosen, counts, kept)


def core(pairs: Sequence[Pair], ngrams: NGrams, orders: Sequence[int] = (2, 3)) -> Chosen:
    """A selection on which n-grams, counted on the training text only, are at chance: the neighbours of the word favour the
    wrong sentence as often as the right one.

    It has all pairs in which no n-gram of these orders prefers the right sentence, each with one of the other direction in
    which all of them do, with the smallest margins. So the n-grams are right in one half (with ties slightly more), like a
    unigram and a random model. With only the first kind, counted in `found`, any model that has learnt what an n-gram knows
    would be below one half.
    """
    good, bad = (ngrams.score([getattr(pair, side) for pair in pairs]) for side in ("good", "bad"))
    margins = np.stack([good[order] - bad[order] for order in orders])
    margin = {pair.id: float(value) for pair, value in zip(pairs, margins.max(0), strict=True)}
    solved = {pair.id: bool(value) for pair, value in zip(pairs, (margins > TIE).all(0), strict=True)}
    chosen, counts, kept = [], {}, {}
    for paradigm, directions in _by_direction(pairs).items():
        hard = [[pair for pair in side if margin[pair.id] <= TIE] for side in directions]
        easy = [[pair for pair in side if solved[pair.id]] for side in directions]
        selected = []
        for side in (0, 1):
            size = min(len(hard[side]), len(easy[1 - side]))
            for some in (hard[side], easy[1 - side]):
                selected += _smallest(some, lambda pair: margin[pair.id], size)
        counts[paradigm], kept[paradigm] = (len(hard[0]), len(hard[1])), len(selected)
        chosen += selected
    return Chosen(chosen, counts, kept)


def _by_direction(pairs: Sequence[Pair]) -> dict[str, tuple[list[Pair], list[Pair]]]:
    """Paradigm -> the pairs that are right with the first of its words, and with the second."""
    by_direction: dict[str, tuple[list[Pair], list[Pair]]] = {rule.paradigm: ([], []) for rule in RULES}
    for pair in pairs:
        first = pair.paradigm.split("/")[0].lower()
        by_direction[pair.paradigm][tokens(pair.good).count(first) <= tokens(pair.bad).count(first)].append(pair)
    return by_direction


def _smallest(pairs: list[Pair], key: Callable[[Pair], float], size: int) -> list[Pair]:
    return sorted(pairs, key=key)[:size]


def _hash(seed: int, *texts: str) -> int:
    """A number for a text that does not depend on other texts."""
    return int.from_bytes(blake2b("\0".join((str(seed), *texts)).encode(), digest_size=8).digest(), "big")
