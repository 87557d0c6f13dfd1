"""The result of one test over its cases: counts, rate with interval, and the worst examples."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .statistics import wilson_interval

Kind = Literal["MFT", "INV", "DIR"]
Status = Literal["passed", "failed", "skipped"]
EXAMPLES = 10
_LONGEST_TENSOR = 256


@dataclass(frozen=True, slots=True)
class Example:
    """One failed case: what was asked, what came, and how badly it failed."""

    id: str
    severity: float
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    original_inputs: Mapping[str, Any] | None = None
    original_outputs: Mapping[str, Any] | None = None
    label: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one behavioral test found out about one model.

    ``cases`` counts the judged ones only; ``rate`` is ``failures / cases`` (0.0 without cases), ``low`` and
    ``high`` its 95 % Wilson interval. A test passes when the rate is at most ``tolerance``; one that could
    judge no case at all is ``skipped``, which is not a pass.
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

    @property
    def status(self) -> Status:
        """``passed``, ``failed``, or ``skipped`` when no case could be judged."""
        if self.cases == 0:
            return "skipped"
        return "passed" if self.rate <= self.tolerance else "failed"

    @property
    def passed(self) -> bool:
        """Whether at least one case was judged and the failure rate is within the tolerance."""
        return self.status == "passed"

    @property
    def message(self) -> str:
        """One sentence with the figures."""
        if self.cases == 0:
            return f"{self.name}: no case was applicable ({self.not_applicable} tried)"
        return (
            f"{self.name} ({self.kind}, {self.capability}): {self.failures} of {self.cases} cases failed, "
            f"{self.rate:.1%} (95 % interval {self.low:.1%} to {self.high:.1%}); "
            f"at most {self.tolerance:.1%} allowed"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        return asdict(self) | {
            "examples": [asdict(example) for example in self.examples],
            "status": self.status,
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Outcome":
        """Read what :meth:`to_dict` wrote."""
        kept = {name: value for name, value in values.items() if name not in ("status", "passed")}
        return cls(**kept | {"examples": tuple(Example(**each) for each in values["examples"])})


def summarise(
    *,
    name: str,
    kind: Kind,
    capability: str,
    description: str,
    tolerance: float,
    severities: NDArray[np.float64],
    skipped: int,
    before: Batch,
    after: Batch,
) -> Outcome:
    """Outcome of the severities of a test's cases.

    Parameters
    ----------
    severities
        Shape (rows,): 0.0 met, above violated, NaN not applicable.
    skipped
        Cases that were not applicable before the model was asked.
    before, after
        The cases and the answers under test, aligned with ``severities``.
    """
    failed = severities > 0
    judged = int((~np.isnan(severities)).sum())
    failures = int(failed.sum())
    low, high = wilson_interval(failures, judged)
    worst = np.flatnonzero(failed)
    worst = worst[np.argsort(-severities[worst], kind="stable")][:EXAMPLES]
    return Outcome(
        name=name,
        kind=kind,
        capability=capability,
        description=description,
        cases=judged,
        failures=failures,
        not_applicable=skipped + len(severities) - judged,
        tolerance=tolerance,
        rate=failures / judged if judged else 0.0,
        low=low,
        high=high,
        examples=_examples(before.take(worst), after.take(worst), severities[worst], kind),
    )


def _examples(
    before: Batch, after: Batch, severities: NDArray[np.float64], kind: Kind
) -> tuple[Example, ...]:
    examples = []
    for was, now, severity in zip(before.to_records(), after.to_records(), severities.tolist(), strict=True):
        original = kind != "MFT"
        examples.append(
            Example(
                id=was["id"],
                severity=severity,
                inputs=_short(now.get("inputs", {})),
                outputs=_short(now.get("outputs", {})),
                original_inputs=_short(was.get("inputs", {})) if original else None,
                original_outputs=_short(was.get("outputs", {})) if original else None,
                label=was.get("label"),
            )
        )
    return tuple(examples)


def _short(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with long tensors described instead of spelled out."""
    return {name: _describe(value) for name, value in values.items()}


def _describe(value: Any) -> Any:
    if (
        isinstance(value, list)
        and (array := np.asarray(value)).dtype.kind in "fiub"
        and array.size > _LONGEST_TENSOR
    ):
        return f"tensor{array.shape} in [{array.min():.3g}, {array.max():.3g}], mean {array.mean():.3g}"
    return value
