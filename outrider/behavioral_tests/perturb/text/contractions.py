"""Contractions: "is not" and "isn't"."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import like, mapped

_VERBS = ["is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "would", "could", "should"]
_EXPANSIONS = {
    "can't": "cannot",
    "won't": "will not",
    "shan't": "shall not",
    **{f"{verb}n't": f"{verb} not" for verb in _VERBS},
    **{f"{pronoun}'re": f"{pronoun} are" for pronoun in ("you", "we", "they")},
    **{f"{pronoun}'ve": f"{pronoun} have" for pronoun in ("i", "you", "we", "they")},
    **{f"{pronoun}'ll": f"{pronoun} will" for pronoun in ("i", "you", "he", "she", "it", "we", "they")},
    "i'm": "i am",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "what's": "what is",
    "he's": "he is",
    "she's": "she is",
}
_CONTRACTIONS = {long: short for short, long in _EXPANSIONS.items()}
_SHORT = re.compile(r"\b[a-z]+'[a-z]+\b(?=( \w+)?)", re.IGNORECASE)
_LONG = re.compile(r"\b(?:cannot|([a-z]+)(?= (not|am|is|are|have|will)(?!\w)( \w+)?))", re.IGNORECASE)
_PRONOUNS = frozenset({" i", " you", " he", " she", " it", " we", " they"})
_HAD = frozenset({" been", " got", " had"})


def contractions(name: str = "text") -> Perturbation:
    """Expand contractions ("isn't" → "is not").

    A text without contractions is contracted. Forms that would be wrong English are unchanged: "isn't it",
    "it's been", "yes, I am", "I have to".
    """
    return mapped(name, _recontract)


def _recontract(text: str) -> str:
    expanded = _SHORT.sub(_expanded, text) if "'" in text else text
    return _contracted(text) if expanded == text else expanded


def _expanded(match: "re.Match[str]") -> str:
    word, following_word = match[0].lower(), (match[1] or "").lower()
    unsure = (word.endswith("n't") and following_word in _PRONOUNS) or (
        word.endswith("'s") and following_word in _HAD
    )
    return match[0] if unsure or word not in _EXPANSIONS else like(match[0], _EXPANSIONS[word])


def _contracted(text: str) -> str:
    parts, free = [], 0
    for match in _LONG.finditer(text):
        end = match.end(2) if match[2] else match.end()
        long = text[match.start() : end]
        short = _CONTRACTIONS.get(long.lower())
        if match.start() >= free and short and _reads_well(match[2], match[3]):
            parts += [text[free : match.start()], like(long, short)]
            free = end
    return "".join([*parts, text[free:]])


def _reads_well(verb: str | None, following_word: str | None) -> bool:
    """True if a pair may be contracted: "I am" only before a word, "I have" only before a participle."""
    if verb is None or verb.lower() == "not":
        return True
    if following_word is None:
        return False
    following = following_word.strip().lower()
    return verb.lower() != "have" or following in ("been", "had", "got", "seen") or following.endswith("ed")
