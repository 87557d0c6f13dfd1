"""Failed cases as lines of text, with changes marked.

The marks are those of ``git diff --word-diff``.
"""

import json
from collections.abc import Mapping
from typing import Any

from .case_values import is_tensor, numbers_of, numbers_summary
from .diff import text_diff
from .outcome import Example

_WIDTH = 200
_NUMBERS = 16  # of a tensor, that a line shows one by one
_CONTEXT = 60  # letters of a long text before its first change
_MARKS = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}


def example_lines(example: Example) -> list[str]:
    """Lines of one failed case: input, answer, and their changes.

    Examples
    --------
    >>> for line in example_lines(
    ...     Example("7", 1.0, {"text": "not bad"}, {"label": 0}, {"text": "bad"}, {"label": 1})
    ... ):
    ...     print(line)
    [7] text: {+not +}bad
        label=1 -> label=0
    """
    lead = f"[{example.id}] "
    if example.original_inputs is None:
        expected = "" if not example.label else f", expected {_text(example.label)}"
        return [f"{lead}{_text(example.inputs)} -> {_text(example.outputs)}{expected}"]
    changes = _changes(example.original_inputs, example.inputs) or [_text(example.inputs)]
    indent = " " * len(lead)
    return [
        f"{lead if at == 0 else indent}{line}"
        for at, line in enumerate(
            [*changes, f"{_text(example.original_outputs or {})} -> {_text(example.outputs)}"]
        )
    ]


def marked_change(before: str, after: str, *, width: int = _WIDTH) -> str:
    """Both texts merged, with ``[-removed-]`` and ``{+added+}``; long ones are cut.

    Examples
    --------
    >>> marked_change("a good film", "a great film")
    'a [-good-]{+great+} film'
    """
    pieces = text_diff(before, after)
    if pieces and pieces[0][0] == "same" and len(before) > width and len(pieces[0][1]) > _CONTEXT:
        pieces[0] = ("same", f"…{pieces[0][1][-_CONTEXT:]}")
    return _cut("".join(_MARKS[kind].format(_one_line(text)) for kind, text in pieces), width)


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line per changed field: a record may have many fields."""
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return [_change(name, was.get(name), now.get(name)) for name in names]


def _change(name: str, was: Any, now: Any) -> str:
    if isinstance(was, str) and isinstance(now, str):
        return f"{name}: {marked_change(was, now)}"
    old, new = numbers_of(was), numbers_of(now)
    if old is not None and new is not None and old.shape == new.shape:
        counted = f", {int((old != new).sum())} of {new.size} changed" if new.size > _NUMBERS else ""
        return _cut(f"{name}={_value(was)} -> {_value(now)}{counted}", _WIDTH)
    if isinstance(was, list | dict) and isinstance(now, list | dict) and not is_tensor(now):
        return f"{name}: {marked_change(_json(was), _json(now))}"
    return _cut(f"{name}={_value(was)} -> {_value(now)}", _WIDTH)


def _text(values: Mapping[str, Any]) -> str:
    return _cut(", ".join(f"{name}={_value(value)}" for name, value in values.items()), _WIDTH)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if is_tensor(value):
        return str(value["tensor"])
    if isinstance(value, list):
        array = numbers_of(value)
        if array is not None and array.size > _NUMBERS:
            return numbers_summary(array)
        return f"[{', '.join(_value(each) for each in value)}]"
    return repr(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
