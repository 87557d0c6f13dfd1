"""Forms of common English verbs: base, third person, past."""

from .word_lists import rows

_LISTED = {base: forms for base, *forms in rows("verbs")}
_IRREGULAR_THIRD = {"do": "does", "go": "goes", "have": "has"}
_DOUBLED = frozenset({"stop", "plan", "permit", "regret"})
_VOWELS = frozenset("aeiou")


def third_person(verb: str) -> str:
    """Third person singular of a verb.

    Examples
    --------
    >>> third_person("try"), third_person("miss"), third_person("have")
    ('tries', 'misses', 'has')
    """
    if verb in _IRREGULAR_THIRD:
        return _IRREGULAR_THIRD[verb]
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{verb}s"


def past(verb: str) -> str:
    """Simple past.

    Examples
    --------
    >>> past("try"), past("stop"), past("love"), past("go")
    ('tried', 'stopped', 'loved', 'went')
    """
    if _LISTED.get(verb):
        return _LISTED[verb][0]
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return f"{verb[:-1]}ied"
    return f"{verb}{verb[-1]}ed" if verb in _DOUBLED else f"{verb}ed"


BASES: frozenset[str] = frozenset(_LISTED)
BY_THIRD: dict[str, str] = {third_person(verb): verb for verb in BASES}
BY_PAST: dict[str, str] = {past(verb): verb for verb in BASES}
PARTICIPLES: frozenset[str] = frozenset(
    {
        *(word for word in BY_PAST if word.endswith(("ed", "t", "ept", "aid", "eard")) and word != "went"),
        *("been", "begun", "bought", "broken", "chosen", "done", "driven", "eaten", "fallen", "flown"),
        *("forgotten", "given", "gone", "got", "gotten", "grown", "had", "known", "made", "put", "seen"),
        *("sent", "set", "shown", "spoken", "taken", "told", "understood", "won", "written"),
    }
)
