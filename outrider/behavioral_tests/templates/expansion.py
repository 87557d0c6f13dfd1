"""Expansion of a pattern over the values of its slots.

All combinations, a sample of them, or values zipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from outrider.behavioral_tests import lexicons

from .filled import Filled
from .masks import Suggester, numbered
from .part import SlottedPattern, TemplateRows
from .patterns import compiled, texts


class Template(SlottedPattern):
    """Text or nested structure with slots; see :func:`template`."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type["Template"], tuple[Any, ...]]:
        """Arguments to rebuild the template, for pickle: its functions cannot be pickled."""
        return Template, (self.pattern, self.choices, self.sources, self.labels, self.meta)

    @property
    def combinations(self) -> int:
        """Number of combinations; slots of one list never repeat a value."""
        return self.space.total

    def product(self, limit: int | None = None) -> Filled:
        """All combinations, or the first ``limit``; the last slot changes fastest."""
        rows = self.combinations if limit is None else min(limit, self.combinations)
        return Filled([TemplateRows(self, range(rows))])

    def sample(self, rows: int, *, seed: int = 0) -> Filled:
        """Up to ``rows`` distinct, equally likely combinations in random order."""
        if rows >= self.combinations or not self.choices:
            return self.product(limit=rows)
        return Filled([TemplateRows(self, self.space.sample(rows, np.random.default_rng(seed)))])

    def zip(self) -> Filled:
        """Combine first values, second values, … of equally long lists.

        Raises
        ------
        ValueError
            If lists differ in length.
        """
        lengths = {name: len(values) for name, values in self.choices.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"zip needs lists of one length, got {lengths}")
        if not lengths:
            return self.product()
        return Filled([TemplateRows(self, tuple(np.arange(length) for length in lengths.values()))])


def template(
    pattern: Any,
    /,
    *,
    labels: Any = None,
    meta: Mapping[str, Any] | None = None,
    **choices: Any,
) -> Template:
    """Template of a text, or of dicts, lists or tuples.

    Parameters
    ----------
    pattern
        Text with slots. For a model with several inputs a dict: ``{"premise": "…", "hypothesis": "…"}``. A
        list or tuple is a case of several examples, the original first.
    labels
        Label of each case: a value, a text with slots (``"{stars}"`` alone keeps the type of its value), or a
        function of the slots.
    meta
        Notes on each case, by name: values, texts with slots or functions, as for ``labels``. They become
        ``attrs.*`` of the records, which the model does not get as inputs.
    **choices
        Values by slot name; missing ones come from :func:`lexicons.lexicon`. A text, number or mapping is a
        single value. ``mask=`` may be a masked language model (:class:`FillMask`), which then proposes the
        words of ``{mask}``.

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
    >>> rated = template("{s.word} film", s=[{"word": "fine", "stars": 4}], labels="{s.stars}")
    >>> rated.product().labels
    (4,)
    """
    if isinstance(choices.get("mask"), Suggester):
        others = {name: values for name, values in choices.items() if name != "mask"}
        choices = {**others, "mask": choices["mask"].words(pattern, others)}
    pattern = numbered(pattern) if _are_tuples(choices.get("mask")) else pattern
    noted = dict(meta or {})
    patterns = [pattern, *(each for each in (labels, *noted.values()) if not callable(each))]
    names = dict.fromkeys(
        piece.slot for each in patterns for text in texts(compiled(each)) for piece in text.pieces
    )
    given = {name: _as_list(name, values) for name, values in choices.items()}
    sources = {name: _source(name, given) for name in names}
    values = {source: _values(source, given) for source in dict.fromkeys(sources.values())}
    slots = {name: values[source] for name, source in sources.items()}
    return Template(pattern, slots, sources, labels, noted)


def _are_tuples(values: Any) -> bool:
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], list | tuple)


def _source(name: str, given: Mapping[str, Sequence[Any]]) -> str:
    """Name of the list of a slot: its own name, or that without the number at its end."""
    base = name.rstrip("0123456789")
    for known in (given, lexicons.names()):
        for key in (name, base):
            if key in known:
                return key
    raise KeyError(
        f"slot {name!r} has no values; pass {base}=[…] or use a lexicon: {', '.join(lexicons.names())}"
    )


def _values(source: str, given: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
    if source not in given:
        return lexicons.lexicon(source)
    if not given[source]:
        raise ValueError(f"slot {source!r} has no values: a template needs at least one")
    return given[source]


def _as_list(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, set | frozenset):
        raise TypeError(f"values of {name!r} need an order to be repeatable, got a set; pass sorted(…) of it")
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return (values,)
    return values if isinstance(values, range | tuple) else tuple(values)
