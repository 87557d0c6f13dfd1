"""Names of people: another of the same gender."""

import re
from collections.abc import Container, Sequence
from typing import Literal, TypeAlias

from outrider.behavioral_tests.lexicons import lexicon
from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn
from .word_lists import words

Part: TypeAlias = Literal["first", "last", "both"]

_FIRST = re.compile(r"(?<![\w@#&.'\u2019-])[A-Z][a-z]+(?![\w-])")
_LAST = re.compile(r"\s([A-Z][\w\u2019'-]*[a-z])(?!\w)")
_INSIDE = re.compile(r"[A-Z][\w.'\u2019-]*\s$")  # after another word with a capital
_OUTSIDE = re.compile(  # which is none of the name after all
    r"\b(?:Mr|Mrs|Ms|Miss|Dr|Prof|Aunt|Uncle|And|But|Hi|Hello|Hey|Dear|Thanks|With|From|For|To|I|My|Is|Was)\.?\s$"
)


def names(
    name: str = "text",
    *,
    part: Part = "both",
    women: Sequence[str] | None = None,
    men: Sequence[str] | None = None,
    last: Sequence[str] | None = None,
) -> Perturbation:
    """Replace one person's name, throughout the text.

    The new name has the same gender. A first name followed by a last name outside ``last`` is kept (possibly
    a well-known person), as are names inside other names and lower-case ones; without other names the text is
    not applicable.

    Parameters
    ----------
    part
        Part to change: the ``first`` name, the ``last`` name (if any), or ``both``.
    women, men
        First names of each gender to recognise and to insert; default: about 250 each that are common in the
        United States. A name in both lists is kept.
    last
        Last names; the lexicon ``last_name`` by default.

    References
    ----------
    CheckList's ``Perturb.change_names``, which needs an entity recogniser.
    """
    if part not in ("first", "last", "both"):
        raise ValueError(f"part must be first, last or both, got {part!r}")
    lists = [tuple(women or words("women")), tuple(men or words("men"))]
    both = set(lists[0]) & set(lists[1])
    group = {first: options for options in lists for first in options if first not in both}
    last_names = tuple(last or lexicon("last_name"))
    known_last = frozenset(last_names)

    def change(text: str, draws: list[float]) -> str:
        people = [found for found in _people(text, group, known_last) if found[1] or part != "last"]
        if not people:
            return text
        first, family = people[int(draws[0] * len(people))]
        if family and part != "first":
            text = _renamed(text, family, _other(last_names, family, draws[2]))
        if part != "last":
            text = _renamed(text, first, _other(group[first], first, draws[1]))
        return text

    return drawn(name, change, draws=3)


def _people(text: str, group: Container[str], known_last: Container[str]) -> list[tuple[str, str]]:
    """First name and last name (or "") of each certain person in the text."""
    found = []
    for match in _FIRST.finditer(text):
        if match[0] not in group or _is_inside(text[: match.start()]):
            continue
        last_name = _LAST.match(text, match.end())
        if last_name is None or last_name[1] in known_last:
            found.append((match[0], last_name[1] if last_name else ""))
    return found


def _is_inside(before: str) -> bool:
    return bool(_INSIDE.search(before)) and not _OUTSIDE.search(before)


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w@#]){re.escape(old)}(?!\w)", new, text)


def _other(options: Sequence[str], old: str, draw: float) -> str:
    new = options[int(draw * len(options))]
    return new if new != old else options[options.index(old) - 1]
