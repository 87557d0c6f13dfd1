"""Reviews of candidates: accept, correct, or reject."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from outrider.errors import NotFound

from .reading import numbered
from .written import CaseSource, WrittenCase, WrittenSuite, WrittenTest

Place = tuple[str, str]
"""Test name and case id."""


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """Review of a candidate, with its corrected answer if any."""

    accept: bool
    label: Any | UnsetType = UNSET


def awaiting(suite: WrittenSuite) -> list[tuple[WrittenTest, WrittenCase]]:
    """Unreviewed candidates, in order."""
    return [(test, case) for test in suite.tests for case in numbered(test.cases) if not case.reviewed]


def decide(
    suite: WrittenSuite, decisions: Mapping[Place, ReviewDecision], *, by: str, at: str
) -> WrittenSuite:
    """Suite after reviews: accepted cases become active, rejected ones are removed."""
    waiting = {(test.name, case.id) for test, case in awaiting(suite)}
    if unknown := sorted(set(decisions) - waiting):
        raise NotFound(f"no candidate {unknown[0][1]!r} in test {unknown[0][0]!r} awaits review")
    tests = []
    for test in suite.tests:
        cases = [_decided(case, decisions.get((test.name, case.id)), by, at) for case in numbered(test.cases)]
        kept = [case for case in cases if case is not None]
        tests += [replace(test, cases=kept)] if kept else []
    return replace(suite, tests=tests)


def _decided(case: WrittenCase, decision: ReviewDecision | None, by: str, at: str) -> WrittenCase | None:
    if decision is None:
        return case
    if not decision.accept:
        return None
    label = case.label if decision.label is UNSET else decision.label
    source = replace(case.source or CaseSource(), by=by, at=at)
    return replace(case, reviewed=True, label=label, source=source)
