"""Run assertions over a batch, inline in a notebook, a test or a service of one's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from outrider.errors import OutriderError

from .assertion import LEVELS, Assertion, Level
from .batch import Batch
from .columns import series_values
from .window_state import WindowState


class AssertionsFired(OutriderError):  # noqa: N818 - reads as the event it is
    """Assertions of the asked level fired; ``flags`` holds them."""

    def __init__(self, message: str, flags: "Flags") -> None:
        super().__init__(message)
        self.flags = flags


@dataclass(frozen=True, slots=True)
class Flags:
    """What fired, as aligned columns sorted by assertion, then record.

    Attributes
    ----------
    batch
        The judged records.
    row
        Row number in ``batch``, shape (flags,).
    code
        Index into ``assertions``, shape (flags,).
    severity
        Greater than 0, shape (flags,).
    """

    batch: Batch
    assertions: tuple[Assertion, ...]
    row: NDArray[np.int64]
    code: NDArray[np.int64]
    severity: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def counts(self) -> dict[str, int]:
        """Flags per assertion, those that did not fire included."""
        counted = np.bincount(self.code, minlength=len(self.assertions))
        return {judge.name: int(count) for judge, count in zip(self.assertions, counted, strict=True)}

    def to_pandas(self) -> pd.DataFrame:
        """One line per flag: ``id assertion level severity`` and ``row``."""
        names = np.array([judge.name for judge in self.assertions], dtype=object)
        levels = np.array([judge.level for judge in self.assertions], dtype=object)
        return pd.DataFrame(
            {
                "id": self.batch.keys[self.row],
                "assertion": names[self.code],
                "level": levels[self.code],
                "severity": self.severity,
                "row": self.row,
            }
        )

    def raise_for(self, level: Level = "critical") -> "Flags":
        """Raise when an assertion of at least ``level`` fired; else return the flags.

        Raises
        ------
        AssertionsFired
            With the count per assertion and the first records.
        """
        worst = [index for index, judge in enumerate(self.assertions) if _rank(judge.level) >= _rank(level)]
        fired = np.isin(self.code, worst)
        if fired.any():
            frame = self.to_pandas()[fired]
            lines = [
                f"{name} ({group['level'].iloc[0]}): {len(group)} records, first {group['id'].iloc[0]!r}"
                for name, group in frame.groupby("assertion", sort=False)
            ]
            raise AssertionsFired("; ".join(lines), self)
        return self


class Checker:
    """A fixed list of assertions to run over batches.

    Examples
    --------
    >>> from outrider.assertions import assertion
    >>> @assertion
    ... def unsure(batch):
    ...     return batch.column("outputs.score") < 0.6
    >>> batch = Batch.from_records([{"id": "a", "outputs": {"score": 0.5}}], model="churn")
    >>> Checker([unsure]).check(batch).counts
    {'unsure': 1}
    """

    def __init__(self, assertions: Sequence[Assertion]) -> None:
        names = [judge.name for judge in assertions]
        if len(set(names)) != len(names):
            raise ValueError(f"assertion names must be unique, got {names}")
        self.assertions = tuple(assertions)

    def check(self, batch: Batch) -> Flags:
        """Judge every record; windows see this batch alone.

        Raises
        ------
        ValueError
            If an assertion returns a wrong shape or severity.
        """
        rows, codes, severities = [], [], []
        for code, judge in enumerate(self.assertions):
            severity = severities_of(judge, batch)
            fired = np.flatnonzero(severity)
            rows.append(fired)
            codes.append(np.full(len(fired), code, dtype=np.int64))
            severities.append(severity[fired])
        empty = np.zeros(0)
        return Flags(
            batch=batch,
            assertions=self.assertions,
            row=np.concatenate([*rows, empty]).astype(np.int64),
            code=np.concatenate([*codes, empty]).astype(np.int64),
            severity=np.concatenate([*severities, empty]),
        )

    def wrap(
        self,
        predict: Callable[[Any], Any],
        *,
        model: str = "model",
        on_flags: Callable[[Flags], None] | None = None,
    ) -> "CheckedPredict":
        """Predict function that also checks what goes in and comes out; ``.flags`` holds the last call's.

        Parameters
        ----------
        predict
            Takes a DataFrame, a mapping of columns, an array or a Batch; returns a mapping of columns, a
            DataFrame, or an array (taken as ``outputs.label``).
        on_flags
            Called with the flags of each call in which something fired.
        """
        return CheckedPredict(self, predict, model, on_flags)


class CheckedPredict:
    """What :meth:`Checker.wrap` returns: answers like the function inside, and keeps the flags."""

    def __init__(
        self,
        checker: Checker,
        predict: Callable[[Any], Any],
        model: str,
        on_flags: Callable[[Flags], None] | None,
    ) -> None:
        self._checker = checker
        self._predict = predict
        self._model = model
        self._on_flags = on_flags
        self.flags: Flags | None = None

    def __call__(self, inputs: Any) -> Any:
        """Answer like the wrapped function, and judge."""
        answers = self._predict(inputs)
        batch = _as_batch(inputs, model=self._model).with_outputs(_as_columns(answers, "label"))
        self.flags = self._checker.check(batch)
        if self._on_flags is not None and len(self.flags):
            self._on_flags(self.flags)
        return answers


def severities_of(judge: Assertion, batch: Batch) -> NDArray[np.float64]:
    """Severities of one assertion over one batch taken alone, windowed or not, shape (rows,)."""
    if judge.window is None:
        # A batch of its own: what one assertion caches or mutates, no other sees.
        return judge.severities(batch.slice(0))
    severity = np.zeros(batch.rows)
    for view in WindowState(judge.window).update(batch, ends=True):
        found = judge.findings(view.batch)
        np.maximum.at(severity, view.positions[found.row], found.severity)
    return severity


def _rank(level: Level) -> int:
    return LEVELS.index(level)


def _as_columns(values: Any, name: str) -> dict[str, Any]:
    if isinstance(values, pd.DataFrame):
        return {str(column): series_values(values[column]) for column in values}
    if isinstance(values, Mapping):
        return {str(column): np.asarray(value) for column, value in values.items()}
    return {name: np.asarray(values)}


def _as_batch(inputs: Any, *, model: str) -> Batch:
    if isinstance(inputs, Batch):
        return inputs
    columns = _as_columns(inputs, "x")
    return Batch.from_columns({f"inputs.{name}": values for name, values in columns.items()}, model=model)
