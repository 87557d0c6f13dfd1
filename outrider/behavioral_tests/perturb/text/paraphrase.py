"""Paraphrase by written rules, only for phrases with one meaning."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn, like
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
_ALONE = r"(?:^|[.!?,:;\n\u2026]|@\w+|\b(?:ok|okay|and|but|so|hi|hey|hello|please|pls))[\s\W]*$"
"""Pattern for the beginning of a statement: nothing before it, or a handle, greeting, punctuation mark."""
_DUTY = (
    r"(?:\b(?:i|you|we|they|people|who|he|she|it|everyone|somebody|someone|anyone|nobody|will|'ll|would|'d|may"
    r"|might|don't|doesn't|didn't|do not|does not|did not|shouldn't|should not|always|often|usually"
    r"|still|also)\s*)$"
)
_NO_DUTY = (
    r"\s+(?:(?:be|offer|say|admit|confess|wonder|give|show|tell|love|laugh|think|thank|hand|do with"
    r"|work with|go on)\b|\W|$)"
)
_WHAT_ONE_HAS = re.compile(  # "the best it has to offer": one has something, nobody must do anything
    r"\b(?:what|whatever|all|everything|anything|nothing|something|everybody|much|more|most|less|least|best|worst"
    r"|little|many|few|only|same|than|that|which|\w{3,}est)\b[^.!?;]*$",
    re.I,
)
_BEFORE = {
    phrase: re.compile(pattern, re.I)
    for phrase, pattern in {
        "can you": _ALONE,
        "thank you for": _ALONE,
        "thanks for": _ALONE,
        "have to": _DUTY,
        "has to": _DUTY,
    }.items()
}
"""Pattern of the text that must precede a phrase whose meaning depends on it."""
_NOT_BEFORE = {
    phrase: re.compile(pattern, re.I)
    for phrase, pattern in {
        "a lot of": r"\b(?:what|such|quite|rather|not|that's)\s+$",
        "lots of": r"\b(?:parking|what|the|these|those|\w+ing|in|of)\s+$",
        "a number of": r"\b(?:quite|such|what|by)\s+$",
        "i think": r"\b(?:do|did|can|could|should|what|when|where|how|who|than|as|before|now|yet|if|so)\s+$",
        "wanna": r"\b(?:an?|the|my|this|these)\s+$",
        "kinda": r"\b(?:an?|the)\s+$",
        "ok": r"(?:,|\bin|\bfrom|\bto|\bthe|\d)\s*$",
        "because of": r"\b(?:not|only|just|simply|partly)\s+$",
        "until": r"\bwait\s+$",
        "till": r"\b(?:wait|the|a|cash)\s+$",
        "at the moment": r"\b(?:only|just|exactly|precisely)\s+$",
    }.items()
}
_NOT_BEHIND = {
    phrase: re.compile(pattern, re.I)
    for phrase, pattern in {
        "have to": _NO_DUTY,
        "has to": _NO_DUTY,
        "can you": r"\s+(?:believe|imagine|say|feel|blame|hear|see|spell|guess|really|even|be|not)\b",
        "i think": r"\s+(?:of|about|like|through|over|twice|back|up|outside|so|not|it over)\b",
        "at the moment": r"\s+(?:of|when|that|i|you|we|they|he|she|it|the|an?|where|before|after)\b",
        "right now": r"\s+(?:of|is|was)\b",
        "wanna": r"\s+(?:an?|the|some|my|more|piece)\b|\W*$",
        "i'm sure": r"\s+(?:to|of)\b",
        "kind of a": r"\s+kind\b",
    }.items()
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
    """Paraphrase one phrase by rule.

    A text to which no rule applies is not applicable. Rules replace phrases ("a lot of" ↔ "lots of", "in
    order to" → "to", "can you" → "could you"), remove fillers ("Honestly, …"), and rewrite questions ("What
    is the fare?" → "Can you tell me what the fare is?").
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
    """True for a phrase outside handles and longer words, with its usual meaning."""
    before, after = text[hit.start - 1 : hit.start] if hit.start else "", text[hit.end : hit.end + 1]
    if before in _JOINING or after in _JOINING[2:]:
        return False
    lead, rest, phrase = text[: hit.start], text[hit.end :], hit.phrase
    if phrase in _BEFORE and not _BEFORE[phrase].search(lead):
        return False
    if phrase in ("have to", "has to") and _WHAT_ONE_HAS.search(lead):
        return False
    wrong = (phrase in _NOT_BEFORE and _NOT_BEFORE[phrase].search(lead)) or (
        phrase in _NOT_BEHIND and _NOT_BEHIND[phrase].match(rest)
    )
    return not wrong


def _without_filler(text: str, match: "re.Match[str]") -> str:
    return text[: match.start()] + match[1].upper() + text[match.end() :]


def _asked(match: "re.Match[str]") -> str:
    return f"Can you tell me {match['word'].lower()} {match['what']} {match['be'].lower()}?"
