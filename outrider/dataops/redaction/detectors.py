"""Detectors of values to redact, with their spans in a text.

Rules (issuers, lengths, check digits) are those of the assertion ``personal_data``; forms are wider, since a
miss is stored.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import accumulate

from outrider.assertions.library.personal import CARDS, FORMS, IBAN_LENGTHS, is_card, is_iban

from .kinds import Kind
from .readings import Span

_PARTING = r" \t\r\n.\-/_+|,:;"
_BETWEEN = rf"[{_PARTING}]{{0,3}}"
"""Between two groups of one value; less in phone numbers, since amounts and times are written so."""
_MOST_DIGITS, _LONGEST_CARD_TEXT = 2000, 80
_CARD_RUN = re.compile(rf"\d(?:{_BETWEEN}\d){{12,{_MOST_DIGITS}}}+", re.ASCII)
_GROUP = re.compile(r"\d+", re.ASCII)
_POWER = re.compile(r"(?<![\w.])\d\.\d{8,18}[eE]\+?1[2-8](?!\w)", re.ASCII)
_WHOLE = re.compile(r"\.0{1,6}(?!\w)", re.ASCII)
_POINTED = re.compile(r"[eE]|\.0+\Z")
_PRINTED = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 3, 3, 3), (4, 4, 4, 1), (6, 13)}
_PRINTED |= {(4, 4, 4, 4, more) for more in (1, 2, 3)}
"""Lengths of the groups in which cards are printed."""
_LONGEST_CARD, _SHORTEST_CARD = 19, 13
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)

_AT = re.compile(
    r"(?<=[\w%+-])@(?=[^\W_])(?:\w(?:[\w-]{0,61}\w)?\.){1,8}(?:xn--[A-Za-z0-9-]{1,59}|[^\W\d_]{2,24})"
)
_LOCAL_BACKWARDS = re.compile(r"(?:[\w.%+-]|(?<=\w)'(?=\w))*+")
_LONGEST_LOCAL = 256

_IBAN_HEAD = re.compile(rf"(?<![^\W_])([A-Za-z]{{2}})\d\d(?=[{_PARTING}A-Za-z0-9])", re.ASCII)

_PHONE = re.compile(
    r"(?<![^\W_])(?<![+.-])(?:"
    r"\+\d{1,3}(?:[ \t.\-/+]{0,3}\(?\d{1,5}\)?){2,6}+"
    r"|(?:1[ .+-]{1,2})?(?:\(\d{3}\)[ \t.+/-]{0,2}\d{3}[ \t.+/-]{1,2}|\d{3}[.-]\d{3}[ .+-]{1,2})\d{4})"
    r"(?![^\W_]|%|[.-]\d)",
    re.ASCII,
)
_LAST_GROUP = re.compile(r"(?:^|[ \t.\-/+]+)[^ \t.\-/+]*$")
PHONE_NAME = re.compile(
    r"(?<![A-Za-z])(?:tele)?phone|(?<!i)Phone|PHONE|[tT]elefon|TELEFON|(?<![A-Za-z])(?:[tT]el|[mM]obile|[cC]ell|[fF]ax|TEL|FAX)"
    r"(?![a-z])|msisdn|MSISDN|[wW]hats[aA]pp",
    re.ASCII,
)
_ASSIGNED_DIGITS = re.compile(r"[:=]\s{0,4}[\"']?(\(?\d[\d ().\-/]{6,20}(?<=\d))(?![\w.-])", re.ASCII)
_ASSIGNED_NAME = re.compile(rf"(?:{PHONE_NAME.pattern})[\w-]{{0,24}}[\"']?\s{{0,4}}\Z", re.ASCII)
_BARE_PHONE = re.compile(r"\s*[+(]?\d[\d ().\-/]{6,20}\s*", re.ASCII)

_RANDOM_CHARS, _RANDOM_BITS = 32, 3.6
"""Length and bits a character from which a word of digits and both cases is machine-made."""
_ISSUED = re.compile(
    r"(?<![\w-])(?:"
    r"orj?_[\w-]{43}"  # keys of this service, tokens of its jobs
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON Web Token, RFC 7519
    r"|sk-[\w-]{20,}|[spr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,}=*"
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,}|glpat-[\w-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|SG\.[\w-]{16,}\.[\w-]{16,}|do[opr]_v1_[0-9a-f]{64}"
    r")(?![\w-])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.ASCII | re.DOTALL,
)
_SHORTEST_ISSUED = 15
"""Length of the shortest issued key, ``xoxb-`` and ten."""
_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/-]{16,}=*)", re.ASCII)
SECRET_NAME = re.compile(
    r"(?i)(?:api|access|secret|private|auth)[_-]?(?:key|token)|(?:client)?[_-]?secret|passw(?:or)?d|token",
    re.ASCII,
)
_ASSIGNED = re.compile(
    rf"(?:\b|_)(?:{SECRET_NAME.pattern.removeprefix('(?i)')})[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?([^\s\"',;<>]{{12,}}+)",
    re.ASCII | re.IGNORECASE,
)
_LETTER = re.compile("[A-Za-z]")
_RANDOM = re.compile(rf"(?<![\w+/=.-])[A-Za-z0-9_-]{{{_RANDOM_CHARS},128}}+(?![\w+/=-])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Detector:
    """Detector of one kind: ordered, disjoint spans, and the canonical ``plain`` form.

    No text with fewer ``digits``, or without the ``sign``, holds such a value.
    """

    spans: Callable[[str], Iterator[Span]]
    plain: Callable[[str], str]
    digits: int = 0
    sign: str = ""


def whole_number(text: str) -> str | None:
    """Digits of a whole number in any notation, at most 19."""
    try:
        number = Decimal(text).copy_abs()
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() >= _LONGEST_CARD or number != number.to_integral_value():
        return None
    return str(int(number))


def is_card_number(text: str) -> bool:
    """Round numbers are amounts or measures."""
    digits = whole_number(text)
    return digits is not None and not digits.endswith("0000") and is_card(digits)


def is_phone(text: str) -> bool:
    """True for the digits under the name of a phone number."""
    return FORMS["phone"].holds(_number(text))


def is_bare_phone(text: str) -> bool:
    """True for a whole text under the name of a phone number."""
    return _BARE_PHONE.fullmatch(text) is not None and is_phone(text)


def _emails(text: str) -> Iterator[Span]:
    before = 0
    for domain in _AT.finditer(text):
        at = domain.start()
        backwards = text[max(before, at - _LONGEST_LOCAL) : at][::-1]
        run = _LOCAL_BACKWARDS.match(backwards)
        name = (run[0] if run else "")[::-1].rpartition("..")[2].lstrip(".%+-")
        if name:
            before = domain.end()
            yield at - len(name), before


def _ibans(text: str) -> Iterator[Span]:
    """Groups of four, as long as the country's: a word may follow."""
    before = 0
    for head in _IBAN_HEAD.finditer(text):
        length = IBAN_LENGTHS.get(head[1].upper())
        if length is None or head.start() < before:
            continue
        found = _IBAN_TAILS[length].match(text, head.end())
        if found is not None and is_iban(_letters(text[head.start() : found.end()])):
            before = found.end()
            yield head.start(), before


def _iban_tail(length: int) -> re.Pattern[str]:
    groups, rest = divmod(length - 4, 4)
    tail = f"{_BETWEEN}[A-Za-z0-9]{{{rest}}}" if rest else ""
    return re.compile(rf"(?:{_BETWEEN}[A-Za-z0-9]{{4}}){{{groups}}}{tail}(?![A-Za-z0-9])")


_IBAN_TAILS = {length: _iban_tail(length) for length in set(IBAN_LENGTHS.values())}


def _phones(text: str) -> Iterator[Span]:
    """Without trailing groups of digits and an enclosing bracket."""
    for match in _PHONE.finditer(text):
        found = match[0]
        while found and not FORMS["phone"].holds(found):
            found = _LAST_GROUP.sub("", found)
        if found.count(")") > found.count("("):
            found = found.rstrip(")")
        if found:
            yield match.start(), match.start() + len(found)


def _named_phones(text: str) -> Iterator[Span]:
    for match in _ASSIGNED_DIGITS.finditer(text):
        if is_phone(match[1]) and _ASSIGNED_NAME.search(text, max(match.start() - 40, 0), match.start()):
            yield match.span(1)


def _cards(text: str) -> Iterator[Span]:
    """Cards in runs of groups of digits: a date or a code may follow."""
    place = 0
    while run := _CARD_RUN.search(text, place):
        place = run.end() if len(run[0]) < _MOST_DIGITS else run.end() - _LONGEST_CARD_TEXT
        digits = _Digits(text, *run.span())
        at = 0
        while at < len(digits.groups):
            end = digits.card_end(at) if _may_begin(text, digits.groups[at][0]) else None
            if end is not None:
                yield digits.groups[at][0], _with_zeros(text, digits.groups[end][1])
                at = end
            at += 1


class _Digits:
    """Groups of digits in one run, with cumulative Luhn sums: any length is tested in one look-up."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self.groups = [found.span() for found in _GROUP.finditer(text, start, end)]
        self._digits = "".join(text[slice(*group)] for group in self.groups)
        self._starts = [0, *accumulate(stop - start for start, stop in self.groups)]
        self._ending = {end: at for at, end in enumerate(self._starts[1:])}
        numbers = list(map(int, self._digits))
        self._sums = [
            [0, *accumulate(_DOUBLED[n] if at % 2 == parity else n for at, n in enumerate(numbers))]
            for parity in (0, 1)
        ]

    def card_end(self, first: int) -> int | None:
        """Last group of the longest card that begins with group ``first``."""
        start = self._starts[first]
        for length in range(_LONGEST_CARD, _SHORTEST_CARD - 1, -1):
            end = start + length
            last = self._ending.get(end)
            if last is None:
                continue
            sums = self._sums[end % 2]
            if (
                (sums[end] - sums[start]) % 10 == 0
                and CARDS.fullmatch(self._digits, start, end)
                and _may_end(self._text, self.groups[last][1])
                and self._is_one(first, last)
            ):
                return last
        return None

    def _is_one(self, first: int, last: int) -> bool:
        """True for groups of one number; a table row continues and is grouped otherwise."""
        gaps = [self._gap(at) for at in range(first, last)]
        if all(gap in (" ", "-") for gap in gaps):
            return True
        lengths = tuple(end - start for start, end in self.groups[first : last + 1])
        if lengths not in _PRINTED or len({gap.strip() for gap in gaps}) > 1:
            return False
        around = [self._gap(at) for at in (first - 1, last) if 0 <= at < len(self.groups) - 1]
        return not "".join(gaps).strip(" ") or not any(gap in gaps for gap in around)

    def _gap(self, at: int) -> str:
        return self._text[self.groups[at][1] : self.groups[at + 1][0]]


def _may_begin(text: str, at: int) -> bool:
    if text[at] not in "23456789":
        return False
    before = text[max(at - 2, 0) : at]
    return not before or not (
        (_is_word(before[-1]) or before[-1] in "$€£") or (before[-1] == "." and before[0].isdigit())
    )


def _may_end(text: str, at: int) -> bool:
    after = text[at : at + 2]
    if not after or not (_is_word(after[0]) or after[0] in "%."):
        return True
    return after[0] == "." and (not after[1:].isdigit() or _WHOLE.match(text, at) is not None)


def _is_word(sign: str) -> bool:
    """ASCII only: other scripts may write a number without a space after a word."""
    return sign.isascii() and sign.isalnum()


def _with_zeros(text: str, at: int) -> int:
    zeros = _WHOLE.match(text, at)
    return zeros.end() if zeros else at


def _powers(text: str) -> Iterator[Span]:
    return (found.span() for found in _POWER.finditer(text) if is_card_number(found[0]))


def _tokens(text: str) -> Iterator[Span]:
    lower, longest = text.lower(), max(map(len, text.split()), default=0)
    spans: list[Span] = []
    if longest >= _SHORTEST_ISSUED or "PRIVATE KEY" in text:
        spans += [match.span() for match in _ISSUED.finditer(text)]
    if "bearer" in lower or "basic" in lower:
        spans += [match.span(1) for match in _BEARER.finditer(text)]
    if (":" in text or "=" in text) and any(name in lower for name in ("key", "token", "secret", "passw")):
        spans += [
            match.span(1)
            for match in _ASSIGNED.finditer(text)
            if _LETTER.search(match[1]) and _GROUP.search(match[1])
        ]
    if longest >= _RANDOM_CHARS:
        spans += [match.span() for match in _RANDOM.finditer(text) if _is_random(match[0])]
    return _apart(spans)


def _apart(spans: list[Span]) -> Iterator[Span]:
    end = 0
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
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


def _letters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text).upper()


def _number(text: str) -> str:
    """Digits of a value in groups, or of a number with a point or a power."""
    found = whole_number(text) if _POINTED.search(text) else None
    return found or _digits(text)


DETECTORS: dict[Kind, Detector] = {
    "value": Detector(_whole, str),
    "token": Detector(_tokens, str),
    "email": Detector(_emails, str.lower, sign="@"),
    "iban": Detector(_ibans, _letters, digits=2),
    "card": Detector(lambda text: _apart([*_cards(text), *_powers(text)]), _number, digits=11),
    "phone": Detector(lambda text: _apart([*_phones(text), *_named_phones(text)]), _number, digits=8),
}
"""By kind, in the order of search: a key may hold digits."""
