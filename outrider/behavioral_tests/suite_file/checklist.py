"""Import of CheckList suites, converted to JSON lines, as suite files.

One line is one test: ``{suite, name, type, capability, description, expectation, aggregate, cases, …}`` with
``expectation`` ``{kind, scope, params, of?, slice?}``; ``checklist_converter.py``, which runs in CheckList's
environment, writes them. CheckList's probabilities are the output ``probs``, its prediction is ``label``.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from outrider.behavioral_tests.expect import Rule, from_spec
from outrider.errors import ConfigError

from .written import WrittenCase, WrittenSuite, WrittenTest

Spec: TypeAlias = dict[str, Any]
CONVERTER = Path(__file__).with_name("checklist_converter.py")
"""Standalone script that converts CheckList's pickles to JSON lines, in CheckList's environment."""
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
_PICKLES = (b"\x80", b"cdill", b"ccopy_reg\n", b"ccopyreg\n", b"cchecklist")
_TAR = slice(257, 262)


class _NotCarried(Exception):  # noqa: N818 - no error: the test is listed
    """Raised for a CheckList test that a suite file cannot express."""


class _Case(Struct, frozen=True, forbid_unknown_fields=True):
    inputs: list[str | list[Any] | dict[str, Any]]
    label: Any | UnsetType = UNSET
    labels: list[Any] | None = None


class _Slice(Struct, frozen=True, forbid_unknown_fields=True):
    field: Literal["orig_pred", "pred", "label"]
    op: str
    value: Any


class _Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    scope: Literal["single", "pairwise", "testcase", "test"] | UnsetType = UNSET
    params: dict[str, Any] = {}
    of: list["_Expectation"] = []
    slice: _Slice | None = None


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: Literal["MFT", "INV", "DIR"]
    expectation: _Expectation | None = None
    aggregate: Literal["all", "all_except_first", "any", "any_except_first"] = "all"
    cases: list[_Case] = []
    suite: str = "checklist"
    capability: str | None = "general"
    description: str | None = ""
    release_sample: list[int] | None = None
    labels: Any | UnsetType = UNSET
    """Right answer of all cases, or a list with one per case."""
    fields: list[str] | None = None
    """Names of the texts, if an example is a list of several."""
    not_carried: str = ""
    """Reason why this test could not be converted."""
    first_is_original: bool | None = None
    n: int | None = None
    release_line_range: list[int] | None = None


def read_checklist(
    path: Path, *, released: bool = False, fields: Sequence[str] = ()
) -> tuple[WrittenSuite, dict[str, str]]:
    """Suite of a CheckList file, and reasons for omitted tests.

    The file is ``.jsonl`` or ``.jsonl.gz``; reasons are by test name.

    Parameters
    ----------
    released
        Use only the cases of the released sample, in its order, for which prediction files exist. Case ids
        remain the numbers in the whole test.
    fields
        Names of the texts, if an example is a list of several, such as ``question1`` and ``question2``;
        default: those in the file, else ``text1``, ``text2``, ….

    Raises
    ------
    ConfigError
        If the file is invalid; the message names file, line and test. Pickles are rejected without being
        opened.

    Notes
    -----
    ``label`` of a monotonic expectation, ``orig_pred``, is the class of the original. Tests are judged as by
    CheckList 0.0.11: examples that are not applicable are dropped, ``all_except_first`` ignores the first
    *remaining* example, and a case without another one is met. Pairwise tests in which each case has a copy,
    and the comparison of an original with itself always passes, become rules on changed copies.
    """
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path.name} is no whole gzip file: {error}") from error
    if content.startswith(_PICKLES) or content[_TAR] == b"ustar":
        kind = "an archive, of pickles in CheckList's releases" if content[_TAR] == b"ustar" else "a pickle"
        raise ConfigError(
            f"{path.name} is {kind}; opening a pickle runs code from it, so it is not opened here. Where "
            f"CheckList is installed run `python {CONVERTER} suite.pkl suite.jsonl`, then import suite.jsonl"
        )
    tests: list[WrittenTest] = []
    left_out: dict[str, str] = {}
    suite = "checklist"
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                found = msgspec.json.decode(line, type=_Line)
                tests.append(_test(found, released=released, fields=fields))
            except _NotCarried as why:
                left_out[found.name] = str(why)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                raise ConfigError(f"{path.name}, line {number}: {error}") from error
            suite = found.suite
    if left_out and not tests:
        name, reason = next(iter(left_out.items()))
        raise ConfigError(
            f"{path.name}: none of its {len(left_out)} tests can be carried; {name!r}: {reason}"
        )
    if not tests:
        raise ConfigError(f"{path.name}: one JSON object per line, each a test, expected; the file is empty")
    return WrittenSuite(outrider_suite=1, name=suite, notice=LICENCE, tests=tests), left_out


def _test(line: _Line, *, released: bool, fields: Sequence[str]) -> WrittenTest:
    if line.not_carried:
        raise _NotCarried(line.not_carried)
    if line.expectation is None or not line.cases:
        raise ValueError(f"test {line.name!r}: an expectation and at least one case expected")
    numbers: Sequence[int] = range(len(line.cases))
    if released:
        if line.release_sample is None:
            raise ValueError(f"test {line.name!r} has no released sample; import all of its cases")
        numbers = line.release_sample
        if beyond := [number for number in numbers if not 0 <= number < len(line.cases)]:
            raise ValueError(f"test {line.name!r}: {len(line.cases)} cases, but the sample has {beyond[0]}")
    cases = _cases(line, fields)
    _check_labels(line, line.expectation, cases)
    expect, aggregate = _expect(line, line.expectation, cases)
    return WrittenTest(
        name=line.name,
        kind=line.type,
        capability=line.capability or "general",
        description=(line.description or "").strip(),
        expect=expect,
        aggregate=aggregate,
        cases=[cases[number] for number in numbers],
    )


def _cases(line: _Line, fields: Sequence[str]) -> list[WrittenCase]:
    labels = line.labels
    if isinstance(labels, list) and len(labels) != len(line.cases):
        raise ValueError(
            f"test {line.name!r}: one label per case expected, {len(line.cases)}, got {len(labels)}"
        )
    names = fields or line.fields or ()
    written = []
    for number, case in enumerate(line.cases):
        default = labels[number] if isinstance(labels, list) else labels
        label = case.label if case.label is not UNSET and case.label is not None else default
        each = case.labels if case.labels is not None else label if isinstance(label, list) else None
        if each is not None and len(each) != len(case.inputs):
            raise ValueError(
                f"test {line.name!r}, case {number}: one label per example expected, {len(case.inputs)}, "
                f"got {len(each)}"
            )
        if not case.inputs:
            raise ValueError(f"test {line.name!r}, case {number}: at least one example expected")
        inputs = [_input(example, names, f"test {line.name!r}, case {number}") for example in case.inputs]
        if each is not None:
            written.append(WrittenCase(id=str(number), inputs=inputs, labels=each))
        else:
            label = UNSET if label is None else label
            written.append(WrittenCase(id=str(number), inputs=inputs, label=label))
    return written


def _input(example: str | list[Any] | dict[str, Any], names: Sequence[str], where: str) -> str | Spec:
    if not isinstance(example, list):
        return example
    called = names or [f"text{number}" for number in range(1, len(example) + 1)]
    if len(called) != len(example):
        raise ValueError(
            f"{where}: {len(example)} texts in an example, {len(called)} names ({', '.join(called)})"
        )
    return dict(zip(called, example, strict=True))


def _check_labels(line: _Line, expectation: _Expectation, cases: list[WrittenCase]) -> None:
    """Raise ValueError if right answers are needed but missing: nothing would be judged."""
    if not _asks_label(expectation):
        return
    for case in cases:
        if case.label is UNSET and (case.labels is UNSET or None in case.labels):
            raise ValueError(
                f"test {line.name!r}, case {case.id}: its expectation compares with a label and it has "
                "none; give label in each case, or labels (one for all cases, or a list) beside cases"
            )


def _asks_label(wanted: _Expectation) -> bool:
    by_label = wanted.kind == "label_or_not_negative" or (
        wanted.kind in ("eq", "not_equal") and wanted.params.get("value") in ("label", None)
    )
    sliced = wanted.slice is not None and wanted.slice.field == "label"
    return by_label or sliced or any(_asks_label(each) for each in wanted.of)


def _expect(line: _Line, wanted: _Expectation, cases: list[WrittenCase]) -> tuple[Spec, Any]:
    """Rule and aggregation that give CheckList's verdicts."""
    spec = _spec(line, wanted)
    scope = _rule(line, spec).scope
    has_lone = line.type != "MFT" and any(len(case.inputs) == 1 for case in cases)
    if has_lone and scope not in ("row", "pairwise"):
        raise _NotCarried(f"a rule of scope {scope}, and some cases are an original alone")
    if scope in ("case", "suite"):
        return spec, "all"
    if scope != "row":  # it says itself what it sees
        return spec, "any" if line.aggregate.startswith("any") else line.aggregate
    return _expect_of_rows(line, wanted, cases, spec, has_lone=has_lone)


def _expect_of_rows(
    line: _Line, wanted: _Expectation, cases: list[WrittenCase], spec: Spec, *, has_lone: bool
) -> tuple[Spec, Any]:
    """Rule and aggregation if each answer is judged alone."""
    own_labels = any(case.labels is not UNSET for case in cases) and _asks_label(wanted)
    _check_slices(wanted, grouped=any(len(case.inputs) > 1 for case in cases), own_labels=own_labels)
    compares = _compares(wanted)
    if own_labels and compares:
        raise _NotCarried("pairs are compared, and the examples of a case have labels of their own")
    if line.aggregate.startswith("any"):
        return _any_row(line, spec, has_lone=has_lone), "any"
    skips_first = line.aggregate.endswith("_except_first")
    if line.type == "MFT":
        is_plain = not skips_first and not compares
    else:
        is_plain = not has_lone and not own_labels and (skips_first or _is_met_by_itself(wanted))
    if is_plain:
        return spec, "all"
    if has_lone and own_labels:
        raise _NotCarried("some cases are an original alone, and the examples have labels of their own")
    return {"pairwise" if has_lone or compares else "single": spec}, line.aggregate


def _any_row(line: _Line, spec: Spec, *, has_lone: bool) -> Spec:
    """Rule if one met answer of a case is enough."""
    has_original = line.type != "MFT"
    if not line.aggregate.endswith("_except_first"):
        return {"single": spec} if has_original else spec
    if has_lone or not has_original:
        raise ValueError(f"test {line.name!r}: any_except_first needs an original and copies in each case")
    return spec


def _rule(line: _Line, spec: Spec) -> Rule:
    try:
        return from_spec(spec)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"test {line.name!r}: {error}") from error


_PAIRS = ("inv", "monotonic", "sentiment_shift")


def _compares(wanted: _Expectation) -> bool:
    """True if answers are compared with the answer to the original."""
    of_original = wanted.slice is not None and wanted.slice.field == "orig_pred"
    pairs = wanted.kind in _PAIRS or (wanted.kind == "rule" and wanted.scope == "pairwise")
    return pairs or of_original or any(_compares(each) for each in wanted.of)


def _is_met_by_itself(wanted: _Expectation) -> bool:
    """True if an original compared with itself meets the expectation, or is not applicable."""
    return wanted.kind in _PAIRS or (bool(wanted.of) and all(_is_met_by_itself(each) for each in wanted.of))


def _check_slices(wanted: _Expectation, *, grouped: bool, own_labels: bool) -> None:
    """Raise ValueError for conditions that drop single answers: CheckList keeps or drops whole cases."""
    if wanted.slice is not None and wanted.slice.field == "pred" and grouped:
        raise _NotCarried("a slice of several examples by what is predicted for each of them")
    if wanted.slice is not None and wanted.slice.field == "label" and own_labels:
        raise _NotCarried("a slice of several examples by the label of each of them")
    for each in wanted.of:
        _check_slices(each, grouped=grouped, own_labels=own_labels)


def _spec(line: _Line, wanted: _Expectation) -> Spec:
    """Rule of one expectation, independent of its scope."""
    try:
        if wanted.kind in _COMBINED:
            if len(wanted.of) < 2:
                raise ValueError(f"test {line.name!r}: {wanted.kind} needs 'of': two expectations or more")
            spec: Spec = {_COMBINED[wanted.kind]: [_spec(line, each) for each in wanted.of]}
        elif wanted.kind in _PAIRS and wanted.scope == "single":
            raise ValueError(
                f"test {line.name!r}: {wanted.kind} compares pairs; scope pairwise expected, got single"
            )
        else:
            spec = _RULES[wanted.kind](wanted.params)
    except KeyError as error:
        raise ValueError(
            f"test {line.name!r}: expectation {wanted.kind!r} lacks or is unknown: {error}; known are "
            f"{', '.join([*_RULES, *_COMBINED])}"
        ) from error
    if wanted.slice is None:
        return spec
    field = "label.label" if wanted.slice.field == "label" else "outputs.label"
    return {"where": {"field": field, "op": wanted.slice.op, "value": wanted.slice.value}, "then": spec}


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
    "rule": dict,
}
_COMBINED = {"combine_and": "all_of", "combine_or": "any_of"}
