"""SyntaxGym's predictions: sums and comparisons of the surprisal of regions.

formula    = comparison ("&" comparison)*
comparison = sum [("<" | ">" | "=") sum]
sum        = term (("+" | "-") term)*
term       = "(" region ";" "%" condition "%" ")" | "[" formula "]" | "(" formula ")" | number
"""

import operator
import re
from collections.abc import Callable, Mapping

from components.core.errors import SesameError

TOKEN = re.compile(r"\s*(?:\(\s*(\d{1,9})\s*;\s*%([^%]+)%\s*\)|(\d+(?:\.\d+)?)|([][()<>=&+-]))")
COMPARE: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, ">": operator.gt, "=": operator.eq}
EXAMPLE = "SyntaxGym's are like (1;%a%) < (1;%b%)"
CLOSING = {"[": "]", "(": ")"}


def holds(formula: str, surprisal: Mapping[tuple[str, int], float]) -> bool:
    """Whether a prediction holds; `surprisal` is by condition and number of the region. Raises SesameError for a malformed
    formula, one without a comparison of regions, and an unknown region."""
    parser = _Parser(formula, surprisal)
    try:
        value = parser.formula()
    except RecursionError:
        raise SesameError(f"prediction {formula[:60]!r}: its brackets are nested too deeply; {EXAMPLE}") from None
    if parser.tokens:
        raise parser.error(parser.tokens[0])
    if not isinstance(value, bool) or not regions(formula):
        raise SesameError(f"prediction {formula!r}: compares no regions; {EXAMPLE}")
    return value


def regions(formula: str) -> list[tuple[str, int]]:
    """The regions in a formula, each once, by condition and number."""
    return list(dict.fromkeys((match[2], int(match[1])) for match in TOKEN.finditer(formula) if match[1]))


class _Parser:
    def __init__(self, formula: str, surprisal: Mapping[tuple[str, int], float]):
        self.text, self.surprisal, self.tokens, at = formula, surprisal, [], 0
        while formula[at:].strip():
            if not (match := TOKEN.match(formula, at)):
                raise self.error(formula[at:].strip())
            self.tokens.append(match[4] or float(match[3] or 0) if match[1] is None else (match[2], int(match[1])))
            at = match.end()

    def error(self, token: object) -> SesameError:
        where = f"prediction {self.text[:200]!r}: {str(token)[:60]!r} is unexpected"
        return SesameError(f"{where}; SyntaxGym's formulas have (region;%condition%), + - < > = &")

    def next_is(self, signs: str) -> bool:
        return bool(self.tokens) and isinstance(self.tokens[0], str) and self.tokens[0] in signs

    def formula(self) -> float:
        values = [self.comparison()]
        while self.next_is("&"):
            self.tokens.pop(0)
            values.append(self.comparison())
        if len(values) > 1 and not all(isinstance(value, bool) for value in values):
            raise SesameError(f"prediction {self.text!r}: one side of & compares nothing; {EXAMPLE}")
        return all(values) if len(values) > 1 else values[0]

    def comparison(self) -> float:
        value = self.sum()
        if self.next_is("<>="):
            value = bool(COMPARE[self.tokens.pop(0)](value, self.sum()))
        return value

    def sum(self) -> float:
        value = self.term()
        while self.next_is("+-"):
            value = value + self.term() if self.tokens.pop(0) == "+" else value - self.term()
        return value

    def term(self) -> float:
        if not self.tokens:
            raise self.error("its end")
        token = self.tokens.pop(0)
        if isinstance(token, tuple):
            if token not in self.surprisal:
                raise SesameError(f"prediction {self.text!r}: no region {token[1]} in condition {token[0]!r}")
            return self.surprisal[token]
        if isinstance(token, float):
            return token
        if token in CLOSING:
            value = self.formula()
            if not self.next_is(CLOSING[token]):
                raise self.error(self.tokens[0] if self.tokens else "its end")
            self.tokens.pop(0)
            return value
        raise self.error(token)
