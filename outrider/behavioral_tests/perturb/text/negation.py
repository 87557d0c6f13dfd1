"""Negation by rules on auxiliaries and common verbs.

A sentence without an unambiguous rule is not applicable. CheckList's ``add_negation`` and ``remove_negation``
do this on a parse tree. Here a rule must recognise subject and verb at the beginning of a sentence by their
words, so fewer texts can be changed; ``docs/perturbations.md`` has the numbers, and the share of results that
are correct English.
"""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import like, mapped
from .word_lists import rows

_LISTED = {base: forms for base, *forms in rows("verbs")}
_IRREGULAR_THIRD = {"do": "does", "go": "goes", "have": "has"}
_DOUBLED = frozenset({"stop", "plan", "permit", "regret"})
_VOWELS = frozenset("aeiou")


def _third_person(verb: str) -> str:
    """Third person singular of a verb.

    Examples
    --------
    >>> _third_person("try"), _third_person("miss"), _third_person("have")
    ('tries', 'misses', 'has')
    """
    if verb in _IRREGULAR_THIRD:
        return _IRREGULAR_THIRD[verb]
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{verb}s"


def _past(verb: str) -> str:
    """Simple past.

    Examples
    --------
    >>> _past("try"), _past("stop"), _past("love"), _past("go")
    ('tried', 'stopped', 'loved', 'went')
    """
    if _LISTED.get(verb):
        return _LISTED[verb][0]
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return f"{verb[:-1]}ied"
    return f"{verb}{verb[-1]}ed" if verb in _DOUBLED else f"{verb}ed"


_BASES: frozenset[str] = frozenset(_LISTED)
_BY_THIRD: dict[str, str] = {_third_person(verb): verb for verb in _BASES}
_BY_PAST: dict[str, str] = {_past(verb): verb for verb in _BASES}
_PARTICIPLES: frozenset[str] = frozenset(
    {
        *(word for word in _BY_PAST if word.endswith(("ed", "t", "ept", "aid", "eard")) and word != "went"),
        *("been", "begun", "bought", "broken", "chosen", "done", "driven", "eaten", "fallen", "flown"),
        *("forgotten", "given", "gone", "got", "gotten", "grown", "had", "known", "made", "put", "seen"),
        *("sent", "set", "shown", "spoken", "taken", "told", "understood", "won", "written"),
    }
)
_MODALS = {
    "can": "can't", "could": "couldn't", "will": "won't", "would": "wouldn't", "should": "shouldn't",
    "must": "must not", "may": "may not", "might": "might not", "'ll": " won't", "'d": " wouldn't",
}  # fmt: skip
_BE = frozenset({"am", "is", "are", "was", "were", "'m", "'s", "'re"})
_HAVE = {"have": "have not", "has": "has not", "had": "had not", "'ve": " have not"}
_LEAD = r"(?:(?:@\w+[ ,:]+)+|(?:and|but|so|well|wow|yes|ok|okay|sorry|also|honestly),? )?"
_SUBJECT = (
    r"(?P<subject>(?P<plural>i|you|we|they|these|those)|(?P<single>he|she|it|this|that)"
    r"|there|everyone|everybody|everything"
    r"|(?P<noun>(?:the|my|your|our|his|her|their|this|that)(?: [a-z-]{3,}){1,2}?))"
)
_START = re.compile(
    rf"^(?P<lead>\W*{_LEAD}){_SUBJECT} ?(?P<verb>'m|'s|'re|'ll|'d|'ve|(?<= )[a-z]+)(?P<rest>(?:[ ,.!].*)?)$",
    re.IGNORECASE | re.DOTALL,
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")
_HANGS_ON_IT = re.compile(  # denied already, or with words that would have to change along
    r"\b(?:not|never|no|none|nobody|nothing|neither|nor|hardly|barely|without|cannot|yet|already|still|too|some"
    r"|something|somewhere|just|only|always|both|ever|any)\b|n't\b",
    re.IGNORECASE,
)
_PREPOSITIONS = frozenset({"in", "on", "at", "for", "from", "of", "with"})
_LOOSE = _PREPOSITIONS | {"who", "which", "that", "whose", "and", "or", "to", "by", "than", "as", "but"}
_NOT_IN_SUBJECT = _LOOSE | _BASES | _BY_THIRD.keys() | _BY_PAST.keys() | _BE | _MODALS.keys()


def add_negation(name: str = "text") -> Perturbation:
    """Negate the first sentence that a rule matches.

    "It was good" becomes "It was not good". Questions, negated sentences, and sentences with words that would
    also have to change ("already", "some") are not changed.
    """
    return mapped(name, _denied_text)


def _denied_text(text: str) -> str:
    for match in _SENTENCE.finditer(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")):
        sentence = match[0]
        if "?" in sentence or len(sentence.split()) < 3 or _HANGS_ON_IT.search(sentence):
            continue
        denied = _denied(sentence)
        if denied is not None:
            return text[: match.start()] + denied + text[match.end() :]
    return text


def _denied(sentence: str) -> str | None:
    """Negated sentence; None if no rule is certain."""
    found = _START.match(sentence)
    if found is None or not _NOT_IN_SUBJECT.isdisjoint(found["subject"].lower().split()[1:]):
        return None
    verb, rest = found["verb"], found["rest"]
    following = (rest.split() or [""])[0].strip(",.!").lower()
    negated = _negated(found, verb.lower(), following)
    if negated is None:
        return None
    head = sentence[: found.start("verb")]
    if negated.startswith(" "):  # "I'll" becomes "I won't", and so does "i 'll"
        head = head.rstrip()
    return head + (like(verb, negated) if verb.isalpha() else negated) + rest


def _negated(found: "re.Match[str]", verb: str, following: str) -> str | None:
    """Verb and negation in the negated sentence; None if no rule is certain."""
    if verb in _BE:
        possessive = verb == "'s" and found["noun"]  # "the son's room"
        unsure = possessive or not following or following in _LOOSE - _PREPOSITIONS
        return None if unsure else f"{verb} not"
    if verb in _MODALS:
        return _MODALS[verb] if following in _BASES or following == "be" else None
    if verb in _HAVE and following in _PARTICIPLES:
        return _HAVE[verb]
    if verb in ("do", "does", "did"):
        return f"{verb} not" if following in _BASES else None
    return _with_auxiliary(found, verb)


def _with_auxiliary(found: "re.Match[str]", verb: str) -> str | None:
    """Negation of a full verb by a form of "do"; None if no rule is certain."""
    if found["plural"] and verb in _BASES and verb not in ("do", "thank", "use"):
        return f"don't {verb}"
    if (found["single"] or found["noun"]) and verb in _BY_THIRD:
        return f"doesn't {_BY_THIRD[verb]}"
    demonstrative = found["subject"].lower() in ("this", "that", "these", "those")  # "this delayed bag"
    return f"didn't {_BY_PAST[verb]}" if verb in _BY_PAST and not demonstrative else None


_NOT = re.compile(
    r"\b(?P<verb>am|is|are|was|were|has|have|had|can|could|will|would|should|must|may|might|do|does|did|"
    r"ca|wo|sha)(?: not\b| ?n't\b|not\b)(?P<then>\s+(?P<next>[a-z]+))?"
    r"|(?P<short>'(?:m|s|re|ve|ll|d)) not\b",
    re.IGNORECASE,
)
_ANY_NOT = re.compile(
    r"\b(?:not|never|no|none|nobody|nothing|neither|nor|cannot|without)\b|n't\b", re.IGNORECASE
)
_UNSURE = re.compile(
    r"(?:\b(?:can)?not|n't) (?:only|just|even|to|until|so|as|that|because|be|too|wait|help but"
    r"|nearly|exactly)\b"
    r"|\b(?:or|if|why|whether|and|but) not\b|(?:\bnot|n't)\s*(?:[.,!?;:]|$)"
    r"|\b(?:any|anymore|anyone|anybody|anything|anywhere|at all|yet|ever|either|bother|until"
    r"|nor|still|much|once)\b",
    re.IGNORECASE,
)
_WHOLE = {"ca": "can", "wo": "will", "sha": "shall"}
_PRONOUNS = frozenset({"i", "you", "he", "she", "it", "we", "they", "this", "that", "there"})


def remove_negation(name: str = "text") -> Perturbation:
    """Remove all "not" and "n't".

    "It isn't bad, I don't mind" becomes "It is bad, I mind". If another word depends on the negation ("any",
    "yet", "at all", "not only"), or the negation is not of a verb ("no", "never"), the whole text is not
    changed.
    """
    return mapped(name, _affirmed_text)


def _affirmed_text(text: str) -> str:
    plain = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    lower = plain.lower()
    if "n't" not in lower and "not" not in lower:  # most texts
        return text
    found = list(_NOT.finditer(plain))
    if not found or _UNSURE.search(plain) or len(found) != len(_ANY_NOT.findall(plain)):
        return text
    parts = [_affirmed(match) for match in found]
    if None in parts:
        return text
    left = iter(parts)
    return _NOT.sub(lambda _: str(next(left)), plain)


def _affirmed(match: "re.Match[str]") -> str | None:
    """Verb without its "not"; None if no rule is certain."""
    if match["short"]:
        return match["short"]
    verb, following = match["verb"].lower(), (match["next"] or "").lower()
    model = match[0].removesuffix(match["then"] or "")
    if verb not in ("do", "does", "did") or following in _PRONOUNS:
        return like(model, _WHOLE.get(verb, verb)) + (match["then"] or "")
    if following not in _BASES:
        return None
    form = {"do": following, "does": _third_person(following), "did": _past(following)}[verb]
    return like(model, form)
