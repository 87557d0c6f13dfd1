"""Failing cases and figures of one outcome, for the page."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.behavioral_tests.html_parts import Field, fields_of
from outrider.monitor.queries.payload_views import flatten


@dataclass(frozen=True, slots=True)
class Case:
    """Failing case: input and answer, with changes."""

    id: str
    number: int
    severity: float
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    expected: str
    """The case's label; empty without one."""
    unchanged: int
    """Inputs that were left as they were and are not shown."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Measure with its place on a plot, in percent of width."""

    group: str
    value: float | None
    low: float
    high: float
    rows: int
    at: float | None
    start: float
    stop: float
    before: float | None
    """Where the version before had it, on the same scale."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Measures of one name over groups."""

    name: str
    least: float
    most: float
    figures: tuple[Figure, ...]


def cases_of(outcome: Mapping[str, Any]) -> list[Case]:
    """The failing cases kept in an outcome, worst first."""
    return [_case(example) for example in outcome.get("examples", ())]


def _case(example: Mapping[str, Any]) -> Case:
    was = example.get("original_inputs")
    inputs = fields_of(was, example["inputs"])
    shown = [field for field in inputs if field.changed] or inputs if was is not None else inputs
    return Case(
        id=str(example["id"]),
        number=int(example.get("case", 0)),
        severity=float(example["severity"]),
        inputs=tuple(shown),
        outputs=tuple(fields_of(example.get("original_outputs"), example["outputs"])),
        expected=", ".join(text for _, text in flatten(example.get("label") or {})),
        unchanged=len(inputs) - len(shown),
    )


def picture_of(outcome: Mapping[str, Any], number: int, name: str, caption: str) -> bytes | None:
    """PNG ``before``, ``after`` or ``difference`` of a failing case's changed input."""
    for example in outcome.get("examples", ()):
        if example.get("case", 0) != number:
            continue
        for field in _case(example).inputs:
            if field.name == name and caption in dict(field.images):
                return base64.b64decode(dict(field.images)[caption])
    return None


def plots_of(measures: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ()) -> list[Plot]:
    """Dots with intervals, a plot per measure, shares from 0 to 1."""
    names = dict.fromkeys(str(each["name"]) for each in measures)
    return [_plot(name, [m for m in measures if m["name"] == name], before) for name in names]


def _plot(name: str, measures: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> Plot:
    ends = [float(each[end]) for each in measures for end in ("low", "high")]
    least, most = min(0.0, *ends), max(0.0, *ends)
    most = 1.0 if least >= 0.0 and 0.0 < most <= 1.0 else most or 1.0
    was = {each["group"]: each["value"] for each in before if each["name"] == name}

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        return round(100 * min(1.0, max(0.0, (value - least) / (most - least))), 2)

    return Plot(
        name,
        least,
        most,
        tuple(
            Figure(
                each["group"], each["value"], each["low"], each["high"], each["rows"], place(each["value"]),
                place(each["low"]) or 0.0, place(each["high"]) or 0.0, place(was.get(each["group"])),
            )
            for each in measures
        ),
    )  # fmt: skip
