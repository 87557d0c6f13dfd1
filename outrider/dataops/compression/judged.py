"""Verdicts of assertions and behavioral tests on variant and champion."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch
from outrider.assertions.checker import severities_of
from outrider.behavioral_tests import Outcome
from outrider.behavioral_tests.compare import compare
from outrider.behavioral_tests.comparison import Compared

log = logging.getLogger(__name__)
Fired = dict[str, NDArray[np.bool_]]
"""By assertion: on which records it fired, shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Records on which an assertion fires for one model only."""

    rate: float
    """Their share, less ``noise``, at least 0.0."""
    noise: float
    """The same share between the champion and itself in batches of another size."""
    worst: str = ""
    """Assertion that flips most often, and how often it fires for champion and variant; empty without
    flips."""


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """Behavioral tests of a variant against the champion's."""

    tests: int
    regressions: tuple[str, ...]
    """Tests that it fails more often beyond chance (McNemar, Holm over all tests), and tests that cannot be
    run on it; as ``suite: test``."""


def fired(assertions: Sequence[Assertion], answered: Batch) -> Fired:
    """Mask of fired answered records, by assertion that could judge them."""
    found: Fired = {}
    for judge in assertions:
        if judge.needs:  # LLM judges are not asked again
            continue
        try:
            found[judge.name] = severities_of(judge, answered) > 0
        except Exception as error:  # noqa: BLE001 - a user's assertion may raise anything
            log.warning("assertion %s gives no verdict: %r", judge.name, error)
    return found


def flips(champion: Fired, again: Fired, variant: Fired) -> Flips | None:
    """Flips of a variant beyond the champion's own; None without assertions."""
    if not champion:
        return None
    missing = sorted(champion.keys() - variant.keys())
    if missing:
        return Flips(1.0, 0.0, f"{missing[0]} cannot judge what it answers")
    noise = _changed(champion, {name: again.get(name, champion[name]) for name in champion})
    changed = {name: float((champion[name] != variant[name]).mean()) for name in champion}
    rate = _changed(champion, variant)
    name = max(changed, key=changed.__getitem__)
    worst = ""
    if changed[name]:
        worst = (
            f"{name} fires on {champion[name].mean():.2%} of the champion's, {variant[name].mean():.2%} here"
        )
    return Flips(max(0.0, rate - noise), noise, worst)


def _changed(one: Fired, other: Fired) -> float:
    return float(np.logical_or.reduce([one[name] != other[name] for name in one]).mean())


def suite_verdict(champion: Sequence[Outcome], variant: Sequence[Outcome]) -> SuiteVerdict | None:
    """Tests that a variant fails more often; None without tests."""
    if not champion:
        return None
    rows = compare(champion, variant).rows
    worse = [_named(row) for row in rows if row.verdict == "regression"]
    worse += [
        f"{_named(row)} (cannot be run)"
        for row in rows
        if row.challenger is not None and row.challenger.error and not (row.champion and row.champion.error)
    ]
    return SuiteVerdict(len(rows), tuple(worse))


def _named(row: Compared) -> str:
    return f"{row.suite}: {row.test}" if row.suite else row.test
