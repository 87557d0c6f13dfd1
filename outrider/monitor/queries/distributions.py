"""Numeric columns, from the sketches of the newest hour."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from outrider.dataops.ledger.sketches import quantiles
from outrider.dataops.state.tables import Sketch, table_of

RANKS = [0.05, 0.5, 0.95]


@dataclass(frozen=True, slots=True)
class ColumnView:
    """Numeric column in one receive hour: rows, nulls (non-finite too), quantiles."""

    column: str
    hour_us: int
    rows: int
    nulls: int
    low: float
    """5 % of the values lie below; nan without values."""
    median: float
    high: float
    """5 % of the values lie above."""


def read_columns(connection: Connection, model: str) -> tuple[ColumnView, ...]:
    """Columns of the champion in the newest hour with any, by name."""
    sketch = table_of(Sketch)
    here = sketch.c.model == model, sketch.c.slot == "champion"
    newest = connection.scalar(select(func.max(sketch.c.hour_us)).where(*here))
    rows = connection.execute(
        select(sketch).where(*here, sketch.c.hour_us == newest).order_by(sketch.c.column)
    )
    return tuple(
        ColumnView(row.column, row.hour_us, row.rows, row.nulls, *quantiles(row.payload, RANKS))
        for row in rows
    )
