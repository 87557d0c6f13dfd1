"""``{mask}``: the slot that a masked language model fills.

A text with several of them takes tuples of words: the first ``{mask}`` shows the first word, and so on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, runtime_checkable

MASK = re.compile(r"(?<!\{)\{([aA]:)?mask\}")


@runtime_checkable
class Suggester(Protocol):
    """Suggests words for ``template(…, mask=…)``, such as a :class:`FillMask`."""

    def words(self, pattern: Any, choices: Mapping[str, Any], /) -> Sequence[Any]:
        """Words for ``{mask}``, best first; tuples for several masks."""


def masked_texts(pattern: Any) -> list[str]:
    """All texts of a pattern that contain ``{mask}``."""
    return [text for text in _texts(pattern) if MASK.search(text)]


def numbered(pattern: Any) -> Any:
    """Pattern with ``{mask[0]}``, ``{mask[1]}``, … in texts with several masks.

    Examples
    --------
    >>> numbered(["a {mask} {a:mask}", "{mask}"])
    ['a {mask[0]} {a:mask[1]}', '{mask}']
    """
    if isinstance(pattern, str):
        if len(MASK.findall(pattern)) < 2:
            return pattern
        number = count()
        return MASK.sub(lambda match: f"{{{match[1] or ''}mask[{next(number)}]}}", pattern)
    if isinstance(pattern, Mapping):
        return {key: numbered(part) for key, part in pattern.items()}
    if isinstance(pattern, list | tuple):
        return type(pattern)([numbered(part) for part in pattern])
    return pattern


def _texts(pattern: Any) -> Iterator[str]:
    if isinstance(pattern, str):
        yield pattern
    elif isinstance(pattern, Mapping | list | tuple):
        for part in pattern.values() if isinstance(pattern, Mapping) else pattern:
            yield from _texts(part)
