"""Templates: many cases from one sentence (or nested structure) with slots.

``{key}`` takes each value of the list ``key``; ``{key1}`` another pick from the same list; ``{a:key}`` adds
the article; ``{x.attr}`` and ``{x[0]}`` reach into a value; ``{{`` is a brace. A list that is not given is
looked up among the :mod:`lexicons`. Nothing is expanded before it is asked for: a template of 10^12
combinations samples at once.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import prod
from string import Formatter
from typing import Any

from . import lexicons

Slots = Mapping[str, Any]
_FORMATTER = Formatter()
_ROOT = re.compile(r"[^.\[]+")


@dataclass(frozen=True, slots=True)
class Filled:
    """Cases made of templates: values, the slots they were filled with, and labels (or None)."""

    values: tuple[Any, ...]
    slots: tuple[Slots, ...]
    labels: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __add__(self, other: "Filled") -> "Filled":
        if (self.labels is None) != (other.labels is None):
            raise ValueError("both or neither of two sets of cases must have labels")
        labels = None if self.labels is None or other.labels is None else self.labels + other.labels
        return Filled(self.values + other.values, self.slots + other.slots, labels)


@dataclass(frozen=True, slots=True)
class Template:
    """A structure with slots; see :func:`template`."""

    pattern: Any
    choices: Mapping[str, Sequence[Any]]
    """Slot name → values."""
    sources: Mapping[str, str]
    """Slot name → name of its list: ``key`` and ``key1`` are two slots with one list."""
    labels: Any = None

    @property
    def combinations(self) -> int:
        """Number of combinations, those with equal picks of one list included."""
        return prod(len(values) for values in self.choices.values())

    def product(self, limit: int | None = None) -> Filled:
        """All combinations in order, or the first ``limit`` of them."""
        everything = (
            slots for index in range(self.combinations) if (slots := self._slots(index)) is not None
        )
        return self._fill(islice(everything, limit))

    def sample(self, rows: int, *, seed: int = 0) -> Filled:
        """``rows`` combinations without replacement; all of them when there are fewer."""
        if rows >= self.combinations:
            return self.product()
        rng = random.Random(seed)
        seen: set[int] = set()
        picked: list[Slots] = []
        while len(picked) < rows and len(seen) < self.combinations:
            index = rng.randrange(self.combinations)
            if index not in seen:
                seen.add(index)
                slots = self._slots(index)
                picked += [] if slots is None else [slots]
        return self._fill(picked)

    def zip(self) -> Filled:
        """First values together, second values together, …; lists must be equally long."""
        lengths = {name: len(values) for name, values in self.choices.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"zip needs lists of one length, got {lengths}")
        rows = next(iter(lengths.values()), 1)
        return self._fill({name: values[i] for name, values in self.choices.items()} for i in range(rows))

    def _slots(self, index: int) -> Slots | None:
        """Combination number ``index`` (last slot fastest), None if two picks of one list coincide."""
        picks: dict[str, int] = {}
        for name in reversed(list(self.choices)):
            index, picks[name] = divmod(index, len(self.choices[name]))
        lists = {(self.sources[name], pick) for name, pick in picks.items()}
        if len(lists) < len(picks):
            return None
        return {name: values[picks[name]] for name, values in self.choices.items()}

    def _fill(self, slots: Any) -> Filled:
        used = tuple(slots)
        labels = None
        if self.labels is not None:
            give = self.labels if callable(self.labels) else lambda _: self.labels
            labels = tuple(give(each) for each in used)
        fill = _compile(self.pattern)
        return Filled(tuple(fill(each) for each in used), used, labels)


def template(
    pattern: Any, *, labels: Any | Callable[[Slots], Any] = None, **choices: Sequence[Any]
) -> Template:
    """Template of a text, or of a dict, list or tuple of texts.

    Parameters
    ----------
    pattern
        For a model with several inputs a dict: ``{"premise": "…", "hypothesis": "…"}``.
    labels
        Label of every case, or a function of its slots.
    **choices
        Values by slot name; those not given come from :func:`lexicons.lexicon`.

    Raises
    ------
    KeyError
        If a slot has neither values nor a lexicon.

    Examples
    --------
    >>> people = template("{name} is {a:job}.", name=["Ada"], job=["engineer", "pilot"])
    >>> people.product().values
    ('Ada is an engineer.', 'Ada is a pilot.')
    >>> len(template("{first_name} met {first_name1} in {city}.").sample(5))
    5
    """
    names = dict.fromkeys(_slot_names(pattern))
    sources = {name: _source(name, choices) for name in names}
    return Template(
        pattern, {name: _values(source, choices) for name, source in sources.items()}, sources, labels
    )


def _source(name: str, given: Mapping[str, Sequence[Any]]) -> str:
    """Name of the list that a slot takes its values from: its own, or that without the number at its end."""
    base = name.rstrip("0123456789")
    for known in (given, lexicons.names()):
        for key in (name, base):
            if key in known:
                return key
    raise KeyError(
        f"slot {name!r} has no values; pass {base}=[…] or use a lexicon: {', '.join(lexicons.names())}"
    )


def _values(source: str, given: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    if source not in given:
        return lexicons.lexicon(source)
    values = tuple(given[source])
    if not values:
        raise ValueError(f"slot {source!r} has no values: a template needs at least one")
    return values


def _slot_names(pattern: Any) -> Iterator[str]:
    if isinstance(pattern, str):
        for _, field, spec, _ in _FORMATTER.parse(pattern):
            if field is not None:
                yield _root(_target(field, spec or ""))
    elif isinstance(pattern, Mapping):
        for part in pattern.values():
            yield from _slot_names(part)
    elif isinstance(pattern, list | tuple):
        for part in pattern:
            yield from _slot_names(part)


def _target(field: str, spec: str) -> str:
    return spec if field in ("a", "A") and spec else field


def _root(field: str) -> str:
    match = _ROOT.match(field)
    if match is None:
        raise ValueError(f"slot names expected between braces, got {{{field}}}; write {{{{ for a brace")
    return match[0]


def _compile(pattern: Any) -> Callable[[Slots], Any]:
    """Function from slots to the filled pattern; the pattern is parsed once, not for every case."""
    if isinstance(pattern, str):
        pieces = [piece for parsed in _FORMATTER.parse(pattern) for piece in _pieces(*parsed)]
        return lambda slots: "".join([piece(slots) for piece in pieces])
    if isinstance(pattern, Mapping):
        fields = {key: _compile(part) for key, part in pattern.items()}
        return lambda slots: {key: fill(slots) for key, fill in fields.items()}
    if isinstance(pattern, list | tuple):
        parts = [_compile(part) for part in pattern]
        return lambda slots: type(pattern)(fill(slots) for fill in parts)
    return lambda _: pattern


def _pieces(
    text: str, field: str | None, spec: str | None, conversion: str | None
) -> Iterator[Callable[[Slots], str]]:
    """What :meth:`string.Formatter.parse` gives for one literal and the slot behind it, as functions."""
    if text:
        yield lambda _: text
    if field is None:
        return
    target = _target(field, spec or "")
    with_article = target is not field

    def fill(slots: Slots) -> str:
        value = slots[target] if target in slots else _FORMATTER.get_field(target, (), slots)[0]
        if conversion:
            value = _FORMATTER.convert_field(value, conversion)
        if with_article:
            return f"{_article(str(value), capital=field == 'A')} {value}"
        return format(value, spec or "")

    yield fill


@cache
def _article(word: str, *, capital: bool) -> str:
    """Indefinite article by sound, as far as spelling tells it."""
    lower = word.lower()
    vowel = lower[:1] in "aeio" or (
        lower[:1] == "u" and not re.match(r"u(ni([^nm]|$)|s[aeiou]|r[aeiou]|t[aeiou])", lower)
    )
    vowel = (vowel and not lower.startswith(("eu", "one", "once"))) or lower.startswith(
        ("hour", "honest", "honor", "honour", "heir")
    )
    article = "an" if vowel else "a"
    return article.capitalize() if capital else article
