"""Items of a text: words, leaves of JSON, or facts."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.texts.facts import facts_of, number_text
from outrider.assertions.texts.words import named, words
from outrider.errors import ConfigError

from .agreement import EMBEDDING

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
CLASSES = "classes="
WIDTH = 512
"""Length of a hashed bag-of-items vector."""
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_COLUMNS = np.uint64(2**31 - 1)


def checked_agree(agree: Iterable[str]) -> tuple[str, ...]:
    """Check the declaration of the parts that have to agree.

    Raises
    ------
    ConfigError
        If something is neither of ``words``, ``facts``, ``embedding``, a path of JSON, nor classes.

    Examples
    --------
    >>> checked_agree(["facts", "$.decision", "classes=approved,rejected"])
    ('facts', '$.decision', 'classes=approved,rejected')
    """
    found = tuple(dict.fromkeys(agree))
    for one in found:
        is_path = one.startswith("$.") and all(one[2:].split("."))
        is_classes = one.startswith(CLASSES) and all(each.strip() for each in one[len(CLASSES) :].split(","))
        if one not in ("words", "facts", EMBEDDING) and not is_path and not is_classes:
            raise ConfigError(
                "agree: words, facts, a path of JSON ($.decision), classes=approved,rejected or embedding "
                f"expected, got {one!r}"
            )
    return found


def json_of(text: str) -> Any:
    """Object or list if a text is JSON; None otherwise."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[", "`"):
        return None
    fenced = _FENCED.match(text)
    try:
        value = json.loads(fenced[1] if fenced else stripped)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def items_of(text: str) -> list[str]:
    """Words of a text, or leaves of JSON with their paths.

    The order of keys is ignored; the text "1" and the number 1 are different leaves.

    Examples
    --------
    >>> items_of("The cat  sat"), items_of('{"b": 1.0, "a": ["x y"]}') == items_of('{"a": ["x y"], "b": 1}')
    (['the', 'cat', 'sat'], True)
    >>> items_of('{"b": 1.0, "a": ["x y"]}')
    ['a[0]=x', 'a[0]=y', 'b:1']
    """
    value = json_of(text)
    return words(text) if value is None else [*_leaves(value, "")]


def texts_at(path: str, text: str) -> list[str]:
    """Leaves of JSON below a path, or all words of other texts.

    Examples
    --------
    >>> texts_at("$.a.b", '{"a": {"b": "Yes"}, "c": 1}'), texts_at("$.a", '{"c": 1}'), texts_at("$.a", "none")
    (['=yes'], [], ['none'])
    """
    value = json_of(text)
    if value is None:
        return words(text)
    for name in path[2:].split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return []
    return [*_leaves(value, "")]


def classes_in(classes: str, text: str) -> list[str]:
    """Declared classes that a text names, as whole words.

    Examples
    --------
    >>> classes_in("classes=approved,rejected", "Claim 7 is Rejected.")
    ['rejected']
    """
    return sorted(named(text, tuple(each.strip() for each in classes[len(CLASSES) :].split(","))))


def read_items(kind: str, text: str) -> list[str]:
    """Items of one kind: ``text``, ``facts``, a path of JSON, or classes."""
    if kind == "text":
        return items_of(text)
    if kind == "facts":
        return facts_of(text)
    return classes_in(kind, text) if kind.startswith(CLASSES) else texts_at(kind, text)


def bags(items: Sequence[Sequence[str]]) -> "csr_array[Any, tuple[int, int]]":
    """Item counts of each text, hashed, shape (texts, hashes)."""
    from pandas.util import hash_array  # slow to import
    from scipy.sparse import csr_array

    starts = np.concatenate([[0], np.cumsum([len(each) for each in items], dtype=np.int64)])
    flat = np.array([item for each in items for item in each], dtype=object)
    columns = (hash_array(flat) % _COLUMNS).astype(np.int32) if len(flat) else np.zeros(0, dtype=np.int32)
    found = csr_array((np.ones(len(flat)), columns, starts), shape=(len(items), int(_COLUMNS)))
    found.sum_duplicates()
    return found


def exchanged(one: "csr_array[Any, tuple[int, int]]", other: "csr_array[Any, tuple[int, int]]") -> Floats:
    """Number of items in which bags differ. An item missing on one side counts half."""
    return np.asarray(abs(one - other).sum(axis=1), dtype=np.float64) / 2


def hashed_bags(texts: Sequence[str]) -> Floats:
    """Item counts hashed to ``WIDTH`` columns, shape (texts, WIDTH)."""
    counts = bags([items_of(text) for text in texts]).tocoo()
    found = np.zeros((len(texts), WIDTH))
    row, column = counts.coords
    np.add.at(found, (row, column % WIDTH), np.where(column // WIDTH % 2, -counts.data, counts.data))
    return found


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _leaves(value[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield from _leaves(each, f"{path}[{at}]")
    elif isinstance(value, str):
        yield from (f"{path}={word}" for word in words(value) or [""])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{path}:{number_text(value)}"
    else:
        yield f"{path}:{json.dumps(value)}"
