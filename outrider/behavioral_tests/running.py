"""Run of one test on one model: examples, answers, verdicts, outcome."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor

from .asking import answers_to, ask, joined
from .cases import CasesLike
from .examples import Examples
from .expect import Expectation
from .expect.rule import scope_of
from .judging import Aggregate, Verdicts, judge
from .outcome import Interval, Kind, Outcome, Ran, worst_examples
from .sampling import generator
from .statistics import decided, rate_bounds, wilson_interval

Stop = Literal["never", "decided"]
FIRST_CASES = 64  # of a test that may end early: enough to fill a batch, few enough to end soon
_LOG = logging.getLogger(__name__)


class Declared(Protocol):
    """Fields and methods shared by MFT, INV and DIR."""

    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def capability(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def cases(self) -> "CasesLike | None": ...  # noqa: D102
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
        """Examples to ask."""


def check_rates(**rates: float) -> None:
    """Raise ValueError for a rate outside [0, 1]."""
    for name, value in rates.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is a rate in [0, 1], got {value}")


def check_aggregate(aggregate: Aggregate) -> None:
    """Raise ValueError for an unknown aggregation."""
    if not callable(aggregate) and aggregate not in ("all", "all_except_first", "any", "mean"):
        raise ValueError(
            "aggregate must be all, all_except_first, any, mean or a function of severities, "
            f"got {aggregate!r}"
        )


def check_stop(stop: Stop, expect: Expectation) -> None:
    """Raise ValueError for a test that cannot stop early."""
    if stop not in get_args(Stop):
        raise ValueError(f"stop must be one of {', '.join(get_args(Stop))}, got {stop!r}")
    if stop == "decided" and scope_of(expect) == "suite":
        raise ValueError(
            "stop='decided' needs an expectation of rows or cases; one of the whole test judges all its "
            "examples together, so it cannot end before they are asked"
        )


def run(test: Declared, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
    """Outcome of one test. Errors of the model, the perturbation or the expectation are raised."""
    examples = test.examples(cases=cases, seed=seed)
    if test.stop == "decided":
        return run_until_decided(test, predictor, examples, seed=seed)
    return judged(test, examples.answered(ask(predictor, examples.batch)))


def judged(test: Declared, answered: Examples) -> Outcome:
    """Outcome of a test from all its examples with answers."""
    return outcome_of(test, answered, judge(answered, test.expect, test.aggregate))


def run_until_decided(test: Declared, predictor: Predictor, examples: Examples, *, seed: int = 0) -> Outcome:
    """Outcome of a test that stops once its verdict is certain.

    The verdict is that on all its cases, at its confidence. Cases are asked in an order that depends on the
    seed and the test's name, in blocks that grow by half, so that the model gets batches and at most a third
    of the questions are unnecessary.
    """
    order = generator(seed, test.name, "order").permutation(examples.cases)
    answers: list[dict[str, NDArray[Any]]] = []
    asked = judged = failures = 0
    verdict: bool | None = None
    while asked < examples.cases and verdict is None:
        block = examples.take(order[asked : asked + max(FIRST_CASES, asked // 2)])
        answers.append(answers_to(predictor, block.batch))
        severity = judge(
            block.answered(block.batch.with_outputs(answers[-1])), test.expect, test.aggregate
        ).severity
        asked += block.cases
        judged += int((~np.isnan(severity)).sum())
        failures += int((severity > 0).sum())
        if judged:  # without, the test would be skipped, however certain the verdict
            possible = examples.cases - (asked - judged)
            verdict = decided(
                failures, judged, possible, tolerance=test.tolerance, confidence=test.confidence
            )
    seen = replace(examples.take(order[:asked]), skipped=examples.skipped)
    answered = seen.answered(seen.batch.with_outputs(joined(answers)))
    return outcome_of(
        test,
        answered,
        judge(answered, test.expect, test.aggregate),
        planned=examples.cases,
        numbers=order[:asked],
    )


def run_safely(test: Declared, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
    """Outcome of one test. Exceptions become its ``error``."""
    try:
        return run(test, predictor, cases=cases, seed=seed)
    except Exception as error:  # noqa: BLE001 - the border of one test: its model and functions are user code
        _LOG.exception("%s could not be run", test.name)
        return failed_to_run(test, error)


def run_tests(
    tests: Iterable[Declared], predictor: Predictor, *, cases: Batch | None = None, seed: int = 0
) -> list[Outcome]:
    """Outcomes of tests with cases of their own, or ``cases``."""
    return [
        run_safely(test, predictor, cases=cases if test.cases is None else None, seed=seed)
        for test in tests
        if test.cases is not None or cases is not None
    ]


def outcome_of(
    test: Declared,
    answered: Examples,
    verdicts: Verdicts,
    *,
    planned: int | None = None,
    numbers: NDArray[np.intp] | None = None,
) -> Outcome:
    """Outcome from the verdicts on answered examples.

    ``planned`` is the number of cases of the test; ``numbers`` are the asked ones, default all.
    """
    severity = verdicts.severity
    judged = int((~np.isnan(severity)).sum())
    failures = int((severity > 0).sum())
    planned = answered.cases if planned is None else planned
    low, high = wilson_interval(failures, judged, confidence=test.confidence)
    interval: Interval = "wilson"
    if answered.cases < planned:
        possible = planned - (answered.cases - judged)
        low, high = rate_bounds(
            failures, judged, possible, tolerance=test.tolerance, confidence=test.confidence
        )
        interval = "sequence"
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
        examples=worst_examples(answered, severity, verdicts.worst, numbers=numbers),
        suite=test.suite,
        revision=test.revision,
        asked=answered.batch.rows,
        planned=planned,
        interval=interval,
        confidence=test.confidence,
        measures=verdicts.measures,
        ran=Ran(answered, severity, numbers),
    )


def failed_to_run(test: Declared, error: BaseException) -> Outcome:
    """Outcome of a test that raised."""
    return Outcome(
        name=test.name, kind=test.kind, capability=test.capability, description=test.description,
        cases=0, failures=0, not_applicable=0, tolerance=test.tolerance, rate=0.0, low=0.0, high=1.0,
        examples=(), suite=test.suite, revision=test.revision, error=f"{type(error).__name__}: {error}",
    )  # fmt: skip
