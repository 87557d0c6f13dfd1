"""The same said in other words: written rules, each of which keeps the meaning wherever it matches."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .capitals import like
from .columns import drawn
from .phrases import Hit, PhraseList

_BOTH_WAYS = (
    ("a lot of", "lots of"),
    ("kind of a", "sort of a"),
    ("in spite of", "despite"),
    ("for example", "for instance"),
    ("thank you for", "thanks for"),
    ("okay", "ok"),
    ("as soon as possible", "asap"),
    ("at the moment", "right now"),
    ("until", "till"),
)
_ONE_WAY = (
    ("due to the fact that", "because"),
    ("in order to", "to"),
    ("at this point in time", "now"),
    ("a number of", "several"),
    ("is able to", "can"),
    ("are able to", "can"),
    ("am able to", "can"),
    ("wanna", "want to"),
    ("gonna", "going to"),
    ("have to", "need to"),
    ("has to", "needs to"),
    ("had to", "needed to"),
    ("because of", "due to"),
    ("even though", "although"),
    ("kinda", "kind of"),
    ("can you", "could you"),
    ("i think", "i believe"),
    ("i'm sure", "i am certain"),
)
_PHRASES: dict[str, str] = {
    **dict(_ONE_WAY),
    **dict(_BOTH_WAYS),
    **{other: one for one, other in _BOTH_WAYS},
}
_JOINING = ("@", "#", "'", "\N{RIGHT SINGLE QUOTATION MARK}", "-")
_KNOWN = PhraseList(_PHRASES)
_FILLER = re.compile(
    r"(?:^|(?<=[.!?]\s))(?:Honestly|Actually|Basically|Well|You know|To be honest),\s+(\w)", re.I
)
_QUESTION = re.compile(
    r"^(?P<word>What|Who|Where) (?P<be>is|are) "
    r"(?P<what>(?:the|my|your|this|that|these|those) [^?.!,;:]{2,60})\?$",
    re.IGNORECASE,
)


def paraphrase(name: str = "text") -> Perturbation:
    """Say one thing in other words, by rule; a text to which no rule applies is not applicable.

    Phrases ("a lot of" ↔ "lots of", "in order to" → "to", "can you" → "could you"), fillers left out
    ("Honestly, …"), and questions ("What is the fare?" → "Can you tell me what the fare is?").
    """

    def change(text: str, draws: list[float]) -> str:
        options = [
            *(_phrased(text, hit) for hit in _KNOWN.find(text.lower()) if _is_whole(text, hit)),
            *(_without_filler(text, match) for match in _FILLER.finditer(text if "," in text else "")),
            *(_asked(match) for match in _QUESTION.finditer(text)),
        ]
        return options[int(draws[0] * len(options))] if options else text

    return drawn(name, change, draws=1)


def _phrased(text: str, hit: Hit) -> str:
    old, new = text[hit.start : hit.end], _PHRASES[hit.phrase]
    new = new.replace("i ", "I ", 1) if new.startswith("i ") else like(old, new)
    return text[: hit.start] + new + text[hit.end :]


def _is_whole(text: str, hit: Hit) -> bool:
    """Whether the phrase is no part of a handle or of a word with an apostrophe or a hyphen."""
    before, behind = text[hit.start - 1 : hit.start] if hit.start else "", text[hit.end : hit.end + 1]
    return before not in _JOINING and behind not in _JOINING[2:]


def _without_filler(text: str, match: "re.Match[str]") -> str:
    return text[: match.start()] + match[1].upper() + text[match.end() :]


def _asked(match: "re.Match[str]") -> str:
    return f"Can you tell me {match['word'].lower()} {match['what']} {match['be'].lower()}?"
