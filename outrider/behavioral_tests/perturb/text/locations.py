"""Cities and countries: another city, another country."""

import re
from collections.abc import Sequence

from outrider.behavioral_tests.lexicons import lexicon
from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn
from .phrases import Hit, PhraseList
from .word_lists import lines

# Also people, things or words at the beginning of a sentence; indistinguishable without a parser.
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
_NAME_BEHIND = re.compile(r"\s+[A-Z]|\s*,\s*[A-Z]\w|[-_/]\w|\s*\(|['\u2019]s\s+[A-Z]")
_PART_BEFORE = re.compile(r"[A-Z][\w'\u2019.-]*(?:\s*,|\s+(?:in|near|of|outside))\s+(?:downtown\s+)?$")
_JOURNEY = re.compile(r"\bfrom\b.+\bto\b", re.IGNORECASE | re.DOTALL)
_BOUND_TO_PLACE = re.compile(  # statements that hold for this place only
    r"\b(?:capitals?|country|countries|nations?|nationals?|continents?|languages?|currency|president|minister|king"
    r"|queen|kingdom|government|parliament|embassy|population|inhabitants|borders?|state|province|county|region"
    r"|island|river|lake|mountains?|coast|beach(?:es)?|located|location|situated|largest|biggest|oldest|famous"
    r"|known for|home of|born|founded|built|war|battle|history|historic|century|empire|communist|olympics?"
    r"|world cup"
    r"|landmark|cathedral|tower|museum|monument|palace|tunnel|bridge"
    r"|north|south|east|west|nearest|closest|miles|kilomet\w+|km"
    r"|drive|drove|driving|road ?trip|train|bus|time ?zones?|english|spanish|french|german|italian|chinese"
    r"|speaks?|spoken)\b"
    r"|\b\d+(?:[.,]\d+)?\s*(?:-\s*)?(?:hours?|hrs?|h)\s+(?:to|from|flight|away)\b",
    re.IGNORECASE,
)


def locations(
    name: str = "text", *, cities: Sequence[str] | None = None, countries: Sequence[str] | None = None
) -> Perturbation:
    """Replace a city or a country by another, throughout the text.

    Places inside longer names ("New York Times", "Austin, TX", "#Boston") and names that are also people or
    things ("Jordan", "Turkey") are kept; a text without other places is not applicable. Texts that state
    facts about a place are not applicable either: texts with a city and a country (except journeys between
    them), or with words such as "capital", "river", "drive" or "born".

    Parameters
    ----------
    cities, countries
        Places to recognise and to insert. Default: about 150 cities that travellers write about, and the
        lexicon ``country`` without those that need an article ("the Netherlands").

    References
    ----------
    CheckList's ``Perturb.change_location``, which needs an entity recogniser.
    """
    lists = [tuple(cities or lines("cities")), tuple(countries or _countries())]
    group = {place: options for options in reversed(lists) for place in options}
    known = PhraseList(place for place in group if place not in _AMBIGUOUS)

    def change(text: str, draws: list[float]) -> str:
        named = list(known.find(text))
        hits = [hit for hit in named if _is_separate(text, hit)]
        if not hits or _is_bound(text, {id(group[hit.phrase]) for hit in named}):
            return text
        old = hits[int(draws[0] * len(hits))].phrase
        there = {hit.phrase for hit in named}
        options = group[old]
        place = int(draws[1] * len(options))
        # What the text names elsewhere is no other place.
        new = next(
            (each for each in (options[place - n] for n in range(len(options))) if each not in there), old
        )
        return replaced(text, [hit for hit in hits if hit.phrase == old], new)

    return drawn(name, change, draws=2)


def _countries() -> list[str]:
    return [country for country in lexicon("country") if not _WITH_ARTICLE.search(country)]


def replaced(text: str, hits: list[Hit], new: str) -> str:
    """Text with ``new`` in place of all hits."""
    for hit in reversed(hits):
        text = text[: hit.start] + new + text[hit.end :]
    return text


def _is_bound(text: str, kinds: set[int]) -> bool:
    """True if the statement would become false with another place."""
    return (len(kinds) > 1 and not _JOURNEY.search(text)) or _BOUND_TO_PLACE.search(text) is not None


def _is_separate(text: str, hit: Hit) -> bool:
    before = text[: hit.start]
    return not (
        _NAME_BEFORE.search(before) or _PART_BEFORE.search(before) or _NAME_BEHIND.match(text, hit.end)
    )
