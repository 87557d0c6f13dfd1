"""Assertion: a function of a Batch that gives each record a severity."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date, time, timedelta
from hashlib import blake2b
from tokenize import TokenError
from types import CellType, CodeType, FunctionType
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from outrider.errors import check_name

from .batch import Batch
from .batch.pandas_types import is_pandas_null
from .batch.records import RecordMapping, records
from .findings import Findings, checked
from .texts.syntax import lambdas_at, syntax_text
from .windows.group import Group
from .windows.window import Window

Level = Literal["info", "warning", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
Floats = NDArray[np.float64]
Judge = Callable[[Batch], Any]
RecordJudge = Callable[[RecordMapping], Any]
_INFINITY = np.array(np.inf).view(np.uint64)
_ONES = np.ones(1024)
_ONES.flags.writeable = False
PLAIN = (bool, int, float, complex, str, bytes, date, time, timedelta, re.Pattern, np.generic)


@dataclass(frozen=True, slots=True)
class Assertion:
    """Named function that judges records, made by :func:`assertion`.

    Calling it calls the wrapped function.

    Attributes
    ----------
    revision
        Twelve hex digits that change when the judgement may change: a digest of the function's syntax
        (without comments, docstrings or layout), the constants and functions of its file that it uses, its
        window, and whether it takes a batch or a record.
    per_record
        The function takes one record and is called once per record.
    needs
        Slots whose answers the function reads, such as ``judge.grounded``; it runs after they have answered.
    """

    fn: Callable[[Any], Any]
    name: str
    level: Level
    description: str
    owner: str
    window: Window | Group | None
    revision: str
    per_record: bool = False
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "assertion", has_parts=True)

    def __call__(self, batch: Batch) -> Any:
        """Return value of the wrapped function, unchanged.

        With ``per_record`` a list, one value per record.
        """
        return [self.fn(record) for record in records(batch)] if self.per_record else self.fn(batch)

    def findings(self, view: Batch) -> Findings:
        """Findings in a batch, or in a view of the window.

        An empty view is not judged. Where the function returns one value per row, rows that are not
        ``is_new`` are ignored; :class:`Findings` that the function returns are kept as they are.

        Raises
        ------
        ValueError
            If the function returned another shape, a negative or a non-finite severity, or findings about
            rows outside the view.
        """
        found = self.judged(view)
        return found if isinstance(found, Findings) else Findings(*found)

    def judged(self, view: Batch) -> tuple[NDArray[np.int64], Floats] | Findings:
        """Rows and severities, or the :class:`Findings` that the function returned.

        Like :meth:`findings`, but builds no :class:`Findings` where the function returned one value per row.
        """
        if not view.rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        raw = self(view)
        if isinstance(raw, Findings):
            return checked(raw, view, self.name)
        severity, highest = self._severity(raw, view)
        if not highest:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        fired = severity if severity.dtype == np.bool_ else severity != 0  # booleans are searched fastest
        rows = fired.nonzero()[0]
        if view.has_context:
            rows = rows[view.is_new[rows]]
        if severity.dtype == np.bool_:
            return rows, _ONES[: len(rows)] if len(rows) <= len(_ONES) else np.ones(len(rows))
        return rows, severity[rows].astype(np.float64, copy=False)

    def severities(self, batch: Batch) -> Floats:
        """Severity of each record, shape (rows,); 0.0 means "did not fire".

        An empty batch is not judged. Several findings on one record count as the most severe of them.

        Raises
        ------
        ValueError
            If the function returned another shape, a negative or a non-finite severity.
        """
        if not batch.rows:
            return np.zeros(0)
        raw = self(batch)
        if isinstance(raw, Findings):
            found = checked(raw, batch, self.name)
            severity = np.zeros(batch.rows)
            np.maximum.at(severity, found.row, found.severity)
            return severity
        return self._severity(raw, batch)[0].astype(np.float64)

    def _severity(self, verdict: Any, batch: Batch) -> tuple[NDArray[Any], float]:
        """Booleans or finite severities >= 0, shape (rows,), and an upper bound (0.0: none fired)."""
        raw: NDArray[Any] = verdict if type(verdict) is np.ndarray else np.asarray(verdict)
        if raw.shape != (batch.rows,):
            raise ValueError(
                f"assertion {self.name!r} must return one value per record, shape ({batch.rows},), "
                f"got shape {raw.shape}"
            )
        if raw.dtype == np.bool_:
            return raw, 1.0
        if raw.dtype == object and all(_is_truth(value) for value in raw):
            # pandas' nullable comparisons: unknown did not fire.
            return np.array([not is_pandas_null(value) and bool(value) for value in raw], dtype=np.bool_), 1.0
        if raw.dtype.kind not in "iuf":
            raise ValueError(f"assertion {self.name!r} must return booleans or severities, got {raw.dtype}")
        if raw.dtype.kind == "f" and raw.dtype != np.float64:
            raw = raw.astype(np.float64)
        highest = _highest(raw)
        if highest is None:
            wrong = ~(np.isfinite(raw) & (raw >= 0))
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"assertion {self.name!r} must return finite severities >= 0, got {float(raw[row])} "
                f"for record {batch.keys[row]!r} ({int(wrong.sum())} such records)"
            )
        return raw, highest


@overload
def assertion(fn: Judge, /) -> Assertion: ...
@overload
def assertion(
    *,
    name: str | None = None,
    level: Level = "warning",
    description: str | None = None,
    owner: str | None = None,
    window: Window | Group | None = None,
    needs: tuple[str, ...] = (),
) -> Callable[[Judge], Assertion]: ...
@overload
def assertion(
    *,
    name: str | None = None,
    level: Level = "warning",
    description: str | None = None,
    owner: str | None = None,
    per_record: Literal[True],
    needs: tuple[str, ...] = (),
) -> Callable[[RecordJudge], Assertion]: ...
def assertion(
    fn: Judge | None = None,
    /,
    *,
    name: str | None = None,
    level: Level = "warning",
    description: str | None = None,
    owner: str | None = None,
    window: Window | Group | None = None,
    per_record: bool = False,
    needs: tuple[str, ...] = (),
) -> Assertion | Callable[[Any], Assertion]:
    """Turn a function of a Batch into an assertion.

    The function returns one value per record: bool (True fired) or a float severity >= 0 (0.0 did not fire);
    or :class:`Findings`, to report events over several records, evidence or corrections.

    Parameters
    ----------
    name
        Defaults to the function's name.
    level
        ``info``, ``warning`` or ``critical``.
    description
        Defaults to the first line of the docstring.
    owner
        Defaults to the docstring's line ``Owner: …``.
    window
        :class:`Window` gives the function each entity's latest records as context, across batches;
        :class:`Group` gives it all records with one key together.
    per_record
        The function takes one record (``record["inputs.age"]``, None where it has no value) and returns one
        value. Python is called per record: about 0.3 µs plus the function's own time, where a function of the
        batch costs some hundredths of a µs; ``outrider doctor`` reports the cost of each assertion.
    needs
        Slots whose answers the function reads, such as ``("judge.grounded",)``; the assertion runs after they
        have answered.

    Examples
    --------
    >>> @assertion(level="critical")
    ... def impossible_age(batch):
    ...     '''Age outside 0 to 120 years.'''
    ...     age = batch.column("inputs.age")
    ...     return (age < 0) | (age > 120)
    >>> batch = Batch.from_records([{"inputs": {"age": 41}}, {"inputs": {"age": -1}}], model="churn")
    >>> impossible_age.severities(batch)
    array([0., 1.])
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    if isinstance(needs, str) or not all(name.startswith("judge.") for name in needs):
        raise ValueError(f'needs must be a tuple of judges such as ("judge.grounded",), got {needs!r}')
    if needs and window is not None:
        raise ValueError("needs and window exclude each other: answers of judges are not kept in windows")
    if per_record and window is not None:
        raise ValueError(
            "per_record=True sees one record alone: a function with window= takes the whole view"
        )

    def make(fn: Callable[[Any], Any]) -> Assertion:
        lines = (inspect.getdoc(fn) or "").splitlines()
        owners = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("owner:")]
        return Assertion(
            fn=fn,
            name=name or str(getattr(fn, "__name__", type(fn).__name__)),
            level=level,
            description=description if description is not None else (lines[0] if lines else ""),
            owner=owner if owner is not None else (owners[0] if owners else ""),
            window=window,
            revision=revision_of(fn, window, per_record=per_record),
            per_record=per_record,
            needs=tuple(needs),
        )

    return make if fn is None else make(fn)


def _highest(values: NDArray[Any]) -> float | None:
    """Largest severity; None if any value is negative or not finite."""
    if values.dtype == np.float64 and values.flags.c_contiguous:
        # One pass: bits of floats >= 0 order as the floats do; infinity, NaN and minus signs lie above.
        top = values.view(np.uint64).max()
        if top < _INFINITY:
            return float(top)
    lowest, highest = values.min(), values.max()  # NaN wins both
    return float(highest) if lowest >= 0 and highest < np.inf else None


def _is_truth(value: object) -> bool:
    return value is None or isinstance(value, bool | np.bool_) or is_pandas_null(value)


def revision_of(fn: Callable[[Any], Any], window: Window | Group | None, *, per_record: bool = False) -> str:
    """Revision of an assertion from its source file.

    Names defined further down the file at decoration time are left out.
    """
    parts: list[str] = [repr(window), *(["per record"] if per_record else [])]
    _collect(fn, parts, seen=set())
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _collect(fn: object, parts: list[str], seen: set[int]) -> None:
    """Append to ``parts`` the syntax of ``fn`` and of everything it uses from its own file."""
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if isinstance(fn, type):
        parts.append(_syntax(fn) or fn.__qualname__)
        return
    if not isinstance(fn, FunctionType):  # an object with __call__: its class, and what it was made with
        _collect(type(fn), parts, seen)
        _collect_settings(fn, parts, seen)
        return
    code = fn.__code__
    # Typed at a prompt, no file holds the source.
    parts.append(_syntax(fn) or code.co_code.hex() + (_text(code.co_consts) or ""))
    parts.extend(_constant(f"default {index}", value) for index, value in enumerate(fn.__defaults__ or ()))
    parts.extend(_constant(name, value) for name, value in sorted((fn.__kwdefaults__ or {}).items()))
    for name, value in _used(fn).items():
        parts.append(_constant(name, value))
        for member in value if isinstance(value, list | tuple) else (value,):
            own = getattr(member, "__module__", None) == fn.__module__
            if isinstance(member, Assertion):
                _collect(member.fn, parts, seen)
            elif own and isinstance(member, FunctionType | type):
                _collect(member, parts, seen)


def _used(fn: FunctionType) -> dict[str, Any]:
    """Globals and closure variables that a function uses, by name."""
    code = fn.__code__
    found = {name: fn.__globals__[name] for name in sorted(_names(code)) if name in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        found[name] = cell.cell_contents if cell != CellType() else None
    return found


def _collect_settings(made: object, parts: list[str], seen: set[int]) -> None:
    for name, value in sorted(_settings(made).items()):
        parts.append(_constant(name, value))
        if isinstance(value, FunctionType) or hasattr(value, "__dict__") or is_dataclass(value):
            _collect(value, parts, seen)


def _settings(made: object) -> dict[str, Any]:
    """Attributes of an object by name, ``__slots__`` included."""
    slots = [name for kind in type(made).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(made, name) for name in slots if hasattr(made, name)}
    return held | dict(getattr(made, "__dict__", {}))


def _syntax(found: FunctionType | type) -> str | None:
    """Syntax of a function or class without comments and docstrings; None if its source is unavailable."""
    try:
        if isinstance(found, FunctionType) and found.__name__ == "<lambda>":
            lines, _ = inspect.findsource(found)
            return lambdas_at("".join(lines), found.__code__.co_firstlineno) or None
        return syntax_text(inspect.getsource(found))
    except (OSError, TypeError, SyntaxError, TokenError):  # run from text that is no Python file
        return None


def _names(code: CodeType) -> set[str]:
    """Global names that a code object uses, nested functions, lambdas and comprehensions included."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    # Under pytest a rewritten assert uses @pytest_ar and @py_builtins: the judgement is the same.
    return {name for name in code.co_names if not name.startswith("@")}.union(*inner)


def _constant(name: str, value: object) -> str:
    text = _text(value)
    return "" if text is None else f"{name}={text}"


def _text(value: object) -> str | None:
    """Text of a constant that is equal in every process; None for values without such a text."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype}{value.shape}{blake2b(value.tobytes(), digest_size=6).hexdigest()}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(item)}' for key, item in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(str(_text(item)) for item in value))}}}"
    if isinstance(value, list | tuple | np.ndarray):
        return f"({', '.join(str(_text(item)) for item in value)})"
    return repr(value) if value is None or isinstance(value, PLAIN) else None
