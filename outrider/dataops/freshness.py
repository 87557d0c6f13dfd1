"""How old records were at their verdict, as the worker last noted it: what the page and ``doctor`` show."""

from dataclasses import astuple, dataclass, fields

from sqlalchemy import Connection, select

from .ledger import upsert_rows
from .tables import Freshness, table_of


@dataclass(frozen=True, slots=True)
class FreshnessView:
    """Figures of the last minute that had records.

    Attributes
    ----------
    slo_s
        Objective; None where the model has none.
    p50_s, p99_s
        Quantiles of the age at verdict in seconds.
    share
        Of the records that are admitted, in (0, 1].
    measure
        What is shed now: ``none``, ``live_tests``, ``challengers``, ``judges``, ``sampling`` or ``skip``.
    """

    model: str
    slo_s: float | None
    records: int
    p50_s: float
    p99_s: float
    share: float
    measure: str
    at_us: int


def note(connection: Connection, view: FreshnessView) -> None:
    """Replace what is known of a model, in the caller's transaction."""
    columns = [field.name for field in fields(FreshnessView)]
    upsert_rows(
        connection, Freshness, columns, [astuple(view)], key=1, change=lambda name: f"excluded.{name}"
    )


def read(connection: Connection, model: str) -> FreshnessView | None:
    """What is known of a model; None before its first record."""
    table = table_of(Freshness)
    row = connection.execute(select(table).where(table.c.model == model)).first()
    return None if row is None else FreshnessView(**row._mapping)
