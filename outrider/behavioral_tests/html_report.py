"""Self-contained HTML file: matrix, tests, failing cases with their changes.

Texts of models and suites are untrusted: they are escaped, and a Content Security Policy with digests forbids
other scripts, styles and all requests.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from .html_parts import Field, fields_of, measure_drawings, rate_bar, visible
from .outcome import Example, Measure, Outcome
from .report import KINDS, SummaryCell, matrix

if TYPE_CHECKING:
    from .comparison import Comparison

_FOLDER = Path(__file__).parent / "html"
_LONG_ANSWER = 120  # letters, before and after together
_ORDER = ("regression", "improvement", "not comparable", "same")
STATUSES = ("failed", "error", "passed", "skipped")


@dataclass(frozen=True, slots=True)
class ShownExample:
    """Failing case in the report."""

    example: Example
    inputs: list[Field]
    answers: list[Field]
    label: list[Field]
    is_new: bool
    """Whether the other model passes the case."""


@dataclass(frozen=True, slots=True)
class ShownTest:
    """Test with its link anchor and drawings."""

    outcome: Outcome
    anchor: str
    figures: str
    bar: Markup
    measures: list[tuple[Measure, Markup]]
    examples: list[ShownExample]


def html_report(
    outcomes: Sequence[Outcome], *, title: str = "Behavioral tests", comparison: "Comparison | None" = None
) -> str:
    """Self-contained HTML page of one model's outcomes.

    With a ``comparison``, which is shown first, the outcomes are the challenger's. The page makes no requests
    and runs no scripts but its own.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.globals |= {"rate_bar": rate_bar}
    environment.filters["visible"] = visible
    style, script = ((_FOLDER / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    rows = comparison.rows if comparison is not None else ()
    tests = _tests(outcomes, {(row.suite, row.test): set(row.only_challenger_cases) for row in rows})
    anchors = {(test.outcome.suite, test.outcome.name): test.anchor for test in tests}
    page = environment.get_template("report.html").render(
        title=title,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:",
        kinds=[kind for kind in KINDS if any(outcome.kind == kind for outcome in outcomes)],
        matrix=_drawn(matrix(outcomes)),
        counts={status: sum(outcome.status == status for outcome in outcomes) for status in STATUSES},
        cases=sum(outcome.cases for outcome in outcomes),
        tests=tests,
        comparison=comparison,
        compared=sorted(rows, key=lambda row: _ORDER.index(row.verdict)),
        anchors=anchors,
    )
    return page.encode("utf-8", "replace").decode()  # lone surrogates of a model's answer are no text


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _drawn(cells: Any) -> dict[str, dict[str, tuple[SummaryCell, Markup]]]:
    return {
        capability: {
            kind: (
                cell,
                rate_bar(cell.failures / cell.cases, cell.low, cell.high) if cell.cases else Markup(),
            )
            for kind, cell in kinds.items()
        }
        for capability, kinds in cells.items()
    }


def _tests(outcomes: Iterable[Outcome], new: Mapping[tuple[str, str], Collection[int]]) -> list[ShownTest]:
    page = (_FOLDER / "report.html").read_text(encoding="utf-8")
    taken = set(re.findall(r'\bid="([\w-]+)"', page))  # what the page's script looks for
    return [
        _test(outcome, _anchor(outcome.name, taken), new.get((outcome.suite, outcome.name), ()))
        for outcome in outcomes
    ]


def _anchor(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-") or "test"
    number, found = 1, plain
    while found in taken:
        number += 1
        found = f"{plain}-{number}"
    taken.add(found)
    return found


def _test(outcome: Outcome, anchor: str, new: Collection[int]) -> ShownTest:
    bar = rate_bar(outcome.rate, outcome.low, outcome.high, outcome.tolerance) if outcome.cases else Markup()
    measures = list(zip(outcome.measures, measure_drawings(outcome.measures), strict=True))
    figures = outcome.message.removeprefix(f"{outcome.name} ({outcome.kind}, {outcome.capability}): ")
    examples = [_example(example, is_new=example.case in new) for example in outcome.examples]
    examples.sort(key=lambda each: not each.is_new)
    return ShownTest(outcome, anchor, figures, bar, measures, examples)


def _example(example: Example, *, is_new: bool) -> ShownExample:
    return ShownExample(
        example,
        fields_of(example.original_inputs, example.inputs),
        fields_of(example.original_outputs, example.outputs, marked_from=_LONG_ANSWER),
        fields_of(None, example.label or {}),
        is_new,
    )
