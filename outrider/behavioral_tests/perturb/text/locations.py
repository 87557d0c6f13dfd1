"""Cities and countries: another city, another country."""

import re
from collections.abc import Sequence

from outrider.behavioral_tests.lexicons import lexicon
from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn
from .phrases import Hit, PhraseList
from .word_lists import lines

# Also people, things or words at the beginning of a sentence; nobody can tell without a parser.
_AMBIGUOUS = frozenset(
    {"Bath", "Chad", "Charlotte", "Cork", "Florence", "Georgia", "Jordan", "Lima", "Mobile", "Nice", "Orange"}
    | {"Reading", "Split", "Turkey", "Victoria"}
)
_WITH_ARTICLE = re.compile(
    r"United|Republic|Islands"
    r"|^(?:Netherlands|Philippines|Gambia|Maldives|Bahamas|Seychelles|Comoros|Ivory Coast)$"
)
_NAME_BEFORE = re.compile(
    r"(?:[@#&]|\b(?:an?|the|The|[A-Z][\w'\u2019.-]*(?<!\bFrom)(?<!\bTo)(?<!\bIn)(?<!\bAt)))\s?$"
)
_NAME_BEHIND = re.compile(r"\s+[A-Z]|,\s*[A-Z]{2}\b|[-_/]\w")


def locations(
    name: str = "text", *, cities: Sequence[str] | None = None, countries: Sequence[str] | None = None
) -> Perturbation:
    """Replace a city by another city, or a country by another country, wherever the text names it.

    Places inside longer names ("New York Times", "Austin, TX", "#Boston") and those that are also people or
    things ("Jordan", "Turkey") stay; without any other the text is not applicable.

    Parameters
    ----------
    cities, countries
        What is recognised and what comes in its place. By default about 150 cities that travellers write
        about, and the lexicon ``country`` without those that need an article ("the Netherlands").

    References
    ----------
    CheckList's ``Perturb.change_location``, which needs an entity recogniser.
    """
    lists = [tuple(cities or lines("cities")), tuple(countries or _countries())]
    group = {place: options for options in reversed(lists) for place in options}
    known = PhraseList(place for place in group if place not in _AMBIGUOUS)

    def change(text: str, draws: list[float]) -> str:
        hits = [hit for hit in known.find(text) if _stands_alone(text, hit)]
        if not hits:
            return text
        old = hits[int(draws[0] * len(hits))].phrase
        options = group[old]
        new = options[int(draws[1] * len(options))]
        if new == old:
            new = options[options.index(old) - 1]
        return replaced(text, [hit for hit in hits if hit.phrase == old], new)

    return drawn(name, change, draws=2)


def _countries() -> list[str]:
    return [country for country in lexicon("country") if not _WITH_ARTICLE.search(country)]


def replaced(text: str, hits: list[Hit], new: str) -> str:
    """The text with ``new`` in place of every hit."""
    for hit in reversed(hits):
        text = text[: hit.start] + new + text[hit.end :]
    return text


def _stands_alone(text: str, hit: Hit) -> bool:
    return not _NAME_BEFORE.search(text[: hit.start]) and not _NAME_BEHIND.match(text, hit.end)
