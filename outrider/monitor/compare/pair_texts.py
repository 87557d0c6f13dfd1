"""Pairs of answers as short texts, for reports and pages."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def question_of(example: Mapping[str, Any]) -> str:
    inputs = example["inputs"]
    body = inputs.get("request")
    if isinstance(body, str):
        try:
            found = json.loads(body)
            messages = found.get("messages")
            inputs = {"prompt": messages[-1]["content"] if messages else found.get("prompt")}
        except (ValueError, AttributeError, LookupError, TypeError):
            pass
    if len(inputs) == 1:
        return short(next(iter(inputs.values())))
    return short(", ".join(f"{name}={few_digits(str(value))}" for name, value in inputs.items()))


def shuffled(id_: str) -> tuple[str, str]:
    """Order of the two sides as A and B, fixed by a hash of the pair's id."""
    names = ("production", "candidate")
    first = hashlib.sha256(id_.encode()).digest()[0] % 2
    return names[first], names[1 - first]


def short(value: Any, most: int = 200) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split()).encode("utf-8", "replace").decode()  # JSON may hold half a letter
    return text if len(text) <= most else text[: most - 1] + "…"


def few_digits(text: str) -> str:
    """Round a number, or a list of numbers, to five significant digits; other texts stay.

    Examples
    --------
    >>> few_digits("0.7310585786300049"), few_digits("[0.5, 0.30000000000000004]"), few_digits("v 0.1234567")
    ('0.73106', '[0.5, 0.3]', 'v 0.1234567')
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list) and value and all(type(one) in (int, float) for one in value):
        return f"[{', '.join(f'{one:.5g}' for one in value)}]"
    return text
