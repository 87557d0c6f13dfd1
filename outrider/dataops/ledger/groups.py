"""Counts of answers and labels by declared group per minute.

Those of labels change as labels come, change and are withdrawn.
``record.groups`` names the groups of ``group_by`` that a record is in, as counts do, so that labels to come
find them.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from outrider.dataops.state.rows import Row

from .class_words import class_word
from .cube import Floats, distinct, summed
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
    cells: list[tuple[int, str, str, str]] = []
    weights: list[float] = []
    firsts: list[bool] = []
    classes: dict[str, str] = {}
    for at, (groups, predicted, is_other, entity, weight) in enumerate(records):
        if groups is None or predicted is None:
            continue
        if predicted not in classes:
            classes[predicted] = class_word(predicted)
        version, answer = versions[at], OTHERS if is_other else classes[predicted]
        cells.append((minutes[at], version, groups, answer))
        weights.append(weight)
        firsts.append(entity is None or is_first(minutes[at], "\0".join((version, groups, answer)), entity))
    keys, place = distinct(cells)
    stood_for = np.array(weights)
    terms = (np.ones(len(cells)), np.array(firsts, dtype=np.float64), stood_for, stood_for * stood_for)
    return [
        (model, minute, attribute, version, part, False, answer, "", False, int(n), int(first), *rest)
        for (minute, version, groups, answer), (_, (n, first, *rest)) in zip(
            keys, summed([place], terms), strict=True
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
    known, place = distinct(cells)
    terms = (sign, sign * weight, sign * weight * weight)
    return [
        (model, minute, attribute, version, part, True, answer, label, hit, int(n), 0, *rest)
        for (minute, version, groups, answer, label, hit), (_, (n, *rest)) in zip(
            known, summed([place], terms), strict=True
        )
        if groups is not None
        for attribute, part in json.loads(groups).items()
    ]
