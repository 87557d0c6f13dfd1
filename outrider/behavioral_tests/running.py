"""Runs one test against one model: examples, answers, verdicts, outcome."""

import logging
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from outrider.assertions import Batch, Predictor

from .asking import ask
from .examples import Examples
from .expect import Expectation
from .judging import Aggregate, Verdicts, judge
from .outcome import Kind, Outcome, Ran, worst_examples
from .statistics import wilson_interval

Stop = Literal["never", "decided"]
_LOG = logging.getLogger(__name__)


class Declared(Protocol):
    """What MFT, INV and DIR have in common."""

    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def capability(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102
    @property
    def expect(self) -> Expectation: ...  # noqa: D102
    @property
    def aggregate(self) -> Aggregate: ...  # noqa: D102
    @property
    def stop(self) -> Stop: ...  # noqa: D102
    @property
    def confidence(self) -> float: ...  # noqa: D102
    @property
    def folder(self) -> Path | None: ...  # noqa: D102
    @property
    def suite(self) -> str: ...  # noqa: D102
    @property
    def revision(self) -> str: ...  # noqa: D102

    def examples(self, *, cases: Batch | None = None, seed: int = 0) -> Examples:
        """What is asked."""


def check_rates(**rates: float) -> None:
    """Raise a ValueError for a rate outside [0, 1]."""
    for name, value in rates.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is a rate in [0, 1], got {value}")


def run(test: Declared, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
    """Outcome of one test; what the model, the perturbation or the expectation raises goes through."""
    examples = test.examples(cases=cases, seed=seed)
    answered = examples.answered(ask(predictor, examples.batch))
    return outcome_of(test, answered, judge(answered, test.expect, test.aggregate))


def run_safely(test: Declared, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
    """Outcome of one test; what raises makes an outcome with an ``error``, so that other tests still run."""
    try:
        return run(test, predictor, cases=cases, seed=seed)
    except Exception as error:  # noqa: BLE001 - the border of one test: its model and functions are somebody's code
        _LOG.exception("%s could not be run", test.name)
        return failed_to_run(test, error)


def outcome_of(test: Declared, answered: Examples, verdicts: Verdicts) -> Outcome:
    """Outcome of the verdicts on answered examples."""
    severity = verdicts.severity
    judged = int((~np.isnan(severity)).sum())
    failures = int((severity > 0).sum())
    low, high = wilson_interval(failures, judged)
    return Outcome(
        name=test.name,
        kind=test.kind,
        capability=test.capability,
        description=test.description,
        cases=judged,
        failures=failures,
        not_applicable=answered.skipped + len(severity) - judged,
        tolerance=test.tolerance,
        rate=failures / judged if judged else 0.0,
        low=low,
        high=high,
        examples=worst_examples(answered, severity, verdicts.worst),
        suite=test.suite,
        revision=test.revision,
        asked=answered.batch.rows,
        planned=answered.cases,
        measures=verdicts.measures,
        ran=Ran(answered, severity),
    )


def failed_to_run(test: Declared, error: Exception) -> Outcome:
    """Outcome of a test that could not be run."""
    told = f"{type(error).__name__}: {error}"
    return Outcome(
        name=test.name, kind=test.kind, capability=test.capability, description=test.description,
        cases=0, failures=0, not_applicable=0, tolerance=test.tolerance, rate=0.0, low=0.0, high=1.0,
        examples=(), suite=test.suite, revision=test.revision, error=told,
    )  # fmt: skip
