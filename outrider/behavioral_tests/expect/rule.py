"""Expectation: its protocol, combinations and form as data."""

import inspect
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from typing import Any, Literal, ParamSpec, Protocol, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .reading import Floats, column, missing, severities

Scope = Literal["row", "single", "pairwise", "case", "suite"]
"""Examples that an expectation sees at a time. || ``row``: in an MFT each example alone, in INV and DIR each
changed copy with its original. ``single``: each example alone, the original too. ``pairwise``: each example
with the first of its case, the first with itself, in an MFT too, and also if a case has no other example
(CheckList's ``pairwise``). ``case``: all examples of each case. ``suite``: all examples of the test."""
Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Spec = Mapping[str, Any]
P = ParamSpec("P")


class Expectation(Protocol):
    """Protocol of expectations: the argument ``expect=`` of the tests."""

    def __call__(self, before: Batch, after: Batch, /) -> NDArray[Any]:
        """Severity or verdict of each row, shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Expectation that can be combined with others by ``&`` and ``|``.

    Parameters
    ----------
    judge
        Judging function; its arguments and result depend on ``scope``.
    spec
        Form of the rule in a suite file; empty for a user's own function.
    """

    judge: Callable[..., Any] = field(repr=False)
    scope: Scope = "row"
    spec: Spec = field(default_factory=dict)

    def __call__(self, *given: Any) -> Any:
        """Call the judging function; see ``scope``."""
        return self.judge(*given)

    def __and__(self, other: Expectation) -> "Rule":
        return all_of(self, other)

    def __or__(self, other: Expectation) -> "Rule":
        return any_of(self, other)

    def where(self, name: str, op: Operator, value: object) -> "Rule":
        """Rule restricted to rows whose original fulfils a condition (:func:`where`)."""
        return where(name, op, value, self)


def scope_of(expectation: Expectation) -> Scope:
    """Scope of a rule; ``row`` for plain functions."""
    return expectation.scope if isinstance(expectation, Rule) else "row"


def all_of(*expectations: Expectation) -> Rule:
    """Require all expectations.

    Expectations that are not applicable are ignored; if all are, so is the result.

    Examples
    --------
    >>> from outrider.behavioral_tests import expect
    >>> batch = Batch.from_records([{"outputs": {"score": 0.4}}], model="m")
    >>> (expect.within("score", low=0.5) & expect.within("score", high=0.3))(batch, batch).round(1)
    array([0.1])
    """
    return _combined(expectations, np.fmax, "all_of")


def any_of(*expectations: Expectation) -> Rule:
    """Require one of several expectations. The severity is that of the least violated one."""
    return _combined(expectations, np.fmin, "any_of")


def _combined(expectations: tuple[Expectation, ...], better: np.ufunc, name: str) -> Rule:
    if not expectations:
        raise ValueError(f"{name} needs at least one expectation")
    scopes = {scope_of(each) for each in expectations}
    if len(scopes) > 1 or scopes <= {"case", "suite"}:
        raise TypeError(f"{name} combines expectations of rows, got {', '.join(sorted(scopes))}")
    specs = [spec_of(each) for each in expectations]

    def judge(before: Batch, after: Batch) -> Floats:
        judged = [severities(each(before, after), before.rows) for each in expectations]
        worst: Floats = reduce(better, judged)
        return worst

    return Rule(judge, scopes.pop(), {name: specs} if all(specs) else {})


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def where(name: str, op: Operator, value: object, then: Expectation) -> Rule:
    """Judge only rows whose original fulfils a condition.

    Other rows are not applicable.

    Parameters
    ----------
    name
        Full column name: ``inputs.lang``, ``label.label``, ``attrs.city``, ``outputs.label`` (the answer to
        the original; in an MFT the answer itself).
    op, value
        Condition, such as ``"!=", 1``; a missing value never fulfils it.

    Examples
    --------
    >>> from outrider.behavioral_tests import expect
    >>> asked = Batch.from_records([{"outputs": {"label": 0}}, {"outputs": {"label": 1}}], model="m")
    >>> answered = asked.with_outputs({"label": np.array([1, 0])})
    >>> expect.same().where("outputs.label", "!=", 1)(asked, answered)
    array([ 1., nan])
    """
    if op not in _OPERATORS and op not in ("in", "not in"):
        raise ValueError(f"op must be one of {', '.join(_OPERATORS)}, in, not in; got {op!r}")
    if scope_of(then) in ("case", "suite"):
        raise TypeError(
            "where narrows expectations of rows; one of cases or of the whole test sees everything"
        )

    def judge(before: Batch, after: Batch) -> Floats:
        source = before if before.has(name) or not name.startswith("outputs.") else after
        holds = _holds(column(source, name), op, value)
        return np.where(holds, severities(then(before, after), before.rows), np.nan)

    inner = spec_of(then)
    spec = {"where": {"field": name, "op": op, "value": _plain(value)}, "then": inner}
    return Rule(judge, scope_of(then), spec if inner and _is_json(spec) else {})


def _holds(values: NDArray[Any], op: Operator, value: Any) -> NDArray[np.bool_]:
    if op in ("in", "not in"):
        allowed = set(value)
        found = np.array([each in allowed for each in values.tolist()], dtype=np.bool_)
        holds = found if op == "in" else ~found
    elif values.dtype == object and op not in ("==", "!="):
        compare = _OPERATORS[op]
        absent = missing(values).tolist()
        pairs = zip(values.tolist(), absent, strict=True)
        holds = np.array([not gone and bool(compare(each, value)) for each, gone in pairs], dtype=np.bool_)
    else:
        holds = np.asarray(_OPERATORS[op](values, value), dtype=np.bool_)
    return holds.reshape(len(values)) & ~missing(values)


def single(expectation: Expectation) -> Rule:
    """Judge each example alone, in INV and DIR the originals too."""
    if scope_of(expectation) in ("case", "suite"):
        raise TypeError("single takes an expectation of rows")
    inner = spec_of(expectation)
    return Rule(expectation, "single", {"single": inner} if inner else {})


def pairwise(expectation: Expectation) -> Rule:
    """Judge each example together with the first of its case.

    The first is compared with itself, in an MFT too. A written case with an original only, which INV and DIR
    otherwise skip, is asked and judged.
    """
    if scope_of(expectation) != "row":
        raise TypeError("pairwise takes an expectation of rows")
    inner = spec_of(expectation)
    return Rule(expectation, "pairwise", {"pairwise": inner} if inner else {})


def reads(expectation: Expectation) -> frozenset[str] | None:
    """Columns that a row rule reads besides outputs and labels. None for user code, which may read all."""
    spec = spec_of(expectation)
    return frozenset(_fields(spec)) if spec else None


def _fields(spec: Spec) -> Iterator[str]:
    if "where" in spec:
        yield spec["where"]["field"]
    inner = [*spec.get("all_of", ()), *spec.get("any_of", ())]
    inner += [spec[name] for name in ("then", "single", "pairwise") if name in spec]
    for each in inner:
        yield from _fields(each)


_FACTORIES: dict[str, Callable[..., Rule]] = {}


def named(factory: Callable[P, Rule]) -> Callable[P, Rule]:
    """Decorator that makes a factory's rules serializable.

    The factory's arguments are stored with the rule. A row rule of such a factory gets outputs and labels
    only, no other columns.
    """
    signature = inspect.signature(factory)
    name = factory.__name__

    @wraps(factory)
    def make(*args: P.args, **kwargs: P.kwargs) -> Rule:
        rule = factory(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        spec = {"expect": name} | {key: _plain(value) for key, value in given.items()}
        return replace(rule, spec=spec if _is_json(spec) else {})

    _FACTORIES[name] = make
    return make


def spec_of(expectation: Expectation) -> Spec:
    """Expectation as JSON-compatible data; empty for user code."""
    return expectation.spec if isinstance(expectation, Rule) else {}


def from_spec(spec: Spec) -> Rule:
    """Inverse of :func:`spec_of`.

    Raises
    ------
    ValueError
        If the specification is invalid; the message names the part.
    """
    if "expect" in spec:
        return _made(spec)
    for name, combine in (("all_of", all_of), ("any_of", any_of)):
        if name in spec:
            return combine(*(from_spec(each) for each in spec[name]))
    if "single" in spec:
        return single(from_spec(spec["single"]))
    if "pairwise" in spec:
        return pairwise(from_spec(spec["pairwise"]))
    if "where" in spec:
        condition = spec["where"]
        missing = {"field", "op", "value"} - set(condition)
        if missing or "then" not in spec:
            raise ValueError(f"where needs field, op and value, and 'then' beside it; got {dict(spec)}")
        _as(str, condition["field"], "where, field")
        if condition["op"] in ("in", "not in"):
            _as(list[Any], condition["value"], f"where, value of {condition['op']!r}")
        return where(condition["field"], condition["op"], condition["value"], from_spec(spec["then"]))
    raise ValueError(f"one of expect, all_of, any_of, where, single or pairwise expected, got {dict(spec)}")


def _made(spec: Spec) -> Rule:
    factory = _FACTORIES.get(str(spec.get("expect")))
    if factory is None:
        raise ValueError(f"expect must be one of {', '.join(sorted(_FACTORIES))}; got {dict(spec)}")
    parameters = inspect.signature(factory).parameters
    kinds = get_type_hints(inspect.unwrap(factory))
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for key, value in spec.items():
        if key == "expect":
            continue
        if key not in parameters:
            raise ValueError(f"{spec['expect']} has no parameter {key!r}; it takes {', '.join(parameters)}")
        if parameters[key].kind is inspect.Parameter.VAR_POSITIONAL:
            each = kinds[key]
            positional = [_as(each, one, f"{spec['expect']}, {key}") for one in _as(list[Any], value, key)]
        else:
            keywords[key] = _as(kinds[key], value, f"{spec['expect']}, {key}")
    try:
        return factory(*positional, **keywords)
    except TypeError as error:
        raise ValueError(f"{dict(spec)}: {error}") from error


def _as(kind: Any, value: Any, where: str) -> Any:
    """Value checked against the type of its parameter; ``object`` allows any."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}, got {value!r:.80}") from error
    except TypeError:  # a kind that only Python can tell
        pass
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset | tuple):
        return sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
    return value.item() if isinstance(value, np.generic) else value


def _is_json(spec: Spec) -> bool:
    try:
        json.dumps(spec, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def case(judge: Callable[[Batch, NDArray[np.intp]], NDArray[Any]]) -> Rule:
    """Expectation of whole cases.

    Parameters
    ----------
    judge
        Function of (examples with their answers, case number of each). Examples of a case are adjacent, the
        original first; cases are numbered from 0. It returns one value per case: a bool (True = met), or a
        severity.

    Examples
    --------
    >>> def one_answer(examples, case):
    ...     labels = examples.column("outputs.label")
    ...     first = labels[np.searchsorted(case, case)]  # of the case's first example
    ...     return np.bincount(case, weights=labels != first) == 0
    >>> rule = case(one_answer)
    >>> rule.scope
    'case'
    """
    return Rule(judge, "case")


def suite(judge: Callable[[Batch], Any]) -> Rule:
    """Expectation of all examples of a test together.

    For example a bound on a rate, or on a gap between groups.

    Parameters
    ----------
    judge
        Function of the examples with their answers. It returns one bool (True = met), a severity, or a
        :class:`~outrider.behavioral_tests.outcome.Measured` with figures.
    """
    return Rule(judge, "suite")
