"""Types of an overview's assertions and live tests."""

from dataclasses import asdict
from typing import Annotated, Any, TypeAlias

from outrider.monitor.http.common import RateFigures, rate_json
from outrider.monitor.http.declared import FieldsOf

from .reader import AssertionView, LiveTestView

AssertionFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(AssertionView, "WatchedAssertion", more={"precision": RateFigures})
]


LiveTestFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(LiveTestView, "LiveTestOutcomes", more={"failure": RateFigures})
]


def assertion_json(row: AssertionView) -> dict[str, Any]:
    """Assertion as JSON."""
    return asdict(row) | {"precision": rate_json(row.precision)}


def live_json(test: LiveTestView) -> dict[str, Any]:
    """Outcomes of a live test as JSON."""
    return asdict(test) | {"failure": rate_json(test.failure)}
