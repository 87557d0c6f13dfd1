"""Kinds of redacted values, and columns to redact; imports nothing heavy."""

import difflib
from collections.abc import Sequence
from typing import Literal, get_args

Kind = Literal["email", "phone", "card", "iban", "token", "value"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""``value`` is a whole value of any kind."""
_PARTS = ("inputs", "outputs", "attrs", "label")
_EXPECTED = "entity, inputs.…, outputs.…, attrs.… or label.… expected"


def column_fault(name: str, known: Sequence[str] = ()) -> str | None:
    part, dot, field = name.partition(".")
    if name == "entity" or (part in _PARTS and field):
        return None
    if name == "id":
        return "an id is sent back and joins what belongs together: send one that names nobody"
    near = difflib.get_close_matches(part, [*_PARTS, "entity"], n=1)
    if dot and field:
        hint = f"{near[0]}.{field}" if near else ""
    else:
        whole = {column.partition(".")[2]: column for column in known}
        found = difflib.get_close_matches(name, whole, n=1)
        hint = whole[found[0]] if found else near[0] if near == ["entity"] else f"inputs.{name}"
    return f"{_EXPECTED}, got {name!r}" + (f"; did you mean {hint!r}?" if hint else "")


def kind_fault(kind: str) -> str | None:
    if kind in KINDS:
        return None
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]} expected, got {kind!r}{hint}"
