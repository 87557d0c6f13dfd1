"""Types of an overview's assertions and live tests."""

from typing import Annotated, TypeAlias

from outrider.monitor.http.common import RateFigures
from outrider.monitor.http.declared import FieldsOf

from .reader import AssertionView, LiveTestView

ASSERTION = FieldsOf(AssertionView, "WatchedAssertion", more={"precision": RateFigures})
AssertionFacts: TypeAlias = Annotated[AssertionView, ASSERTION]
LIVE_TEST = FieldsOf(LiveTestView, "LiveTestOutcomes", more={"failure": RateFigures})
LiveTestFacts: TypeAlias = Annotated[LiveTestView, LIVE_TEST]
