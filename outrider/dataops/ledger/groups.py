"""Counts of answers and labels by declared group per minute.

Those of labels change as labels come, change and are withdrawn.
``record.groups`` names the groups of ``group_by`` that a record is in, as counts do, so that labels to come
find them.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.dataops.state.rows import Row

from .class_words import class_word
from .measures import Floats
from .stated_values import OTHERS


def answer_rows(
    model: str,
    records: Iterable[tuple[str | None, str | None, bool | None, str | None, float]],
    *,
    versions: Sequence[str],
    minutes: Sequence[int],
    is_first: Callable[[int, str, str], bool],
) -> list[Row]:
    """Rows of ``group_count`` for records that were judged.

    Parameters
    ----------
    records
        ``groups``, ``predicted``, ``is_other_class``, ``entity`` and weight of each; those without group or
        answer do not count.
    is_first
        Whether a minute meets, in some group with some answer, an entity for the first time.
    """
    cells: dict[tuple[int, str, str, str], int] = {}
    places: list[int] = []
    weights: list[float] = []
    owners: dict[tuple[int, str | None, int], None] = {}
    classes: dict[str, str] = {}
    for at, (groups, predicted, is_other, entity, weight) in enumerate(records):
        if groups is None or predicted is None:
            continue
        if predicted not in classes:
            classes[predicted] = class_word(predicted)
        name = OTHERS if is_other else classes[predicted]
        place = cells.setdefault((minutes[at], versions[at], groups, name), len(cells))
        places.append(place)
        weights.append(weight)
        owners[place, entity, -1 if entity is not None else at] = None
    if not cells:
        return []
    keys = list(cells)
    firsts = np.zeros(len(keys), dtype=np.int64)
    for place, entity, _ in owners:
        minute, version, groups, answer = keys[place]
        cell = "\0".join((version, groups, answer))
        firsts[place] += entity is None or is_first(minute, cell, entity)
    sums = _sums(np.array(places), np.ones(len(places)), np.array(weights), len(keys))
    return [
        (model, minute, attribute, version, part, False, answer, "", False, int(n), first, *rest)
        for (minute, version, groups, answer), first, (n, *rest) in zip(
            keys, firsts.tolist(), sums, strict=True
        )
        for attribute, part in json.loads(groups).items()
    ]


def label_rows(
    model: str,
    cells: Sequence[tuple[int, str, str | None, str, str, bool]],
    *,
    sign: Floats,
    weight: Floats,
) -> list[Row]:
    """Rows of ``group_count`` for labelled records, put on or taken off.

    Parameters
    ----------
    cells
        Minute, judged version, ``groups``, answer, label and whether these are equal, of each record.
    """
    known: dict[tuple[int, str, str | None, str, str, bool], int] = {}
    place = np.array([known.setdefault(cell, len(known)) for cell in cells], dtype=np.int64)
    return [
        (model, minute, attribute, version, part, True, answer, label, hit, int(n), 0, *rest)
        for (minute, version, groups, answer, label, hit), (n, *rest) in zip(
            known, _sums(place, sign, weight, len(known)), strict=True
        )
        if groups is not None
        for attribute, part in json.loads(groups).items()
    ]


def _sums(place: NDArray[np.int64], sign: Floats, weight: Floats, cells: int) -> list[tuple[float, ...]]:
    """Number, weights and their squares by cell."""
    terms = (sign, sign * weight, sign * weight * weight)
    return list(
        zip(*(np.bincount(place, weights=one, minlength=cells).tolist() for one in terms), strict=True)
    )
