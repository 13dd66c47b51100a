"""Examples that a task has more than once: in train and in another split, or twice in one."""

import re
from unicodedata import normalize

from components.core.words import WORD
from components.tasks import Example, Label

WORDS = re.compile(WORD)


def in_train(train: list[Example], examples: list[Example]) -> dict[str, int]:
    """Count the examples whose texts are in train: identical; equal without case, forms of letters and punctuation; equal
    only in the other order (pairs)."""
    identical, known = set(map(texts, train)), set(map(normalised, train))
    forms = list(map(normalised, examples))
    pairs = [form for form, example in zip(forms, examples, strict=True) if example.text_b]
    return {
        "exact": sum(texts(example) in identical for example in examples),
        "normalised": sum(form in known for form in forms),
        "other_order": sum((b, a, *rest) in known and (a, b, *rest) not in known for a, b, *rest in pairs),
    }  # fmt: skip


def texts(example: Example) -> tuple[str, ...]:
    """Return all texts of an example; text_b is empty where there is none."""
    return example.text_a, example.text_b or "", *(example.choices or {}).values()


def normalised(example: Example) -> tuple[str, ...]:
    """Return its texts without case, forms of letters and punctuation; a text of punctuation alone as it is."""
    return tuple(" ".join(WORDS.findall(normalize("NFKC", text).casefold())) or text for text in texts(example))


def repeated(examples: list[Example]) -> tuple[int, int]:
    """Count the examples with the texts of an earlier one, and those of them with another label than that one."""
    first: dict[tuple[str, ...], Label] = {}
    again = contrary = 0
    for example in examples:
        if (key := texts(example)) in first:
            again += 1
            contrary += example.label != first[key]
        else:
            first[key] = example.label
    return again, contrary


def of_known_first_text(train: list[Example], examples: list[Example]) -> int:
    """Count the pairs of which train has the first text, but not the pair: a premise may stand in several."""
    first = {example.text_a for example in train}
    pairs = {(example.text_a, example.text_b) for example in train}
    pairs_here = [(example.text_a, example.text_b) for example in examples if example.text_b]
    return sum(pair[0] in first and pair not in pairs for pair in pairs_here)
