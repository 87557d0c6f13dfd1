"""Redaction of texts: placeholders in place of values, also within JSON.

A placeholder is keyed: HMAC-SHA-256 of the kind and the value, cut to 64 bits. Equal values have equal ones,
whoever has no key learns no value from them, and one that stands in a text already stays as it is.
"""

import hmac
import json
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from .detectors import DETECTORS, SECRET_NAME
from .kinds import KINDS, Kind

PLACEHOLDER = re.compile(rf"(<(?:{'|'.join(KINDS)}):[0-9a-f]{{16}}>)")
_BEGINS_JSON = ("{", "[", '"')
_DEEPEST = 64


def hint_of(kinds: Collection[Kind]) -> str:
    """RE2 of every text with a value of these kinds, also escaped."""
    return "|".join([DETECTORS[kind].hint for kind in DETECTORS if kind in kinds] + [r"\\u00[2-7]"])


class TextRedactor:
    """Redactor of texts and of values of JSON.

    Parameters
    ----------
    key
        Secret of the placeholders.

    Attributes
    ----------
    counts
        Values redacted so far, by kind.

    Examples
    --------
    >>> redactor = TextRedactor(b"key")
    >>> redactor.text("to ann@shop.example", ["email"]) == redactor.text("to Ann@Shop.Example", ["email"])
    True
    >>> redactor.text('{"card": 4111111111111111}', ["card"])[:15], redactor.counts["card"]
    ('{"card":"<card:', 1)
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.counts: Counter[Kind] = Counter()

    def placeholder(self, kind: Kind, value: str) -> str:
        """Placeholder of one value."""
        self.counts[kind] += 1
        said = f"{kind}\0{DETECTORS[kind].plain(value)}".encode("utf-8", "replace")
        return f"<{kind}:{hmac.digest(self._key, said, 'sha256').hex()[:16]}>"

    def text(self, text: str, kinds: Collection[Kind]) -> str:
        """Text without values of these kinds; JSON stays JSON."""
        if "value" in kinds:
            return text if not text or PLACEHOLDER.fullmatch(text) else self.placeholder("value", text)
        if text.lstrip().startswith(_BEGINS_JSON):
            before = self.counts.copy()
            try:
                found = self.value(json.loads(text, parse_constant=_no_constant), kinds)
            except (ValueError, RecursionError):
                self.counts = before
            else:
                return text if self.counts == before else _written(found)
        return self._plain(text, kinds)

    def value(self, value: Any, kinds: Collection[Kind], *, depth: int = _DEEPEST) -> Any:
        """Value of JSON with placeholders, also in place of numbers."""
        if isinstance(value, str):
            return self.text(value, kinds)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value, kinds)
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            raise RecursionError("JSON nested too deeply")
        if isinstance(value, list):
            return [self.value(each, kinds, depth=depth - 1) for each in value]
        return {
            self.text(name, kinds): self._member(name, each, kinds, depth - 1) for name, each in value.items()
        }

    def _member(self, name: str, value: Any, kinds: Collection[Kind], depth: int) -> Any:
        if "token" in kinds and isinstance(value, str) and len(value) >= 8 and SECRET_NAME.fullmatch(name):
            return value if PLACEHOLDER.fullmatch(value) else self.placeholder("token", value)
        return self.value(value, kinds, depth=depth)

    def _number(self, value: float, kinds: Collection[Kind]) -> Any:
        if "value" in kinds:
            return self.placeholder("value", repr(value))
        text = str(value)
        said = self._plain(text, kinds) if isinstance(value, int) else text
        return value if said == text else said

    def _plain(self, text: str, kinds: Collection[Kind]) -> str:
        for kind, detector in DETECTORS.items():
            if kind not in kinds:
                continue
            pieces = PLACEHOLDER.split(text)
            if len(pieces) == 1 and next(detector.spans(text), None) is None:
                continue
            pieces[::2] = [self._replaced(kind, piece) for piece in pieces[::2]]
            text = "".join(pieces)
        return text

    def _replaced(self, kind: Kind, text: str) -> str:
        parts, at = [], 0
        for start, end in DETECTORS[kind].spans(text):
            parts += [text[at:start], self.placeholder(kind, text[start:end])]
            at = end
        return "".join([*parts, text[at:]])


def _written(value: Any) -> str:
    """JSON, as it was written but for spaces; ASCII where it holds half of a surrogate pair."""
    said = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return said if said.isascii() or is_text(said) else json.dumps(value, separators=(",", ":"))


def is_text(text: str) -> bool:
    """Test for text without unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
