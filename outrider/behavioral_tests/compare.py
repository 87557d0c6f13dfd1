"""Comparison of two models' tests: significantly worse or better.

Each test is compared on the cases that both models were judged on (McNemar's exact test), and the p values
are adjusted for the number of tests (Holm), so that a large matrix does not raise false alarms.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from outrider.assertions import Batch, Predictor

from .asking import ask
from .comparison import Compared, Comparison, Verdict
from .examples import input_digests
from .outcome import Measure, Outcome, Ran
from .running import Declared, failed_to_run, judged
from .statistics import holm, mcnemar_p, paired_difference


def compare_models(
    tests: Iterable[Declared],
    champion: Predictor,
    challenger: Predictor,
    *,
    cases: Batch | None = None,
    seed: int = 0,
    alpha: float = 0.05,
    names: tuple[str, str] = ("champion", "challenger"),
) -> Comparison:
    """Run the same tests on two models and compare their outcomes.

    Examples are generated once per test, and each model answers them once. All cases are asked, regardless of
    ``stop``: a test that stops early has no result to compare on the rest. A test without cases is left out
    unless ``cases`` are given.

    Examples
    --------
    >>> from outrider.behavioral_tests import MFT
    >>> test = MFT(name="test_zero", cases=[{"x": float(x)} for x in range(20)], labels=0)
    >>> always = lambda batch: {"label": np.zeros(batch.rows, dtype=int)}
    >>> never = lambda batch: {"label": np.ones(batch.rows, dtype=int)}
    >>> (row,) = compare_models([test], always, never).rows
    >>> row.verdict, row.only_challenger_fails
    ('regression', 20)
    """
    outcomes: tuple[list[Outcome], list[Outcome]] = ([], [])
    for test in tests:
        if test.cases is None and cases is None:
            continue
        given = cases if test.cases is None else None
        try:
            examples = test.examples(cases=given, seed=seed)
        except Exception as error:  # noqa: BLE001 - the border of one test: cases and perturbations are user code
            for side in outcomes:
                side.append(failed_to_run(test, error))
            continue
        for side, predictor in zip(outcomes, (champion, challenger), strict=True):
            try:
                side.append(judged(test, examples.answered(ask(predictor, examples.batch))))
            except Exception as error:  # noqa: BLE001 - so are models and expectations
                side.append(failed_to_run(test, error))
    return compare(*outcomes, alpha=alpha, names=names)


def compare(
    champion: Sequence[Outcome],
    challenger: Sequence[Outcome],
    *,
    alpha: float = 0.05,
    names: tuple[str, str] = ("champion", "challenger"),
) -> Comparison:
    """Compare two models' outcomes of the same tests and seed.

    Tests are matched by suite and name, cases by their number; cases not applicable to one of the models are
    left out. A test that cannot be compared is kept, with the reason. ``alpha`` is the probability of any
    false verdict in the matrix.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
    ours, theirs = _by_test(champion), _by_test(challenger)
    rows = [
        _compared(ours.get(key), theirs.get(key), 1 - alpha)
        for key in [*ours, *(key for key in theirs if key not in ours)]
    ]
    tested = [index for index, row in enumerate(rows) if row.verdict != "not comparable"]
    for index, adjusted in zip(tested, holm([rows[index].p for index in tested]), strict=True):
        verdict = rows[index].verdict if adjusted <= alpha else "same"
        rows[index] = replace(rows[index], p_adjusted=adjusted, verdict=verdict)
    return Comparison(tuple(rows), alpha, names)


def _by_test(outcomes: Sequence[Outcome]) -> Mapping[tuple[str, str], Outcome]:
    found = {(outcome.suite, outcome.name): outcome for outcome in outcomes}
    if len(found) < len(outcomes):
        keys = [(outcome.suite, outcome.name) for outcome in outcomes]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"one outcome per test expected, got {double[1]!r} of suite {double[0]!r} twice")
    return found


def _compared(ours: Outcome | None, theirs: Outcome | None, confidence: float) -> Compared:
    known = ours or theirs
    assert known is not None
    row = Compared(known.suite, known.name, known.capability, known.kind, ours, theirs)
    if ours is None or theirs is None:
        return replace(row, reason=f"only the {'champion' if theirs is None else 'challenger'} has this test")
    if reason := _obstacle(ours, theirs):
        return replace(row, reason=reason)
    assert ours.ran is not None
    assert theirs.ran is not None
    _same_questions(ours.name, ours.ran, theirs.ran)
    if ours.judges_whole or theirs.judges_whole:
        return _by_measures(row, ours, theirs, confidence)
    one, other = ours.ran.severity, theirs.ran.severity
    both = ~np.isnan(one) & ~np.isnan(other)
    pairs = int(both.sum())
    if pairs == 0:
        return replace(row, reason="no case was applicable to both models")
    only_one = int((both & (one > 0) & (other == 0)).sum())
    only_other = int((both & (other > 0) & (one == 0)).sum())
    low, high = paired_difference(only_one, only_other, pairs, confidence=confidence)
    return replace(
        row,
        pairs=pairs,
        only_champion_fails=only_one,
        only_challenger_fails=only_other,
        difference=(only_other - only_one) / pairs,
        low=low,
        high=high,
        p=mcnemar_p(only_one, only_other),
        verdict=_direction(only_other - only_one),
    )


def _obstacle(ours: Outcome, theirs: Outcome) -> str:
    """Reason why two outcomes of one test cannot be compared; empty if they can."""
    for role, outcome in (("champion", ours), ("challenger", theirs)):
        if outcome.error:
            return f"could not be run on the {role}: {outcome.error}"
        if outcome.cases == 0:
            return f"no case was applicable to the {role}"
        if outcome.interval == "sequence":
            return f"ended early on the {role}; run it with stop='never' to compare"
        if outcome.ran is None:
            return f"the {role}'s cases were not kept (an outcome that was read from a file)"
    if ours.revision != theirs.revision:
        return "the test was changed between the two runs"
    return ""


def _same_questions(name: str, ours: Ran, theirs: Ran) -> None:
    one, other = ours.examples, theirs.examples
    if one.cases != other.cases or one.batch.rows != other.batch.rows:
        raise ValueError(
            f"{name}: the champion was asked {one.batch.rows} examples of {one.cases} cases, the challenger "
            f"{other.batch.rows} of {other.cases}; run both with the same cases and seed"
        )
    digests = input_digests(one.batch), input_digests(other.batch)
    if (one.case != other.case).any() or (digests[0] != digests[1]).any():
        row = int(np.flatnonzero((one.case != other.case) | (digests[0] != digests[1]))[0])
        raise ValueError(
            f"{name}: the two models were asked different inputs, first in case {int(one.case[row])} "
            f"({one.batch.keys[row]!r} and {other.batch.keys[row]!r}); run both with the same cases and seed"
        )


def _by_measures(row: Compared, ours: Outcome, theirs: Outcome, confidence: float) -> Compared:
    """Verdict on a whole-test rule: the figure that moved most, treated as independent samples."""
    assert ours.ran is not None
    assert theirs.ran is not None
    figures = {(each.name, each.group): each for each in ours.measures}
    pairs = [(each, figures.get((each.name, each.group))) for each in theirs.measures]
    moved = [(new, old) for new, old in pairs if old is not None and not math.isnan(new.value - old.value)]
    if not moved:
        return replace(row, reason="a verdict on the whole test without figures says nothing about chance")
    tested = [(_difference(new, old, confidence), new) for new, old in moved]
    (p, difference, low, high), measure = min(tested, key=lambda each: each[0][0])
    worse = float(theirs.ran.severity[0] - ours.ran.severity[0])
    return replace(
        row,
        pairs=min(measure.rows, figures[measure.name, measure.group].rows),
        difference=difference,
        low=low,
        high=high,
        p=min(1.0, p * len(moved)) if worse else 1.0,
        verdict=_direction(worse),
        reason=f"{measure.name}{f' of {measure.group}' if measure.group else ''}",
    )


def _difference(new: Measure, old: Measure, confidence: float) -> tuple[float, float, float, float]:
    """P value of no difference, the difference, and its interval, from two intervals.

    Zou and Donner, "Construction of confidence limits about effect measures", Statistics in Medicine 2008.
    """
    difference = new.value - old.value
    down = math.hypot(new.value - new.low, old.high - old.value)
    up = math.hypot(new.high - new.value, old.value - old.low)
    arm = down if difference > 0 else up
    z = NormalDist().inv_cdf(0.975)  # measures carry 95 % intervals
    if arm == 0:
        p = 1.0 if difference == 0 else 0.0
    else:
        p = 2 * (1 - NormalDist().cdf(abs(difference) / arm * z))
    scale = NormalDist().inv_cdf(0.5 + confidence / 2) / z
    return p, difference, difference - scale * down, difference + scale * up


def _direction(worse: float) -> Verdict:
    """Verdict on a significant difference, by its sign."""
    if worse == 0:
        return "same"
    return "regression" if worse > 0 else "improvement"
