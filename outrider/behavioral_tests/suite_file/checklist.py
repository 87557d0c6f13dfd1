"""CheckList's suites, converted to JSON lines, as suite files.

One line is one test: ``{suite, name, type, capability, description, expectation, aggregate, cases, …}`` with
``expectation`` ``{kind, scope, params, slice?}``. CheckList's probabilities are the output ``probs``, its
prediction the output ``label``.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from outrider.errors import ConfigError

from .written import WrittenCase, WrittenSuite, WrittenTest

Spec: TypeAlias = dict[str, Any]
LICENCE = """\
Converted from a suite of CheckList (Ribeiro et al., ACL 2020). Its released suites come under the \
MIT License: Copyright (c) 2020 Marco Tulio Correia Ribeiro. Permission is hereby granted, free of \
charge, to any person obtaining a copy of this software and associated documentation files (the \
"Software"), to deal in the Software without restriction, including without limitation the rights to \
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and \
to permit persons to whom the Software is furnished to do so, subject to the following conditions: \
The above copyright notice and this permission notice shall be included in all copies or substantial \
portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR \
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR \
PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY \
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING \
FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
_NEUTRAL, _NEGATIVE = 1, 0


class _Case(Struct, frozen=True):
    inputs: list[str]
    label: Any | UnsetType = UNSET


class _Slice(Struct, frozen=True):
    field: Literal["orig_pred"]
    op: str
    value: Any


class _Expectation(Struct, frozen=True):
    kind: str
    scope: Literal["single", "pairwise"]
    params: dict[str, Any]
    slice: _Slice | None = None


class _Line(Struct, frozen=True):
    name: str
    type: Literal["MFT", "INV", "DIR"]
    expectation: _Expectation
    aggregate: Literal["all", "all_except_first", "any", "any_except_first"]
    cases: list[_Case]
    suite: str = "checklist"
    capability: str = "general"
    description: str = ""
    release_sample: list[int] | None = None


def read_checklist(path: Path, *, released: bool = False) -> WrittenSuite:
    """Suite of a ``.jsonl`` or ``.jsonl.gz`` file.

    Parameters
    ----------
    released
        Take only the cases of the released sample, in its order: those that its prediction files are about.
        The id of a case stays its number in the whole test.

    Raises
    ------
    ConfigError
        Naming file, line and test: what was expected, what came.

    Notes
    -----
    ``label`` of a monotonic expectation, ``orig_pred``, is the class of the original. What CheckList judges
    of an original beside itself is always met, so ``all`` and ``all_except_first`` are the same for pairs.
    CheckList drops what is not applicable first and then ignores the first example *that is left*; here the
    original is never judged, and every changed copy is.
    """
    content = path.read_bytes()
    try:
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path.name} is no whole gzip file: {error}") from error
    tests, suite = [], "checklist"
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found = msgspec.json.decode(line, type=_Line)
                tests.append(_test(found, released=released))
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                raise ConfigError(f"{path.name}, line {number}: {error}") from error
            suite = found.suite
    if not tests:
        raise ConfigError(f"{path.name}: one JSON object per line, each a test, expected; the file is empty")
    return WrittenSuite(outrider_suite=1, name=suite, notice=LICENCE, tests=tests)


def _test(line: _Line, *, released: bool) -> WrittenTest:
    numbers: Sequence[int] = range(len(line.cases))
    if released:
        if line.release_sample is None:
            raise ValueError(f"test {line.name!r} has no released sample; import all of its cases")
        numbers = line.release_sample
        if beyond := [number for number in numbers if not 0 <= number < len(line.cases)]:
            raise ValueError(f"test {line.name!r}: {len(line.cases)} cases, but the sample has {beyond[0]}")
    return WrittenTest(
        name=line.name,
        kind=line.type,
        capability=line.capability or "general",
        description=line.description.strip(),
        expect=_expect(line),
        aggregate="any" if line.aggregate.startswith("any") else "all",
        cases=[_case(number, line.cases[number]) for number in numbers],
    )


def _case(number: int, case: _Case) -> WrittenCase:
    label = UNSET if case.label is None else case.label
    return WrittenCase(id=str(number), inputs=list(case.inputs), label=label)


def _expect(line: _Line) -> Spec:
    told = line.expectation
    try:
        spec = _RULES[told.kind](told.params)
    except KeyError as error:
        raise ValueError(
            f"test {line.name!r}: expectation {told.kind!r} lacks or is unknown: {error}"
        ) from error
    alone = told.scope == "single" and line.type != "MFT"
    if alone and not line.aggregate.endswith("_except_first"):
        if told.slice is not None:
            raise ValueError(f"test {line.name!r}: a slice of the original cannot narrow examples alone")
        return {"single": spec}
    if line.type == "MFT" and (told.scope == "pairwise" or line.aggregate.endswith("_except_first")):
        raise ValueError(
            f"test {line.name!r}: an MFT has no original; scope single and aggregate all expected, "
            f"got {told.scope} and {line.aggregate}"
        )
    if told.slice is None:
        return spec
    condition = {"field": "outputs.label", "op": told.slice.op, "value": told.slice.value}
    return {"where": condition, "then": spec}


def _valued(name: str, params: Mapping[str, Any]) -> Spec:
    value = params["value"]
    return {"expect": name} if value == "label" else {"expect": name, "to": value}


def _label_or_not_negative(_: Mapping[str, Any]) -> Spec:
    neutral = {"field": "label.label", "op": "==", "value": _NEUTRAL}
    other = {"field": "label.label", "op": "!=", "value": _NEUTRAL}
    return {
        "all_of": [
            {"where": neutral, "then": {"expect": "not_equal", "to": _NEGATIVE}},
            {"where": other, "then": {"expect": "equal"}},
        ]
    }


def _inv(params: Mapping[str, Any]) -> Spec:
    return {"expect": "invariant", "scores": "probs", "tolerance": params["tolerance"]}


def _monotonic(params: Mapping[str, Any]) -> Spec:
    label = params["label"]
    return {
        "expect": "monotone",
        "field": "probs[label]" if label == "orig_pred" else f"probs[{int(label)}]",
        "direction": "increasing" if params["increasing"] else "decreasing",
        "tolerance": params["tolerance"],
        "bounds": [0.0, 1.0],
    }


def _sentiment_shift(params: Mapping[str, Any]) -> Spec:
    return {
        "expect": "shift",
        "weights": {"probs[0]": -1.0, "probs[2]": 1.0},
        "direction": {"up": "increasing", "down": "decreasing"}[params["direction"]],
        "tolerance": params["tolerance"],
    }


_RULES = {
    "eq": lambda params: _valued("equal", params),
    "not_equal": lambda params: _valued("not_equal", params),
    "label_or_not_negative": _label_or_not_negative,
    "inv": _inv,
    "monotonic": _monotonic,
    "sentiment_shift": _sentiment_shift,
}
