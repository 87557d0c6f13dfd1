"""What an assertion is: a function of a Batch that gives every record a severity."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from .batch import Batch
from .window import Window

Level = Literal["info", "warning", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
Floats = NDArray[np.float64]
Judge = Callable[[Batch], Any]


@dataclass(frozen=True, slots=True)
class Assertion:
    """A named judgement of records; made by :func:`assertion`, still callable as the function it was.

    Attributes
    ----------
    revision
        Twelve hex digits over the function's source, the constants and functions of its file that it
        uses, and its window: a changed judgement has a new revision.
    """

    fn: Judge
    name: str
    level: Level
    description: str
    owner: str
    window: Window | None
    revision: str

    def __call__(self, batch: Batch) -> Any:
        """Verdicts as the function itself returns them."""
        return self.fn(batch)

    def severities(self, batch: Batch) -> Floats:
        """Severity of every record of ``batch``, shape (rows,); 0.0 did not fire.

        Raises
        ------
        ValueError
            If the function returned another shape, a negative or a non-finite severity.
        """
        raw = np.asarray(self.fn(batch))
        if raw.shape != (batch.rows,):
            raise ValueError(
                f"assertion {self.name!r} must return one value per record, shape ({batch.rows},), "
                f"got shape {raw.shape}"
            )
        if raw.dtype == object and all(value is None or isinstance(value, bool) for value in raw):
            raw = raw.astype(np.bool_)  # pandas' nullable comparisons: unknown did not fire
        if raw.dtype.kind not in "biuf":
            raise ValueError(f"assertion {self.name!r} must return booleans or severities, got {raw.dtype}")
        severity = raw.astype(np.float64)
        wrong = ~(np.isfinite(severity) & (severity >= 0))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"assertion {self.name!r} must return finite severities >= 0, got {severity[row]} "
                f"for record {batch.keys[row]!r} ({int(wrong.sum())} such records)"
            )
        return severity


@overload
def assertion(fn: Judge, /) -> Assertion: ...
@overload
def assertion(
    *,
    name: str | None = None,
    level: Level = "warning",
    description: str | None = None,
    owner: str | None = None,
    window: Window | None = None,
) -> Callable[[Judge], Assertion]: ...
def assertion(
    fn: Judge | None = None,
    /,
    *,
    name: str | None = None,
    level: Level = "warning",
    description: str | None = None,
    owner: str | None = None,
    window: Window | None = None,
) -> Assertion | Callable[[Judge], Assertion]:
    """Turn a function of a Batch into an assertion.

    The function returns one value per record: bool (True fired) or a float severity >= 0 (0.0 did not fire).

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
        Give the function each entity's latest records as context, across batches; see :class:`Window`.

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

    def make(fn: Judge) -> Assertion:
        lines = (inspect.getdoc(fn) or "").splitlines()
        owners = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("owner:")]
        return Assertion(
            fn=fn,
            name=name or str(getattr(fn, "__name__", type(fn).__name__)),
            level=level,
            description=description if description is not None else (lines[0] if lines else ""),
            owner=owner if owner is not None else (owners[0] if owners else ""),
            window=window,
            revision=revision_of(fn, window),
        )

    return make if fn is None else make(fn)


def revision_of(fn: Judge, window: Window | None) -> str:
    """Digest of a judgement; what stands below the function in its file counts once the file has run."""
    parts: list[str] = [repr(window)]
    _collect(fn, parts, seen=set())
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _collect(fn: object, parts: list[str], seen: set[int]) -> None:
    """Append the source of ``fn`` and of what it uses from its own file."""
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if not isinstance(fn, FunctionType):
        parts.append(repr(type(fn)))
        return
    try:
        parts.append(inspect.getsource(fn))
    except (OSError, TypeError):  # typed at a prompt: no file holds its source
        parts.append(fn.__code__.co_code.hex())
        for number, constant in enumerate(fn.__code__.co_consts):
            _collect_value(f"const {number}", constant, fn.__module__, parts, seen)
    for used in sorted(_names(fn.__code__)):
        if used in fn.__globals__:
            _collect_value(used, fn.__globals__[used], fn.__module__, parts, seen)


def _collect_value(name: str, value: object, module: str, parts: list[str], seen: set[int]) -> None:
    """Append a constant, or the source of a function of the same file; collections member by member."""
    if isinstance(value, FunctionType):
        parts.append(f"{name}: {value.__qualname__}")
        if value.__module__ == module:
            _collect(value, parts, seen)
    elif isinstance(value, bool | int | float | str | bytes | None):
        parts.append(f"{name}={value!r}")
    elif isinstance(value, np.ndarray):
        parts.append(f"{name}={blake2b(value.tobytes(), digest_size=6).hexdigest()}")
    elif isinstance(value, CodeType):
        parts.append(f"{name}={value.co_code.hex()}")
    elif isinstance(value, set | frozenset):
        parts.append(f"{name}={sorted(map(repr, value))}")  # their order changes from process to process
    elif isinstance(value, list | tuple | dict) and id(value) not in seen:
        seen.add(id(value))
        parts.append(f"{name}: {type(value).__name__} of {len(value)}")
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, member in members:
            _collect_value(f"{name}[{key!r}]", member, module, parts, seen)


def _names(code: CodeType) -> set[str]:
    """Global names that a function uses, its lambdas and inner functions included."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)
