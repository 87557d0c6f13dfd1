"""Configured behavioral tests of a model, on one or two versions."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from outrider.assertions import Batch, Predictor
from outrider.behavioral_tests import Outcome, Suite
from outrider.behavioral_tests.compare import compare_models
from outrider.behavioral_tests.comparison import Comparison
from outrider.behavioral_tests.runner import find_suites
from outrider.behavioral_tests.suite import BehavioralTest
from outrider.dataops.improvement.gate import SIGNIFICANCE
from outrider.monitor.settings.config import Settings


def model_suites(settings: Settings, model: str) -> list[Suite]:
    """Configured suites of a model, and that of its incidents.

    Raises
    ------
    ConfigError
        If one does not exist or cannot be loaded, or two tests could not be told apart.
    """
    return find_suites(settings.behavior_files(model))


def compare_all(
    suites: Sequence[Suite],
    champion: Predictor,
    candidate: Predictor,
    *,
    cases: Batch | None,
    seed: int,
    pause: Callable[[], None],
) -> Comparison:
    """Comparison on all tests' cases, without examples on held-out ``cases``; ``pause`` before each
    test may raise."""

    def tests() -> Iterator[BehavioralTest]:
        for suite in suites:
            for test in suite.tests:
                pause()
                yield test

    found = compare_models(tests(), champion, candidate, cases=cases, seed=seed, alpha=SIGNIFICANCE)
    hidden = on_held_out(suites)
    rows = [
        replace(
            row,
            champion=row.champion and without_rows(row.champion, hidden),
            challenger=row.challenger and without_rows(row.challenger, hidden),
        )
        for row in found.rows
    ]
    return replace(found, rows=tuple(rows))


def on_held_out(suites: Sequence[Suite]) -> frozenset[tuple[str, str]]:
    """Suite and name of tests without cases of their own, which run on held-out rows."""
    return frozenset(
        (test.suite, test.name) for suite in suites for test in suite.tests if test.cases is None
    )


def without_rows(outcome: Outcome, hidden: Collection[tuple[str, str]]) -> Outcome:
    """Outcome without examples where its test is hidden: a reader could train on them, and they judge
    the next candidate."""
    return replace(outcome, examples=()) if (outcome.suite, outcome.name) in hidden else outcome
