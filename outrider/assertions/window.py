"""Windows: each entity's latest records as context for the new ones, across batches.

The state is a pure function of the stream: it is rebuilt by feeding the same batches again, so a restart
or a replay judges the same windows.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from .batch import SYSTEM, Batch
from .columns import is_tensor

MIN_IDLE_S = 1.0
"""A batch may join records received within this span without changing any window."""


@dataclass(frozen=True, slots=True)
class Window:
    """The context an assertion sees: the last ``rows`` records of each entity, the judged one included.

    Attributes
    ----------
    by
        Column that names the entity.
    rows
        Records per entity, >= 2.
    columns
        Full column names that the function reads; only these (and the system columns) are kept. Empty
        keeps all.
    idle_s
        An entity silent for longer (by time of receipt) starts anew; seconds, >= 1.
    """

    by: str = "entity"
    rows: int = 5
    columns: tuple[str, ...] = ()
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if self.rows < 2:
            raise ValueError(f"rows must be >= 2, got {self.rows}; one record has no context")
        if self.idle_s < MIN_IDLE_S:
            raise ValueError(f"idle_s must be >= {MIN_IDLE_S:g} s, got {self.idle_s}")


class WindowState:
    """Context rows of one :class:`Window` over one stream of batches.

    Examples
    --------
    >>> frames = Batch.from_columns({"entity": ["a", "a", "a"], "outputs.label": [1, 2, 1]}, model="m")
    >>> state = WindowState(Window(rows=2))
    >>> _ = state.update(frames.slice(0, 2))
    >>> view, positions = state.update(frames.slice(2, 1))
    >>> view.column("outputs.label").tolist(), view.is_new.tolist(), positions.tolist()
    ([2, 1], [False, True], [0])
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._kept: Batch | None = None

    def update(self, batch: Batch) -> tuple[Batch, NDArray[np.intp]]:
        """Context and new records by entity in order of arrival, and remember the latest of each entity.

        Returns
        -------
        Batch
            ``is_new`` marks the records of ``batch``; the others are context.
        positions
            Row number in ``batch`` of each new record of the view, in the view's order.
        """
        new = self._narrow(batch)
        entities = pd.Index(_values(new, self.window.by))
        context, silent = self._recall(new, entities)
        both = Batch.concat([context, new]) if context is not None and context.rows else new
        known = both.rows - new.rows
        order = _order(both, self.window.by)
        view = both.take(order).with_is_new(order >= known)
        positions = order[order >= known] - known
        self._remember(view, silent, newest=new)
        return view, positions.astype(np.intp)

    def _narrow(self, batch: Batch) -> Batch:
        if not self.window.columns:
            return batch
        names = dict.fromkeys([*SYSTEM, self.window.by, *self.window.columns])
        kept = {name: batch.to_arrow().column(name) for name in names if batch.has(name)}
        return Batch.from_columns(kept, model=batch.model, rows=batch.rows)

    def _recall(self, new: Batch, entities: pd.Index) -> tuple[Batch | None, Batch | None]:
        """Kept rows of the batch's entities, and of all others; entities idle for too long are dropped."""
        if self._kept is None or not self._kept.rows or not new.rows:
            return None, self._kept
        kept = _aligned(self._kept, new)
        if kept is None:
            return None, None
        idle = np.timedelta64(timedelta(seconds=self.window.idle_s))
        values = _values(kept, self.window.by)
        latest = pd.Series(kept.column("received")).groupby(values, sort=False).transform("max").to_numpy()
        # An entity's own first new record decides whether it was silent for too long: all of its context
        # stays or goes, so that joining batches changes no window. Of those without a new record, the ones
        # that no later record could continue are forgotten.
        first = pd.Series(new.column("received")).groupby(entities.to_numpy(), sort=False).min()
        returns = first.reindex(values).to_numpy()
        silent = np.isnat(returns)
        recent = latest >= np.where(silent, new.column("received").max(), returns) - idle
        return kept.take(recent & ~silent), kept.take(recent & silent)

    def _remember(self, view: Batch, silent: Batch | None, *, newest: Batch) -> None:
        if not newest.rows:
            return
        values = _values(view, self.window.by)
        codes = pd.factorize(values, use_na_sentinel=False)[0]
        # Rank from the end inside each run of equal entities; the view is sorted by entity.
        last = np.flatnonzero(np.r_[codes[1:] != codes[:-1], True])
        rank = last[np.searchsorted(last, np.arange(len(codes)))] - np.arange(len(codes))
        tail = view.take((rank < self.window.rows - 1) & ~pd.isna(values))
        tail = Batch(tail.to_arrow(), model=view.model)
        same = silent is not None and silent.rows and silent.schema_digest == tail.schema_digest
        self._kept = Batch.concat([silent, tail]) if same and silent is not None else tail


def _values(batch: Batch, name: str) -> NDArray[np.object_]:
    """Entity of every record, None where it has none; a batch without the column has none at all."""
    if not batch.has(name):
        return np.full(batch.rows, None, dtype=object)
    column = batch.to_arrow().column(name)
    if is_tensor(column.type) or pa.types.is_nested(column.type):
        raise ValueError(f"Window(by={name!r}): {column.type} cannot name an entity")
    return np.asarray(column.to_pandas(integer_object_nulls=True), dtype=object)


def _order(batch: Batch, by: str) -> NDArray[np.intp]:
    """Row order by entity (first appearance), then arrival."""
    values = _values(batch, by)
    codes = pd.factorize(values)[0]
    # Records without an entity are alone: each gets a code of its own behind the others.
    alone = codes < 0
    codes = np.where(alone, len(codes) + np.arange(len(codes)), codes)
    order: NDArray[np.intp] = np.argsort(codes, kind="stable")
    return order


def _aligned(kept: Batch, new: Batch) -> Batch | None:
    """``kept`` in the schema of ``new``: absent columns are null; a changed type ends the windows."""
    if kept.schema_digest == new.schema_digest:
        return kept
    target = new.to_arrow().schema
    source = kept.to_arrow()
    columns: dict[str, pa.Array] = {}
    for field in target:
        index = source.schema.get_field_index(field.name)
        if index >= 0 and source.schema.field(index).type != field.type:
            return None
        columns[field.name] = source.column(index) if index >= 0 else pa.nulls(kept.rows, field.type)
    return Batch.from_columns(columns, model=kept.model, rows=kept.rows)
