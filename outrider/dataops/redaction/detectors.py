"""Detectors of values to redact, with their places in a text.

E-mail addresses, phone numbers, cards and IBANs are those of the assertion ``personal_data``; here a value is
also found beside another one, for what is missed is stored.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.assertions.library.personal import FORMS, is_card

from .kinds import Kind

Span = tuple[int, int]

_CARD_RUN = re.compile(r"(?<![\w$€£])(?<!\d\.)\d(?:[ -]?\d){12,}+(?![\w%]|\.\d)")
_DIGITS = re.compile(r"\d+")
_LAST_GROUP = re.compile(r"(?:^|[ .-]+)[^ .-]*$")
_LONGEST_CARD, _SHORTEST_CARD = 19, 13

_RANDOM_CHARS, _RANDOM_BITS = 32, 3.6
"""A word of so many signs, of digits and both cases, with so many bits a sign, was drawn by a machine."""
_ISSUED = re.compile(
    r"(?<![\w-])(?:"
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON Web Token, RFC 7519
    r"|sk-[\w-]{20,}|[spr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,}=*"
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,}|glpat-[\w-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|SG\.[\w-]{16,}\.[\w-]{16,}|do[opr]_v1_[0-9a-f]{64}"
    r")(?![\w-])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.ASCII | re.DOTALL,
)
_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/-]{16,}=*)", re.ASCII)
SECRET_NAME = re.compile(
    r"(?i)(?:api|access|secret|private|auth)[_-]?(?:key|token)|(?:client)?[_-]?secret|passw(?:or)?d|token",
    re.ASCII,
)
"""Names of members and variables whose value is a secret."""
_ASSIGNED = re.compile(
    rf"(?:\b|_)(?:{SECRET_NAME.pattern.removeprefix('(?i)')})[\"']?\s*[:=]\s*[\"']?"
    r"((?=[^\s\"',;<>]*\d)(?=[^\s\"',;<>]*[A-Za-z])[^\s\"',;<>]{12,})",
    re.ASCII | re.IGNORECASE,
)
_RANDOM = re.compile(rf"(?<![\w+/=.-])[A-Za-z0-9_-]{{{_RANDOM_CHARS},128}}+(?![\w+/=-])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Detector:
    """Detector of one kind.

    Attributes
    ----------
    hint
        RE2: no text without a match holds such a value.
    spans
        Where values stand in a text, in order, apart from each other.
    plain
        Form of a value in which equal ones are equal.
    """

    hint: str
    spans: Callable[[str], Iterator[Span]]
    plain: Callable[[str], str]


def _by_form(kind: Literal["email", "iban"]) -> Callable[[str], Iterator[Span]]:
    form = FORMS[kind]

    def spans(text: str) -> Iterator[Span]:
        return (found.span() for found in form.shape.finditer(text) if form.holds(found[0]))

    return spans


def _phones(text: str) -> Iterator[Span]:
    """Phone numbers, without groups of digits behind one and a bracket around it."""
    for match in FORMS["phone"].shape.finditer(text):
        found = match[0]
        while found and not FORMS["phone"].holds(found):
            found = _LAST_GROUP.sub("", found)
        if found.count(")") > found.count("("):
            found = found.rstrip(")")
        if found:
            yield match.start(), match.start() + len(found)


def _cards(text: str) -> Iterator[Span]:
    """Cards in runs of groups of digits: a date or a code may stand behind one."""
    for run in _CARD_RUN.finditer(text):
        groups = [found.span() for found in _DIGITS.finditer(text, *run.span())]
        at = 0
        while at < len(groups):
            end = _card_end(text, groups, at)
            if end is not None:
                yield groups[at][0], groups[end][1]
                at = end
            at += 1


def _card_end(text: str, groups: list[Span], first: int) -> int | None:
    """Last group of the longest card that begins with group ``first``."""
    digits, found = "", None
    for at in range(first, len(groups)):
        digits += text[slice(*groups[at])]
        if len(digits) > _LONGEST_CARD:
            break
        if len(digits) >= _SHORTEST_CARD and is_card(digits):
            found = at
    return found


def _tokens(text: str) -> Iterator[Span]:
    found = [match.span() for match in _ISSUED.finditer(text)]
    found += [match.span(1) for pattern in (_BEARER, _ASSIGNED) for match in pattern.finditer(text)]
    found += [match.span() for match in _RANDOM.finditer(text) if _is_random(match[0])]
    end = 0
    for start, stop in sorted(found, key=lambda span: (span[0], -span[1])):
        if start >= end:
            yield start, stop
            end = stop


def _is_random(word: str) -> bool:
    if not (re.search(r"\d.*\d", word) and re.search("[a-z]", word) and re.search("[A-Z]", word)):
        return False
    bits = -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())
    return bits >= _RANDOM_BITS


def _whole(text: str) -> Iterator[Span]:
    yield 0, len(text)


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


DETECTORS: dict[Kind, Detector] = {
    "value": Detector(r"(?s).", _whole, str),
    "token": Detector(
        r"[A-Za-z0-9_-]{20}|eyJ|xox|ya29|SG\.|(?i:bearer|basic|secret|passw|token|key)|PRIVATE KEY",
        _tokens,
        str,
    ),
    "email": Detector(FORMS["email"].hint, _by_form("email"), str.lower),
    "iban": Detector(
        FORMS["iban"].hint, _by_form("iban"), lambda text: re.sub(r"[^A-Za-z0-9]", "", text).upper()
    ),
    "card": Detector(FORMS["card"].hint, _cards, _digits),
    "phone": Detector(FORMS["phone"].hint, _phones, _digits),
}
"""By kind, in the order in which they are looked for: a key may hold digits."""
