"""Log-probabilities of sentences, in nats.

One convention for the ends of a text: the tokenizer's special tokens surround it and are not summed. The first token is
predicted from the start token; where a tokenizer has none (GPT-2), from the token that ends a text, as in its training.

    log_probability       of each token given those before it; for a model from right to left, given those after it;
                          for ELMo, the mean of both
    pll_within_word_l2r   pseudo-log-likelihood: each token masked together with what follows of its word (Kauf and
                          Ivanova 2023)
    pll_original          each token masked on its own (Salazar et al. 2020), which overrates words of several tokens
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from components.core.errors import SesameError
from components.evaluations.inference import AnyTokenizer, by_length, device_of, inference, padded
from components.evaluations.minimal_pairs.alignment import shared_words, span_of_tokens, word_of_tokens
from components.evaluations.minimal_pairs.pairs import Pair
from components.models import holes
from components.models.contract import LanguageModel
from components.objectives.scoring import CPU_TARGETS

Protocol = Literal["log_probability", "pll_within_word_l2r", "pll_original"]
CHAIN = ("left_to_right", "recurrent", "each_direction")
"""Values of `reads` of models with a chain-rule log-probability."""
TOKENS = {"cpu": 2048, "cuda": 2**16}
"""In a batch at most, with padding: more do not fit the caches of a CPU, a GPU needs more."""
SENTENCES_AT_ONCE = 2**14
"""For a masked model, in which a sentence has one sequence per token."""


class Scored(NamedTuple):
    """Scores of sentences, in their order."""

    log_probability: np.ndarray
    """(n,) float32; NaN only where a sentence was not scored."""
    pieces: np.ndarray
    """(n,) int32: number of tokens without special tokens."""
    unknown: np.ndarray
    """(n,) int32: number of unknown tokens among them."""
    scored: np.ndarray
    """(n,) bool: False where a text is longer than the model reads."""


def protocols(model: LanguageModel) -> tuple[str, ...]:
    """The protocols that a model supports, the usual one first."""
    return get_args(Protocol)[1:] if holes.predicts(model) else ("log_probability",) if model.reads in CHAIN else ()


def usual_protocol(model: LanguageModel) -> Protocol:
    """The first of `protocols`; `log_probability` where a model supports none, so that `checked` says why."""
    return next(iter(protocols(model)), "log_probability")


def score(
    model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[str], protocol: Protocol | None = None,
    name: str = "the model",
) -> Scored:  # fmt: skip
    """Score each sentence; `protocol` is by default the usual one, `name` is for messages.

    Raises SesameError for a model that does not support the protocol, a sentence without a token, and a sum that is not finite.
    """
    protocol = checked(model, tokenizer, protocol or usual_protocol(model), name)
    ids, words = encoded(tokenizer, sentences, with_words=protocol == "pll_within_word_l2r")
    by_token, fits = _by_token(model, tokenizer, ids, words, protocol)
    sums = np.array([np.nan if values is None else values.sum() for values in by_token])
    return _scored(sums, ids, fits, sentences, tokenizer, name)


def score_spans(
    model: LanguageModel, tokenizer: AnyTokenizer, sentences: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]],
    name: str = "the model",
) -> list[np.ndarray]:  # fmt: skip
    """Score spans of each sentence with the usual protocol: the log-probability of the tokens that begin in the span.

    From left to right each token has those before it as context; for a masked model only the tokens of the spans are masked,
    each together with what follows of its word.

    Args:
        spans: for each sentence its spans (first character, character after the last)
    Returns:
        for each sentence (spans,) float64; NaN where the sentence is longer than the model reads.
    Raises SesameError as `score` does.
    """
    protocol = checked(model, tokenizer, usual_protocol(model), name)
    ids, words = encoded(tokenizer, sentences, with_words=protocol == "pll_within_word_l2r")
    offsets = [spans_of_ids for _, spans_of_ids in tokenizer.encode_offsets(list(sentences))]
    members = [span_of_tokens(*sentence) for sentence in zip(sentences, offsets, spans, strict=True)]
    by_token, fits = _by_token(model, tokenizer, ids, words, protocol, [member >= 0 for member in members])
    sums = [
        np.full(len(spans_of_sentence), np.nan if values is None else 0.0)
        for values, spans_of_sentence in zip(by_token, spans, strict=True)
    ]
    for total, values, member in zip(sums, by_token, members, strict=True):
        if values is not None:
            np.add.at(total, member[member >= 0], values[member >= 0])
    _scored(np.array([total.sum() for total in sums]), ids, fits, sentences, tokenizer, name)  # raises for sums that are not finite
    return sums


def _by_token(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], words: list[list[int]], protocol: Protocol,
    selected: Sequence[np.ndarray] | None = None,
) -> tuple[list[np.ndarray | None], np.ndarray]:  # fmt: skip
    """For each sentence the log-probability of each token, (tokens,) float64, None where it is too long; and which fit.
    Tokens that are not `selected` may have 0."""
    special = len(tokenizer.prefix) + len(tokenizer.suffix)
    fits = np.array([len(sentence) + special <= model.max_length for sentence in ids], bool)
    order = sorted(np.flatnonzero(fits), key=lambda i: len(ids[i]))
    values = [None] * len(ids)
    with inference(model):
        if protocol == "log_probability":
            for some, table in _chain(model, tokenizer, ids, order):
                for i, row in zip(some, table, strict=True):
                    values[i] = row[: len(ids[i])]
        else:
            for start in range(0, len(order), SENTENCES_AT_ONCE):
                some = order[start : start + SENTENCES_AT_ONCE]
                of_words = words and [words[i] for i in some]
                masked = _masked(model, tokenizer, [ids[i] for i in some], of_words, selected and [selected[i] for i in some])
                for i, row in zip(some, masked, strict=True):
                    values[i] = row
    return values, fits


def score_pairs(
    model: LanguageModel, tokenizer: AnyTokenizer, pairs: Sequence[Pair], protocol: Protocol | None = None, name: str = "the model",
) -> tuple[Scored, Scored]:  # fmt: skip
    """Score the right and the wrong sentences of pairs; a sentence of several pairs is read once.

    Raises SesameError as `score` does.
    """
    good, bad = [pair.good for pair in pairs], [pair.bad for pair in pairs]
    index = {text: i for i, text in enumerate(dict.fromkeys([*good, *bad]))}
    scores = score(model, tokenizer, list(index), protocol, name)
    right, wrong = ([index[text] for text in side] for side in (good, bad))
    return Scored(*(column[right] for column in scores)), Scored(*(column[wrong] for column in scores))


def score_shared_words(
    model: LanguageModel, tokenizer: AnyTokenizer, pairs: Sequence[Pair], name: str = "the model"
) -> list[np.ndarray]:  # fmt: skip
    """The log-probabilities of the words that both sentences of each pair have, (pairs,) of the right ones and of the wrong
    ones; NaN where a sentence is too long, or the two have no word in common. Raises SesameError as `score` does."""
    spans = zip(*(shared_words(pair.good, pair.bad) for pair in pairs), strict=True)
    sides = [pair.good for pair in pairs], [pair.bad for pair in pairs]
    both = [score_spans(model, tokenizer, *side, name) for side in zip(sides, spans, strict=True)]
    return [np.array([words.sum() if len(words) else np.nan for words in sentences]) for sentences in both]


def checked(model: LanguageModel, tokenizer: AnyTokenizer, protocol: str, name: str) -> Protocol:
    """The protocol. Raises SesameError where a model does not support it."""
    if protocol not in get_args(Protocol):
        raise SesameError(f"protocol {protocol!r}: {', '.join(get_args(Protocol))} expected")
    supported = protocols(model)
    if protocol in supported:
        if protocol != "log_probability" and tokenizer.mask is None:
            raise SesameError(f"{name}: its tokenizer has no [MASK] token; use another model")
        return protocol
    if supported:
        raise SesameError(f"{name} has no {protocol}: it reads {model.reads}; use {' or '.join(supported)}")
    if model.reads in holes.HEADS:
        raise SesameError(f"{name} has no trained head for masked tokens; use another model")
    raise SesameError(
        f"{name} has no log-probability of a text: it reads {model.reads}; "
        f"use a model that predicts its tokens, which reads {', '.join(CHAIN)} or both_sides"
    )


def encoded(
    tokenizer: AnyTokenizer, sentences: Sequence[str], with_words: bool = False
) -> tuple[list[list[int]], list[list[int]]]:  # fmt: skip
    """Ids of each sentence without special tokens, and `with_words` the index of the word of each id.

    A word is a run of letters and digits, or one other character except blanks: `don't` is three words, as in BERT.
    Raises SesameError for a sentence without a token.
    """
    words: list[list[int]] = []
    if with_words:
        both = tokenizer.encode_offsets(list(sentences))
        ids = [sentence for sentence, _ in both]
        words = [word_of_tokens(text, spans) for text, (_, spans) in zip(sentences, both, strict=True)]
    else:
        ids = tokenizer.encode(list(sentences))
    if (empty := next((i for i, sentence in enumerate(ids) if not sentence), None)) is not None:
        raise SesameError(f"sentence {empty + 1} of {len(ids)}, {sentences[empty]!r}, has no token; leave it out")
    return ids, words


def _scored(
    sums: np.ndarray, ids: list[list[int]], fits: np.ndarray, sentences: Sequence[str], tokenizer: AnyTokenizer, name: str
) -> Scored:
    """Raises SesameError where the score of a sentence that fits is not finite."""
    if (broken := np.flatnonzero(fits & ~np.isfinite(sums))).size:
        raise SesameError(
            f"{name}: the log-probability of {len(broken)} of {len(sums)} sentences is {sums[broken[0]]}, first of "
            f"{sentences[broken[0]][:60]!r}; its weights are broken, or the training diverged"
        )
    unknown = [sentence.count(tokenizer.unknown) for sentence in ids]
    return Scored(sums.astype(np.float32), np.array([*map(len, ids)], np.int32), np.array(unknown, np.int32), fits)


def log_likelihoods(model: LanguageModel, hidden: Tensor, ids: Tensor) -> Tensor:
    """The log-probability of each id, (n,) float32; hidden (n, width), ids (n,).

    A CPU computes the logits chunk by chunk, as in `components.objectives.scoring`.
    """
    rows = CPU_TARGETS if hidden.device.type == "cpu" else 2**13
    chunks = zip(hidden.split(rows), ids.split(rows), strict=True)
    return -torch.cat([cross_entropy(model.logits(states).float(), targets, reduction="none") for states, targets in chunks])


def _batch_tokens(model: LanguageModel) -> int:
    return TOKENS.get(device_of(model).type, TOKENS["cuda"])


def _chain(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], order: list[int]
) -> Iterator[tuple[list[int], np.ndarray]]:  # fmt: skip
    """Batch by batch: which sentences, and the log-probabilities of their tokens, (sentences, most tokens)."""
    backward_only = model.reads == "recurrent" and model.config.backward
    both = model.reads == "each_direction"
    prefix, suffix = tokenizer.prefix or tokenizer.suffix[-1:], tokenizer.suffix if both or backward_only else []
    first = len(prefix)
    for batch in by_length([len(ids[i]) for i in order], first + len(suffix), _batch_tokens(model)):
        some = [order[i] for i in batch]
        inputs, lengths = padded([[*prefix, *ids[i], *suffix] for i in some], device_of(model))
        width = inputs.shape[1]
        positions = torch.arange(width, device=inputs.device)
        in_text = (positions >= first) & (positions < lengths[:, None] - len(suffix))
        # left to right, the last token predicts nothing
        read = (inputs, lengths) if suffix else (inputs[:, : max(1, width - 1)], (lengths - 1).clamp(min=1))
        top = model.top(*read)
        forward, backward = top.chunk(2, 2) if both else (None, top) if backward_only else (top, None)
        # a state predicts the token that its direction reads next
        directions = [] if forward is None else [(forward[:, : width - 1], slice(1, None))]
        directions += [] if backward is None else [(backward[:, 1:], slice(None, -1))]
        sums = np.zeros((len(some), width))
        for states, shifted in directions:
            if (targets := in_text[:, shifted]).any():
                values = log_likelihoods(model, states[targets], inputs[:, shifted][targets]).cpu()
                sums[:, shifted][targets.cpu().numpy()] += values.numpy()
        yield some, sums[:, first:] / len(directions)


def _masked(
    model: LanguageModel, tokenizer: AnyTokenizer, ids: list[list[int]], words: list[list[int]], selected: Sequence[np.ndarray] | None
) -> list[np.ndarray]:
    """For each sentence the log-probabilities of its tokens, each masked, with `words` together with what follows of its word.
    The sentences are in ascending order of length."""
    first = len(tokenizer.prefix)
    sentence = np.repeat(np.arange(len(ids)), [*map(len, ids)])
    position = np.concatenate([np.arange(len(row)) for row in ids])
    values = [np.zeros(len(row)) for row in ids]
    if selected:
        wanted = np.concatenate(selected)
        sentence, position = sentence[wanted], position[wanted]
    lengths = np.array([*map(len, ids)])[sentence]
    for batch in by_length(lengths, first + len(tokenizer.suffix), _batch_tokens(model)):
        rows, targets = [], []
        for number, start in zip(sentence[batch.start : batch.stop], position[batch.start : batch.stop], strict=True):
            row = [*tokenizer.prefix, *ids[number], *tokenizer.suffix]
            targets.append(row[first + start])
            end = start + 1
            while words and end < len(ids[number]) and words[number][end] == words[number][start]:
                end += 1
            row[first + start : first + end] = [tokenizer.mask] * (end - start)
            rows.append(row)
        inputs, sizes = padded(rows, device_of(model))
        holes_at = torch.from_numpy(position[batch.start : batch.stop] + first).to(inputs.device)
        hidden = holes.states(model, inputs, sizes, holes_at[:, None], tokenizer.mask)[:, 0]  # (rows, width)
        scores = log_likelihoods(model, hidden, torch.tensor(targets, device=hidden.device)).cpu().numpy()
        for i, score in zip(batch, scores, strict=True):
            values[sentence[i]][position[i]] = score
    return values
