"""Behavioral test outcomes from outside, and their validation."""

import base64
import io
import json
import struct
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from outrider.behavioral_tests import Outcome
from outrider.errors import check_name
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.problem import ProblemError, problem

MOST_OUTCOMES = 2000
MOST_EXAMPLES = 50
OUTCOME_BYTES = 262_144
"""Of one outcome, with its examples."""
MOST_PIXELS = 256
"""A side of a picture."""
LISTED = 20
"""Faults that an answer names."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=10_000)]
Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]


def _sound(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raise a ValueError for numbers that are none, and for what is shown as a picture and is none."""
    for name, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise ValueError(f"{name}: NaN and infinities are no JSON: null expected") from None
        if isinstance(value, dict) and "png" in value:
            _check_png(name, value["png"])
    return values


def _check_png(name: str, content: JsonValue) -> None:
    from PIL import Image

    try:
        data = base64.b64decode(str(content), validate=True)
        sides = struct.unpack(">II", data[16:24])
        is_png = data.startswith(b"\x89PNG\r\n\x1a\n") and max(sides) <= MOST_PIXELS
        if is_png:  # its sides are known to be small before it is inflated
            Image.open(io.BytesIO(data), formats=["PNG"]).load()
    except (ValueError, struct.error, OSError, SyntaxError):
        is_png = False
    if not is_png:
        raise ValueError(f"{name}.png: base64 of a PNG of at most {MOST_PIXELS} pixels a side expected")


Values = Annotated[dict[str, JsonValue], AfterValidator(_sound)]


class ExampleGiven(RequestBody):
    """Failed case."""

    id: Annotated[str, Field(max_length=1000)]
    severity: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    inputs: Values
    outputs: Values
    original_inputs: Values | None = None
    original_outputs: Values | None = None
    label: Values | None = None
    case: Count = 0


class MeasureGiven(RequestBody):
    """A figure behind the verdict on a whole test."""

    name: Name
    value: Number | None
    low: Number
    high: Number
    rows: Count
    group: Annotated[str, Field(max_length=500)] = ""


class OutcomeGiven(RequestBody):
    """Outcome, as ``Outcome.to_dict()`` and ``--json`` write one."""

    name: Annotated[Name, AfterValidator(lambda name: check_name(name, "test", has_parts=True))]
    suite: Annotated[Name, AfterValidator(lambda name: check_name(name, "suite", has_parts=True))]
    kind: Literal["MFT", "INV", "DIR"]
    capability: Name
    description: Text = ""
    revision: Annotated[str, Field(max_length=100)] = ""
    cases: Count
    failures: Count
    not_applicable: Count
    tolerance: Share
    rate: Share
    low: Share
    high: Share
    examples: list[ExampleGiven] = Field(default_factory=list, max_length=MOST_EXAMPLES)
    asked: Count = 0
    planned: Count = 0
    interval: Literal["wilson", "sequence"] = "wilson"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    measures: list[MeasureGiven] = Field(default_factory=list, max_length=1000)
    error: Text = ""
    status: Literal["passed", "failed", "skipped", "error"]
    passed: bool

    @model_validator(mode="after")
    def _consistent(self) -> "OutcomeGiven":
        if self.failures > self.cases:
            raise ValueError(f"failures: at most {self.cases} (cases) expected, got {self.failures}")
        if not self.low - 1e-9 <= self.rate <= self.high + 1e-9:
            raise ValueError(f"rate: between low {self.low} and high {self.high} expected, got {self.rate}")
        expected = self.failures / self.cases if self.cases else 0.0
        if abs(self.rate - expected) > 1e-6:
            raise ValueError(f"rate: failures / cases = {expected:.6g} expected, got {self.rate}")
        found = self.outcome()
        if (found.status, found.passed) != (self.status, self.passed):
            raise ValueError(
                f"status: {found.status} by the figures, got {self.status}, passed={self.passed}"
            )
        size = len(json.dumps(self.model_dump()))
        if size > OUTCOME_BYTES:
            raise ValueError(
                f"at most {OUTCOME_BYTES} bytes per outcome expected, got {size}: fewer examples"
            )
        return self

    def outcome(self) -> Outcome:
        """Outcome for the database."""
        return Outcome.from_dict(self.model_dump())


class OutcomesGiven(RequestBody):
    """Outcomes of one version, replacing the same tests' former ones."""

    version: Annotated[
        str,
        Field(min_length=1, max_length=100),
        AfterValidator(lambda name: check_name(name, "version", has_parts=True)),
    ]
    source: Literal["cli", "pytest"]
    outcomes: list[OutcomeGiven] = Field(min_length=1, max_length=MOST_OUTCOMES)


def read_outcomes(body: bytes) -> OutcomesGiven:
    """Parse sent outcomes, field by field.

    Raises
    ------
    ProblemError
        422 that lists the fields that are not as expected.
    """
    try:
        given = OutcomesGiven.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise _refused([(each["loc"], each["msg"]) for each in error.errors(include_input=False)]) from None
    names = [(each.suite, each.name) for each in given.outcomes]
    first = {name: index for index, name in reversed(list(enumerate(names)))}
    twice = [index for index, name in enumerate(names) if first[name] != index]
    if twice:
        raise _refused(
            [
                (
                    ("outcomes", index, "name"),
                    f"{'/'.join(names[index])} is given twice: one outcome per test expected",
                )
                for index in twice
            ]
        )
    return given


def _refused(faults: Sequence[tuple[tuple[int | str, ...], str]]) -> ProblemError:
    named = [{"field": ".".join(str(part) for part in where), "reason": told} for where, told in faults]
    detail = "; ".join(f"{fault['field'] or 'body'}: {fault['reason']}" for fault in named[:LISTED])
    rest = f"; and {len(named) - LISTED} more" if len(named) > LISTED else ""
    return ProblemError(problem(422, detail + rest, errors=named[:LISTED]))
