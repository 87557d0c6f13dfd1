"""Difference of two texts, by word and letter, for display."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Literal, TypeAlias

Piece: TypeAlias = tuple[Literal["same", "removed", "added"], str]

_TOKENS = re.compile(r"\s+|\w+|[^\w\s]")
_CATEGORY = re.compile(r"[A-Za-z0-9_-]{1,30}")
_LONG = 2_000  # tokens, from which frequent ones no longer count as anchors
_TOO_LONG = 20_000  # tokens, from which the changed stretch is shown whole: difflib is quadratic
_WORD = 200  # letters
_ALIKE = 0.5  # share of common letters from which a word counts as altered, not as replaced


def text_diff(before: str, after: str) -> list[Piece]:
    """Pieces that are equal, removed or added, in reading order.

    Returns
    -------
    list of (str, str)
        ``same`` and ``removed`` pieces together are ``before``, ``same`` and ``added`` pieces ``after``; no
        piece is empty, and neighbours have different kinds.

    Examples
    --------
    >>> text_diff("a lovely film", "a lovley film")
    [('same', 'a lov'), ('added', 'l'), ('same', 'e'), ('removed', 'l'), ('same', 'y film')]
    >>> text_diff("not good", "good")
    [('removed', 'not '), ('same', 'good')]
    """
    if before != after and _CATEGORY.fullmatch(before) and _CATEGORY.fullmatch(after):
        return [("removed", before), ("added", after)]  # Male and Female have letters in common by chance
    old, new = _TOKENS.findall(before), _TOKENS.findall(after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle = _words(old[start : len(old) - end], new[start : len(new) - end])
    pieces = [_same(old[:start]), *middle, _same(old[len(old) - end :])]
    return list(_merged(pieces))


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Length of the common prefix."""
    for at, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return at
    return min(len(old), len(new))


def _same(tokens: Sequence[str]) -> Piece:
    return "same", "".join(tokens)


def _words(old: Sequence[str], new: Sequence[str]) -> Iterator[Piece]:
    longest = max(len(old), len(new))
    if longest > _TOO_LONG:
        yield from (("removed", "".join(old)), ("added", "".join(new)))
        return
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=longest > _LONG).get_opcodes():
        if kind == "equal":
            yield _same(old[i:j])
        elif kind == "replace":
            yield from _replaced("".join(old[i:j]), "".join(new[k:m]))
        else:
            yield "removed", "".join(old[i:j])
            yield "added", "".join(new[k:m])


def _replaced(old: str, new: str) -> Iterator[Piece]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    words = re.fullmatch(r"\w+", old) and re.fullmatch(
        r"\w+", new
    )  # letters of "doesn't" in "does not" are chance
    if not words or max(len(old), len(new)) > _WORD or matcher.ratio() < _ALIKE:
        yield from (("removed", old), ("added", new))
        return
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            yield "same", old[i:j]
        else:
            yield from (("removed", old[i:j]), ("added", new[k:m]))


def _merged(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces without empty ones; between two equal pieces removed text comes first, then added text."""
    for is_same, group in groupby((piece for piece in pieces if piece[1]), lambda piece: piece[0] == "same"):
        found = list(group)
        if is_same:
            yield _same([text for _, text in found])
            continue
        for kind in ("removed", "added"):
            if text := "".join(text for k, text in found if k == kind):
                yield kind, text
