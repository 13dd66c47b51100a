"""Log-probabilities of sentences, in nats.

One convention for the ends of a text, whatever scores it: the tokenizer's specials stand around it and are no part of
the sum. Its first token follows from what opens a text; where a tokenizer has no such token (GPT-2), nothing predicts
the first, and it adds nothing.

    log_probability       of each token from those before it; of a model that reads from the end, from those behind it;
                          of ELMo, the mean of both
    pll_within_word_l2r   pseudo-log-likelihood: each token hidden, together with what follows of its word (Kauf and
                          Ivanova 2023)
    pll_original          each token hidden by itself (Salazar et al. 2020), which overrates words of several pieces
    one_word              of pairs alone (`score_pairs`): the word in which they differ hidden, two logits compared
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from components.core.errors import SesameError
from components.core.words import MARKS
from components.evaluations.minimal_pairs.pairs import Pair
from components.evaluations.reading import AnyTokenizer, by_length, device_of, padded, reading
from components.models.common.masked import MaskedLanguageModel
from components.models.contract import LanguageModel
from components.objectives.scoring import CPU_TARGETS

Protocol = Literal["log_probability", "pll_within_word_l2r", "pll_original", "one_word"]
CHAIN = ("left_to_right", "recurrent", "each_direction")
"""What models read whose log-probability is that of a chain."""
TOKENS = {"cpu": 2048, "cuda": 2**16}
"""Of a batch at most, padding among them: a CPU's caches hold so many, a GPU wants more at a time."""
SENTENCES_AT_ONCE = 2**14
"""Of a masked model, each of which is as many rows as it has tokens."""

OF_A_WORD = re.compile(rf"[\w{MARKS}]{{2}}")
"""Two characters that no word ends between: letters, digits and combining marks."""


class Scored(NamedTuple):
    """Sentences in the order given."""

    log_probability: np.ndarray
    """(n,) float32; NaN where a sentence was not scored, and nowhere else."""
    pieces: np.ndarray
    """(n,) int32: tokens without specials."""
    unknown: np.ndarray
    """(n,) int32: of them, those that stand for what the tokenizer has no piece for."""
    scored: np.ndarray
    """(n,) bool: false where a text is longer than the model reads."""


def protocols(model: LanguageModel) -> tuple[str, ...]:
    """How a model can be scored, the usual way first; empty where it can't."""
    masked = isinstance(model, MaskedLanguageModel) and "head_transform" not in model.absent
    return get_args(Protocol)[1:] if masked else ("log_probability",) if model.reads in CHAIN else ()


def score(
    model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[str], protocol: Protocol | None = None,
    name: str = "the model",
) -> Scored:  # fmt: skip
    """Of each sentence; `protocol` is by default the usual one of how the model reads, `name` is for messages.

    Raises SesameError for a model that can't be scored so, a sentence without a token, and a sum that is no number.
    """
    protocol = checked(model, tokenizer, protocol or next(iter(protocols(model)), "log_probability"), name)
    if protocol == "one_word":
        raise SesameError("protocol one_word compares two sentences: call `score_pairs`")
    ids, words = encoded(tokenizer, sentences, with_words=protocol == "pll_within_word_l2r")
    by_token, fits = _by_token(model, tokenizer, ids, words, protocol)
    sums = np.array([np.nan if own is None else own.sum() for own in by_token])
    return finished(sums, ids, fits, sentences, tokenizer, name)


def score_spans(
    model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]],
    name: str = "the model",
) -> list[np.ndarray]:  # fmt: skip
    """Of parts of each sentence, by the usual protocol of the model: the log-probability of the tokens that begin there.

    A chain has for each token those before it; of a masked model only the tokens of the parts are hidden, each together
    with what follows of its word.

    Args:
        spans: of each sentence its parts, the first character of each and the one behind its last
    Returns:
        of each sentence (parts,) float64; NaN where the sentence is longer than the model reads.
    Raises SesameError as `score` does.
    """
    protocol = checked(model, tokenizer, next(iter(protocols(model)), "log_probability"), name)
    ids, words = encoded(tokenizer, sentences, with_words=protocol == "pll_within_word_l2r")
    parts = [
        _parts(text, own, asked)
        for text, (_, own), asked in zip(sentences, tokenizer.encode_offsets(list(sentences)), spans, strict=True)
    ]
    by_token, fits = _by_token(model, tokenizer, ids, words, protocol, [own >= 0 for own in parts])
    sums = [np.full(len(asked), np.nan if own is None else 0.0) for own, asked in zip(by_token, spans, strict=True)]
    for total, own, part in zip(sums, by_token, parts, strict=True):
        if own is not None:
            np.add.at(total, part[part >= 0], own[part >= 0])
    finished(np.array([own.sum() for own in sums]), ids, fits, sentences, tokenizer, name)  # its check
    return sums


def _parts(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Of each token the number of the span that its first character stands in, -1 for none; a blank belongs to what
    follows."""
    starts = [first + len(text[first:last]) - len(text[first:last].lstrip()) for first, last in offsets]
    return np.array([next((i for i, (low, high) in enumerate(spans) if low <= at < high), -1) for at in starts], int)


def _by_token(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], words: list[list[int]], protocol: Protocol,
    asked: Sequence[np.ndarray] | None = None,
) -> tuple[list[np.ndarray | None], np.ndarray]:  # fmt: skip
    """Of each sentence the log-probability of each token, (tokens,) float64, None for one that is too long; and which fit.
    Tokens that are not `asked` may have 0."""
    fits = np.array([len(own) + len(around(tokenizer)) <= model.max_length for own in ids], bool)
    order, values = sorted(np.flatnonzero(fits), key=lambda i: len(ids[i])), [None] * len(ids)
    with reading(model):
        if protocol == "log_probability":
            for some, table in _chain(model, tokenizer, ids, order):
                for i, row in zip(some, table, strict=True):
                    values[i] = row[: len(ids[i])]
        else:
            for start in range(0, len(order), SENTENCES_AT_ONCE):
                some = order[start : start + SENTENCES_AT_ONCE]
                of_words = words and [words[i] for i in some]
                hidden = _hidden(model, tokenizer, [ids[i] for i in some], of_words, asked and [asked[i] for i in some])
                for i, own in zip(some, hidden, strict=True):
                    values[i] = own
    return values, fits


def score_pairs(
    model: LanguageModel,
    tokenizer: AnyTokenizer,
    pairs: Sequence[Pair],
    protocol: Protocol | None = None,
    name: str = "the model",
) -> tuple[Scored, Scored]:
    """Of the right and the wrong sentences of pairs, by any protocol; a sentence of several pairs is read once.

    Raises SesameError as `score` does.
    """
    good, bad = [pair.good for pair in pairs], [pair.bad for pair in pairs]
    if protocol == "one_word":
        return one_word(model, tokenizer, good, bad, name)
    places = {text: i for i, text in enumerate(dict.fromkeys([*good, *bad]))}
    found = score(model, tokenizer, list(places), protocol, name)
    right, wrong = ([places[text] for text in side] for side in (good, bad))
    return Scored(*(own[right] for own in found)), Scored(*(own[wrong] for own in found))


def one_word(
    model: LanguageModel, tokenizer: AnyTokenizer, good: Sequence[str], bad: Sequence[str], name: str = "the model",
) -> tuple[Scored, Scored]:  # fmt: skip
    """Of pairs, the log-probability of the word in which they differ, hidden among the others.

    It is ten times cheaper than a sum, and has context on both sides: not to be ranked against the sums of models that
    have it on one.

    Not scored are pairs that differ in more than one word, or whose word is several pieces on a side, and those that
    are too long.
    Raises SesameError as `score` does.
    """
    checked(model, tokenizer, "one_word", name)
    both = [encoded(tokenizer, sentences, with_words=True) for sentences in (good, bad)]
    places = [_single(*pair) for pair in zip(both[0][0], both[1][0], both[0][1], both[1][1], strict=True)]
    before, room = len(tokenizer.prefix), model.max_length - len(around(tokenizer))
    short = [len(ids) <= room for ids in both[0][0]]
    fits = np.array([place is not None and fit for place, fit in zip(places, short, strict=True)], bool)
    sums = np.full((2, len(fits)), np.nan)
    order = sorted(np.flatnonzero(fits), key=lambda i: len(both[0][0][i]))
    with reading(model):
        for some in by_length([len(both[0][0][i]) for i in order], len(around(tokenizer)), _most(model)):
            own = [order[i] for i in some]
            rows = [_around(tokenizer, both[0][0][i]) for i in own]
            at = torch.tensor([places[i] + before for i in own])
            for row, place in zip(rows, at.tolist(), strict=True):
                row[place] = tokenizer.mask
            hidden = _read_masked(model, rows, at)
            for side in (0, 1):
                asked = torch.tensor([both[side][0][i][places[i]] for i in own], device=hidden.device)
                sums[side, own] = log_likelihoods(model, hidden, asked).cpu().numpy()
    return tuple(finished(sums[side], both[side][0], fits, (good, bad)[side], tokenizer, name) for side in (0, 1))


def checked(model: LanguageModel, tokenizer: AnyTokenizer, protocol: str, name: str) -> Protocol:
    """The protocol. Raises SesameError where a model can't be scored so."""
    if protocol not in get_args(Protocol):
        raise SesameError(f"protocol {protocol!r}: {', '.join(get_args(Protocol))} expected")
    if protocol in (can := protocols(model)):
        if protocol != "log_probability" and tokenizer.mask is None:
            raise SesameError(f"{name}: its tokenizer has no [MASK] to hide a token by; take another model")
        return protocol
    if can:
        raise SesameError(f"{name} has no {protocol}: it reads {model.reads}; take {' or '.join(can)}")
    if isinstance(model, MaskedLanguageModel):
        raise SesameError(f"{name} has no trained head for masked tokens; take another model")
    raise SesameError(
        f"{name} has no log-probability of a text: it reads {model.reads}; "
        f"take a model that predicts its tokens, which reads {', '.join(CHAIN)} or both_sides"
    )


def encoded(
    tokenizer: AnyTokenizer, sentences: Sequence[str], with_words: bool = False
) -> tuple[list[list[int]], list[list[int]]]:  # fmt: skip
    """Ids of each sentence without specials, and where asked for the number of the word that each id is of.

    A word is a run of letters and digits, or one other character that is no blank: `don't` is three, as to BERT.
    Raises SesameError for a sentence without a token.
    """
    words: list[list[int]] = []
    if with_words:
        ids = []
        for text, (own, spans) in zip(sentences, tokenizer.encode_offsets(list(sentences)), strict=True):
            ids.append(own)
            words.append(_words(text, spans))
    else:
        ids = tokenizer.encode(list(sentences))
    if (empty := next((i for i, own in enumerate(ids) if not own), None)) is not None:
        raise SesameError(f"sentence {empty + 1} of {len(ids)}, {sentences[empty]!r}, has no token; leave it out")
    return ids, words


def finished(
    sums: np.ndarray, ids: list[list[int]], fits: np.ndarray, sentences: Sequence[str], tokenizer: AnyTokenizer,
    name: str,
) -> Scored:  # fmt: skip
    """Raises SesameError where what fits got no number."""
    if (broken := np.flatnonzero(fits & ~np.isfinite(sums))).size:
        raise SesameError(
            f"{name}: the log-probability of {len(broken)} of {len(sums)} sentences is {sums[broken[0]]}, first of "
            f"{sentences[broken[0]][:60]!r}; its weights are broken, or the training diverged"
        )
    unknown = [own.count(tokenizer.unknown) for own in ids]
    return Scored(sums.astype(np.float32), np.array([*map(len, ids)], np.int32), np.array(unknown, np.int32), fits)


def log_likelihoods(model: LanguageModel, hidden: Tensor, ids: Tensor) -> Tensor:
    """hidden (n, width), ids (n,) -> of each id its log-probability, (n,) float32.

    A CPU makes the logits a piece at a time, as in `components.objectives.scoring`.
    """
    rows = CPU_TARGETS if hidden.device.type == "cpu" else 2**13
    pieces = zip(hidden.split(rows), ids.split(rows), strict=True)
    return -torch.cat([cross_entropy(model.logits(own).float(), wanted, reduction="none") for own, wanted in pieces])


def around(tokenizer: AnyTokenizer) -> list[int]:
    """The specials that stand around a text."""
    return [*tokenizer.prefix, *tokenizer.suffix]


def _around(tokenizer: AnyTokenizer, ids: Sequence[int]) -> list[int]:
    return [*tokenizer.prefix, *ids, *tokenizer.suffix]


def _most(model: LanguageModel) -> int:
    return TOKENS.get(device_of(model).type, TOKENS["cuda"])


def _chain(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], order: list[int]
) -> Iterator[tuple[list[int], np.ndarray]]:  # fmt: skip
    """Which sentences, and the log-probabilities of their tokens, (sentences, most tokens), batch by batch."""
    back_alone = model.reads == "recurrent" and model.config.backward
    both = model.reads == "each_direction"
    first, suffix = len(tokenizer.prefix), tokenizer.suffix if both or back_alone else []
    for some in by_length([len(ids[i]) for i in order], first + len(suffix), _most(model)):
        own = [order[i] for i in some]
        whole, lengths = padded([[*tokenizer.prefix, *ids[i], *suffix] for i in own], device_of(model))
        width = whole.shape[1]
        places = torch.arange(width, device=whole.device)
        text = (places >= first) & (places < lengths[:, None] - len(suffix))
        # left to right nothing follows from the last token
        read = (whole, lengths) if suffix else (whole[:, : max(1, width - 1)], (lengths - 1).clamp(min=1))
        top = model.top(*read)
        ahead, back = top.chunk(2, 2) if both else (None, top) if back_alone else (top, None)
        # a state predicts the token that its direction reads next
        directions = [] if ahead is None else [(ahead[:, : width - 1], slice(1, None))]
        directions += [] if back is None else [(back[:, 1:], slice(None, -1))]
        sums = np.zeros((len(own), width))
        for states, at in directions:
            if (asked := text[:, at]).any():
                values = log_likelihoods(model, states[asked], whole[:, at][asked]).cpu()
                sums[:, at][asked.cpu().numpy()] += values.numpy()
        yield own, sums[:, first:] / len(directions)


def _hidden(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], words: list[list[int]], asked: Sequence[np.ndarray] | None
) -> list[np.ndarray]:
    """Of each sentence its tokens, each hidden, with `words` together with what follows of its word. The shortest is
    first."""
    first, more = len(tokenizer.prefix), len(around(tokenizer))
    sentence = np.repeat(np.arange(len(ids)), [*map(len, ids)])
    place = np.concatenate([np.arange(len(own)) for own in ids])
    values = [np.zeros(len(own)) for own in ids]
    if asked:
        wanted = np.concatenate(asked)
        sentence, place = sentence[wanted], place[wanted]
    lengths = np.array([*map(len, ids)])[sentence]
    for some in by_length(lengths, more, _most(model)):
        rows, hidden_ids = [], []
        for i in some:
            own, at = sentence[i], place[i]
            row = _around(tokenizer, ids[own])
            hidden_ids.append(row[first + at])
            end = at + 1
            while words and end < len(ids[own]) and words[own][end] == words[own][at]:
                end += 1
            row[first + at : first + end] = [tokenizer.mask] * (end - at)
            rows.append(row)
        hidden = _read_masked(model, rows, torch.from_numpy(place[some.start : some.stop] + first))
        scores = log_likelihoods(model, hidden, torch.tensor(hidden_ids, device=hidden.device)).cpu().numpy()
        for i, score in zip(some, scores, strict=True):
            values[sentence[i]][place[i]] = score
    return values


def _read_masked(model: MaskedLanguageModel, rows: list[list[int]], places: Tensor) -> Tensor:
    """-> the hidden state at one place of each row, (rows, width)."""
    ids, lengths = padded(rows, device_of(model))
    return model(ids, lengths)[torch.arange(len(rows), device=ids.device), places.to(ids.device)]


def _words(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Of each piece, as the characters it stands for, the number of its word."""
    numbers, number, end, goes_on = [], -1, 0, False
    for first, last in spans:
        shown = text[first:last]
        start = first + len(shown) - len(shown.lstrip())  # some pieces hold the blank before their word
        inside = start == end and bool(OF_A_WORD.fullmatch(text[start - 1 : start + 1]))
        number += not (goes_on or inside and numbers)
        numbers.append(number)
        # a blank that is a piece belongs to what follows; a byte of a character is nothing of the text, up to its last
        end, goes_on = last, not shown.strip()
    return numbers


def _single(good: list[int], bad: list[int], words: list[int], other_words: list[int]) -> int | None:
    """The place in which the ids of a pair differ, where that is one piece and a whole word on both sides."""
    if len(good) != len(bad):
        return None
    differ = [i for i, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other]
    whole = len(differ) == 1 and all(own.count(own[differ[0]]) == 1 for own in (words, other_words))
    return differ[0] if whole else None
