"""Outcome of one test over its cases.

Counts, rate with interval, and the worst examples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ServerError

from .case_values import describe, keep
from .examples import Examples

Kind = Literal["MFT", "INV", "DIR"]
Status = Literal["passed", "failed", "skipped", "error"]
Interval = Literal["wilson", "sequence"]
EXAMPLES = 10
_SHOWN = ("inputs.", "outputs.", "label.")
UNANSWERED = f"{ServerError.__name__}: "
"""Prefix of the error of a test whose model gave no answer."""


@dataclass(frozen=True, slots=True)
class Example:
    """One failed case: input, answer and severity."""

    id: str
    severity: float
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    original_inputs: Mapping[str, Any] | None = None
    original_outputs: Mapping[str, Any] | None = None
    label: Mapping[str, Any] | None = None
    case: int = 0
    """Number of the case within the test."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Figure of a whole-test verdict with its interval.

    For example one group's rate. ``value`` is NaN without data; ``low`` and ``high`` are always finite.
    """

    name: str
    value: float
    low: float
    high: float
    rows: int
    group: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(
                f"{self.name}: an interval of two numbers expected, got {self.low} to {self.high}"
            )


@dataclass(frozen=True, slots=True)
class Measured:
    """Whole-test verdict with figures. ``severity`` is a float, or True for met."""

    severity: bool | float
    measures: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.severity, bool | np.bool_):
            object.__setattr__(self, "severity", 0.0 if self.severity else 1.0)


@dataclass(frozen=True, slots=True)
class Ran:
    """Asked examples, and severities of shape (cases,), NaN if not applicable."""

    examples: Examples
    severity: NDArray[np.float64]
    number: NDArray[np.intp] | None = None
    """Number of each case within the test, shape (cases,); None if all cases were asked."""

    @property
    def numbers(self) -> NDArray[np.intp]:
        """Number within the test of each case, shape (cases,)."""
        return np.arange(self.examples.cases) if self.number is None else self.number

    @property
    def failed(self) -> NDArray[np.intp]:
        """Numbers of the failed cases."""
        return np.flatnonzero(self.severity > 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one behavioral test of one model.

    ``cases`` counts the judged ones only; ``rate`` is ``failures / cases`` (0.0 without cases), ``low`` and
    ``high`` its interval at ``confidence``: Wilson's, or that of a confidence sequence if the test stopped
    early, which bounds the rate over all cases of the test (:func:`.statistics.rate_bounds`). A test passes
    if the rate is at most ``tolerance``. If no case could be judged it is ``skipped``, which is not a pass;
    if model, perturbation or expectation raised, it has an ``error``.
    """

    name: str
    kind: Kind
    capability: str
    description: str
    cases: int
    failures: int
    not_applicable: int
    tolerance: float
    rate: float
    low: float
    high: float
    examples: tuple[Example, ...]
    suite: str = ""
    """Stem of the test's file name."""
    revision: str = ""
    asked: int = 0
    """Number of examples that the model was asked about."""
    planned: int = 0
    """Number of cases of the test; more than were judged if it stopped early."""
    interval: Interval = "wilson"
    confidence: float = 0.95
    """Confidence of the interval, and of a verdict given early."""
    measures: tuple[Measure, ...] = ()
    error: str = ""
    ran: Ran | None = field(default=None, repr=False, compare=False)
    """All cases with their answers; not serialized."""

    @property
    def is_unanswered(self) -> bool:
        """True if the test failed to run for lack of answers."""
        return self.error.startswith(UNANSWERED)

    @property
    def status(self) -> Status:
        """Status: ``passed``, ``failed``, ``skipped`` (no case could be judged), or ``error``."""
        if self.error:
            return "error"
        if self.cases == 0:
            return "skipped"
        return "passed" if self.rate <= self.tolerance else "failed"

    @property
    def judges_whole(self) -> bool:
        """True if the whole test has one verdict, not one per case."""
        return bool(self.measures) or (
            self.ran is not None and len(self.ran.severity) != self.ran.examples.cases
        )

    @property
    def passed(self) -> bool:
        """True if a case was judged and the failure rate is tolerated."""
        return self.status == "passed"

    @property
    def message(self) -> str:
        """One sentence with the figures."""
        where = f"{self.name} ({self.kind}, {self.capability})"
        if self.error:
            return f"{where}: {self.error}"
        if self.cases == 0:
            return f"{self.name}: no case was applicable ({self.not_applicable} tried)"
        if self.measures:
            figures = ", ".join(
                f"{f'{each.group} ' if each.group else ''}{each.name} {each.value:.3f} "
                f"[{each.low:.3f}, {each.high:.3f}]"
                for each in self.measures
            )
            return f"{where}: {'failed' if self.failures else 'passed'}; {figures}"
        early = f", decided after {self.cases} of {self.planned}" if self.interval == "sequence" else ""
        return (
            f"{where}: {self.failures} of {self.cases} cases failed, "
            f"{self.rate:.1%} ({100 * self.confidence:.3g} % interval {self.low:.1%} to {self.high:.1%}"
            f"{early}); "
            f"at most {self.tolerance:.1%} allowed"
        )

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "ran"}
        return plain | {
            "examples": [_plain(example) for example in self.examples],
            "measures": [_plain(measure) | {"value": _or_none(measure.value)} for measure in self.measures],
            "status": self.status,
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Outcome":
        """Inverse of :meth:`to_dict`."""
        kept = {name: value for name, value in values.items() if name not in ("status", "passed")}
        return cls(
            **kept
            | {
                "examples": tuple(Example(**each) for each in values["examples"]),
                "measures": tuple(
                    Measure(**each | {"value": np.nan if each["value"] is None else each["value"]})
                    for each in values.get("measures", ())
                ),
            }
        )


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has neither NaN nor infinities


def _plain(value: Example | Measure) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def worst_examples(
    examples: Examples,
    severity: NDArray[np.float64],
    worst: NDArray[np.intp],
    *,
    numbers: NDArray[np.intp] | None = None,
) -> tuple[Example, ...]:
    """Failed cases with the largest severity, each by its worst row.

    Parameters
    ----------
    examples
        Examples with answers.
    severity, worst
        Severity of each case, and its row to show, shape (cases,).
    numbers
        Number of each case within the test, if it differs from the position here.
    """
    failed = np.flatnonzero((severity > 0) & (worst >= 0))
    failed = failed[np.argsort(-severity[failed], kind="stable")][:EXAMPLES]
    shown = failed if numbers is None else numbers[failed]
    rows = worst[failed]
    names = [name for name in examples.batch.names if name == "id" or name.startswith(_SHOWN)]
    batch = Batch(examples.batch.to_arrow().select(names), model=examples.batch.model)
    if examples.original is None:
        was = now = batch.take(rows).to_records()
    else:
        both = batch.take(np.concatenate([rows, examples.original[failed]])).to_records()
        now, was = both[: len(rows)], both[len(rows) :]
    return tuple(
        _example(int(number), float(severity[case]), old, new, has_original=examples.original is not None)
        for case, number, old, new in zip(failed, shown, was, now, strict=True)
    )


def _example(
    case: int, severity: float, was: Mapping[str, Any], now: Mapping[str, Any], *, has_original: bool
) -> Example:
    inputs = now.get("inputs", {})
    label = was.get("label")
    before, after = keep(was.get("inputs", {}) if has_original else inputs, inputs)
    return Example(
        id=was["id"],
        severity=severity,
        inputs=after,
        outputs=describe(now.get("outputs", {})),
        original_inputs=before if has_original else None,
        original_outputs=describe(was.get("outputs", {})) if has_original else None,
        label=None if label is None else describe(label),
        case=case,
    )
