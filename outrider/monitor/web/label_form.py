"""Labels that people give on a record's page."""

import json
from collections.abc import Mapping
from typing import Any, Protocol


class LabelWriter(Protocol):
    """Taker of labels, like sent ones."""

    def field(self, model: str) -> str: ...

    def classes(self, model: str) -> tuple[int | str, ...]: ...

    def new_key(self) -> str: ...

    def give(self, model: str, record_id: str, value: Any, *, form: str) -> None:
        """Store a label (None: its withdrawal), or raise a ProblemError; a form sent twice is stored once."""


def label_value(form: Mapping[str, str], classes: tuple[int | str, ...]) -> Any:
    """Value of a form: a declared class, number, truth value or text.

    Raises
    ------
    ValueError
        If there is none, or no such class.

    Examples
    --------
    >>> label_value({"class": "1"}, ("no", "yes")), label_value({"value": "3.5"}, ())
    ('yes', 3.5)
    """
    if classes:
        number = form.get("class", "")
        if not number.isdecimal() or int(number) >= len(classes):
            raise ValueError(f"one of {', '.join(map(repr, classes[:10]))} expected, choose it")
        return classes[int(number)]
    text = form.get("value", "").strip()
    if not text:
        raise ValueError("the right answer expected, got nothing")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, bool | int | float) else text
