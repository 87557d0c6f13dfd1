"""Checker: run assertions over a batch, inline in a notebook or service."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .assertion import Assertion
from .batch import Batch
from .batch.columns import series_values
from .batch.pandas_types import is_frame
from .flags import FiredRows, Flags, flags_of, found_in
from .loading import expanded
from .stream import StreamingChecker
from .windows.group import Group
from .windows.state import View, WindowState
from .windows.window import Window


class Assertions(Protocol):
    """Object that expands to several assertions."""

    @property
    def assertions(self) -> tuple[Assertion, ...]:
        """Assertions, in order."""


class Checker:
    """Fixed list of assertions to run over batches.

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

    def __init__(self, assertions: Sequence[Assertion | Assertions]) -> None:
        self.assertions = tuple(expanded(assertions))
        names = [judge.name for judge in self.assertions]
        if len(set(names)) != len(names):
            raise ValueError(f"assertion names must be unique, got {names}")

    def check(self, batch: Batch) -> Flags:
        """Judge all records of a batch.

        Windows and groups see this batch alone and are closed at its end.

        Raises
        ------
        ValueError
            If an assertion returns a wrong shape or severity.
        """
        found: list[FiredRows] = []
        views: dict[Window | Group, list[View]] = {}
        in_order = True
        for code, judge in enumerate(self.assertions):
            window = judge.window
            if window is None:
                found.append(found_in(judge, code, batch.own(), None, {}))
                continue
            in_order, seen = False, dict[str | int, None]()
            if window not in views:
                views[window] = WindowState(window).update(batch, ends=True)
            found += [found_in(judge, code, view.batch.own(), view.positions, seen) for view in views[window]]
        return flags_of(batch, self.assertions, found, in_order=in_order)

    def stream(self, checkpoint: bytes | None = None) -> StreamingChecker:
        """Checker for successive batches, as in the service. Continues from ``checkpoint`` if given."""
        if checkpoint is None:
            return StreamingChecker(self.assertions)
        return StreamingChecker.restore(self.assertions, checkpoint)

    def wrap(
        self,
        predict: Callable[[Any], Any],
        *,
        model: str = "model",
        on_flags: Callable[[Flags], None] | None = None,
    ) -> "CheckedPredict":
        """Wrap a predict function to check its inputs and outputs.

        ``.flags`` of the wrapped function holds the flags of its last call.

        Parameters
        ----------
        predict
            Takes a DataFrame, a mapping of columns, an array or a Batch; returns a mapping of columns, a
            DataFrame, or an array (taken as ``outputs.label``).
        on_flags
            Called with the flags of each call in which an assertion fired.
        """
        return CheckedPredict(self, predict, model, on_flags)


class CheckedPredict:
    """Predict function that :meth:`Checker.wrap` returns. ``flags`` holds the flags of the last call."""

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
        """Call the wrapped function and judge its answers."""
        answers = self._predict(inputs)
        batch = _as_batch(inputs, model=self._model).with_outputs(_as_columns(answers, "label"))
        self.flags = self._checker.check(batch)
        if self._on_flags is not None and len(self.flags):
            self._on_flags(self.flags)
        return answers


def severities_of(judge: Assertion, batch: Batch) -> NDArray[np.float64]:
    """Severities of one batch, shape (rows,). Windows see this batch alone."""
    if judge.window is None:
        return judge.severities(batch.own())
    severity = np.zeros(batch.rows)
    for view in WindowState(judge.window).update(batch, ends=True):
        found = judge.findings(view.batch)
        np.maximum.at(severity, view.positions[found.row], found.severity)
    return severity


def _as_columns(values: Any, name: str) -> dict[str, Any]:
    if is_frame(values):
        return {str(column): series_values(values[column]) for column in values}
    if isinstance(values, Mapping):
        return {str(column): np.asarray(value) for column, value in values.items()}
    return {name: np.asarray(values)}


def _as_batch(inputs: Any, *, model: str) -> Batch:
    if isinstance(inputs, Batch):
        return inputs
    columns = _as_columns(inputs, "x")
    return Batch.from_columns({f"inputs.{name}": values for name, values in columns.items()}, model=model)
