"""Small exact calculator for the calculations that a text shows.

Nothing runs as code.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .texts import text_column

Floats = NDArray[np.float64]

LONGEST = 200  # characters of one side of an equation
LARGEST_POWER = 64
LARGEST_BITS = 4096
DEEPEST = 20  # parentheses and signs inside one another
MINUS, TIMES, OVER = "\u2212\u2013", "\u00d7\u00b7", "\u00f7"
MEANS = str.maketrans(
    {"[": "(", "]": ")", OVER: "/"}
    | dict.fromkeys(MINUS, "-")
    | dict.fromkeys(f"{TIMES}xX", "*")
    | dict.fromkeys("$€£", " ")
)
TOKEN = re.compile(r"\s*((?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+|\*\*|[-+*/()%^])\s*")
ANNOTATION = re.compile(r"<<([^<>=]{1,200})=([^<>=]{1,60})>>")
DECIMALS = re.compile(r"\.(\d+)\s*%?\s*$")
# Possessive and counted throughout: no text makes the search long.
_NUMBER = rf"[-{MINUS}]?[$€£]?(?:(?:\d{{1,3}}(?:,\d{{3}})++|\d{{1,20}}+)(?:\.\d{{1,20}}+)?|\.\d{{1,20}}+)%?"
_SIGN = rf"[-+*/x{MINUS}{TIMES}{OVER}]"
_SIDE = rf"\({{0,4}}+{_NUMBER}\)?(?:\s{{0,3}}+{_SIGN}\s{{0,3}}+\({{0,4}}+{_NUMBER}\){{0,4}}+){{0,40}}+"
INLINE = re.compile(
    # After a letter and a space, punctuation or a new line: what follows a number or a sign began earlier.
    r"(?:(?<=^)|(?<=\n)|(?<=[A-Za-z,;:.(] )|(?<=[=(]))(?<!\bx )"
    rf"(?P<equation>{_SIDE}(?:\s{{0,3}}+=\s{{0,3}}+{_SIDE}){{1,9}}+)"
    # Not where the last number goes on: 2x, 3:15, 0.5, 1,000, 12 000, 7 * …
    rf"(?![\w:/]|\.\d|,\d|\s?(?:{_SIGN}|[\^=(])|\s\d)"
)
CALCULATES = re.compile(rf"[\d)%]\s*{_SIGN}")


class ArithmeticSyntaxError(ValueError):
    """Raised for text that is not an arithmetic expression.

    Allowed are numbers, ``+ - * / ^ %`` and parentheses; also raised for expressions too large to compute.
    """


def evaluate(text: str) -> Fraction:
    """Exact value of an arithmetic expression.

    Numbers may have thousands commas, a currency sign or a percent sign; ``x`` and typographic signs multiply
    and divide.

    Raises
    ------
    ArithmeticSyntaxError
        For anything else, a division by zero, more than 200 characters or a power above 64.

    Examples
    --------
    >>> evaluate("$1,200 x (1 - 20%)")
    Fraction(960, 1)
    """
    if len(text) > LONGEST:
        raise ArithmeticSyntaxError(f"at most {LONGEST} characters expected, got {len(text)}")
    tokens, end = [], 0
    plain = text.translate(MEANS).strip()
    while end < len(plain):
        found = TOKEN.match(plain, end)
        if found is None:
            raise ArithmeticSyntaxError(f"number or sign expected at {plain[end:]!r}")
        tokens.append(found[1])
        end = found.end()
    if tokens.count("(") > DEEPEST or sum(token in "+-" for token in tokens) > 2 * DEEPEST + len(tokens) / 2:
        raise ArithmeticSyntaxError(f"at most {DEEPEST} parentheses expected")
    reader = _Reader(tokens)
    value = reader.sum()
    if reader.peek():
        raise ArithmeticSyntaxError(f"sign expected before {reader.peek()!r} in {text!r}")
    return value


class _Reader:
    """Recursive descent parser over tokens; the length of the text bounds depth and size."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*reversed(tokens)]

    def peek(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def sum(self) -> Fraction:
        value = self.product()
        while self.peek() in ("+", "-"):
            value += self.product() if self.tokens.pop() == "+" else -self.product()
        return value

    def product(self) -> Fraction:
        value = self.power()
        while self.peek() in ("*", "/"):
            sign, other = self.tokens.pop(), self.power()
            if sign == "/" and not other:
                raise ArithmeticSyntaxError("division by zero")
            value = value * other if sign == "*" else value / other
        return value

    def power(self) -> Fraction:
        if self.peek() in ("-", "+"):
            return -self.power() if self.tokens.pop() == "-" else self.power()
        value = self.atom()
        while self.peek() == "%":
            self.tokens.pop()
            value /= 100
        if self.peek() not in ("^", "**"):
            return value
        self.tokens.pop()
        exponent = self.power()
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        if exponent.denominator != 1 or abs(exponent) > LARGEST_POWER or (not value and exponent < 0):
            raise ArithmeticSyntaxError(f"whole power of at most {LARGEST_POWER} expected")
        if bits * abs(exponent) > LARGEST_BITS:
            raise ArithmeticSyntaxError(f"a power of at most {LARGEST_BITS} bits expected")
        return Fraction(value ** int(exponent))

    def atom(self) -> Fraction:
        token = self.tokens.pop() if self.tokens else ""
        if token == "(":
            value = self.sum()
            if self.peek() != ")":
                raise ArithmeticSyntaxError("closing parenthesis expected")
            self.tokens.pop()
            return value
        if not token[-1:].isdigit():
            raise ArithmeticSyntaxError(f"number expected, got {token!r}")
        return Fraction(token.replace(",", ""))


def is_wrong(left: str, right: str) -> bool:
    """True if ``left = right`` is false even when rounded.

    False if a side is not arithmetic. If the left side divides or has fractions, the right may be off by one
    unit of its last decimal.

    Examples
    --------
    >>> is_wrong("40 / 3", "13.3"), is_wrong("4 + 4", "9")
    (False, True)
    """
    try:
        value, written = evaluate(left), evaluate(right)
        if _near(value, written, left, right):
            return False
        if "%" not in left + right:
            return True
        # 20 / 50 * 100 = 40% and 20 / 50 = 40 % are both common ways of writing.
        plain_left, plain_right = left.replace("%", ""), right.replace("%", "")
        if _near(evaluate(plain_left), evaluate(plain_right), plain_left, plain_right):
            return False
    except ArithmeticSyntaxError:
        return False
    pairs = ((value * 100, written), (value, written * 100))
    return not any(_near(first, second, left, plain_right) for first, second in pairs)


def _near(value: Fraction, written: Fraction, left: str, right: str) -> bool:
    found = DECIMALS.search(right)
    decimals = min(9, len(found[1])) if found else 0
    rounded = decimals or any(sign in left for sign in "/÷.%")
    unit = Fraction(1, 10**decimals) / (100 if "%" in right else 1)
    allowed = max(unit, abs(value) / 10**9) if rounded else 0
    return abs(value - written) <= allowed


def wrong_annotations(text: str) -> list[str]:
    """Wrong calculator annotations ``<<a=b>>`` of a text."""
    return [f"{left}={right}" for left, right in ANNOTATION.findall(text) if is_wrong(left, right)]


def wrong_equations(text: str) -> list[str]:
    """Wrong equations in running text, such as ``18 * 2 = 720``."""
    return [f"{left} = {right}" for left, right in _equations(text) if is_wrong(left, right)]


def _equations(text: str) -> Iterator[tuple[str, str]]:
    for found in INLINE.finditer(ANNOTATION.sub("", text)):
        sides = [side.strip() for side in found["equation"].split("=")]
        yield from (pair for pair in pairwise(sides) if CALCULATES.search(pair[0]))


def arithmetic(
    *,
    answer: str = "outputs.answer",
    inline: bool = False,
    name: str = "arithmetic",
    level: Level = "warning",
) -> Assertion:
    """Answers that show a calculation whose result is wrong.

    Finds
    -----
    Wrong ``<<a=b>>`` calculator annotations and, with ``inline``, wrong equations in running text ("18 * 2 =
    720"), computed with exact fractions and a tolerance for rounding. The severity is the number of wrong
    calculations. A correct calculation may still be the wrong one for the task: most wrong answers contain no
    false calculation.

    Cost
    ----
    About 100 µs per record: a solution with four annotations, 260 µs with ``inline``; 0.1 µs without either.

    Measured
    --------
    On 2,640 GSM8K solutions of four models: 0.94 (0.74 to 0.99) of 18 flagged solutions are incorrect;
    with `inline` 0.91 (0.83 to 0.96) of 79. It finds few of the incorrect ones (`python -m
    benchmarks.assertions.llm`).

    Examples
    --------
    >>> answers = ["5 * 3 = <<5*3=15>>15 apples", "5 * 3 = <<5*3=18>>18 apples", "18 * 2 = 720 hot dogs"]
    >>> batch = Batch.from_columns({"outputs.answer": answers}, model="tutor")
    >>> arithmetic().severities(batch).tolist(), arithmetic(inline=True).severities(batch).tolist()
    ([0.0, 1.0, 0.0], [0.0, 2.0, 1.0])

    References
    ----------
    Cobbe et al., "Training Verifiers to Solve Math Word Problems", 2021 (the annotations and the data).
    """

    @assertion(name=name, level=level, description=f"A calculation that {answer} shows is wrong.")
    def judge(batch: Batch) -> Floats:
        answers = text_column(batch, answer)
        may = pc.match_substring(answers, "=" if inline else "<<").to_numpy(zero_copy_only=False)
        severity = np.zeros(batch.rows)
        for row in np.flatnonzero(may):
            text = answers[int(row)].as_py()
            severity[row] = len(wrong_annotations(text)) + (len(wrong_equations(text)) if inline else 0)
        return severity

    return judge
