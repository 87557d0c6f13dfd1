"""Configured behavioral tests of a model, on one or two versions."""

from collections.abc import Callable, Iterator, Sequence

from outrider.assertions import Batch, Predictor
from outrider.behavioral_tests import Suite
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
    """Comparison on all tests' cases; ``pause`` before each may raise."""

    def tests() -> Iterator[BehavioralTest]:
        for suite in suites:
            for test in suite.tests:
                pause()
                yield test

    return compare_models(tests(), champion, candidate, cases=cases, seed=seed, alpha=SIGNIFICANCE)
