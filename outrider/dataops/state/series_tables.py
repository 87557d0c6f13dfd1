"""Tables of counts over time: measures, outcomes, minutes of blocks, drift."""

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel


class MeasureCount(SQLModel, table=True):
    """Histogram of one measure per judged version, slice and minute of receipt.

    Counts and totals are exact; buckets are those of ``ledger.measures``. Rows of earlier hours hold an hour
    or a day (``ledger.roll_up``).
    """

    __tablename__ = "measure_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True)
    measure: str = Field(primary_key=True)
    """``latency_s``, ``live:<test>``, ``agreement``, ``abs_error`` …"""
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True)
    slice: str = Field(primary_key=True)
    bucket: int = Field(primary_key=True)
    records: int
    weight: float
    """Sum of the records' weights, and of their squares in ``squares``."""
    squares: float
    total: float
    """Weighted sum of the values."""


class OutcomeCount(SQLModel, table=True):
    """Labelled records per answer, label, confidence, version, slice and minute.

    Of the record, whenever its label came; the label that counts now. Rows of earlier hours as in
    :class:`MeasureCount`.
    """

    __tablename__ = "outcome_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True)
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True)
    slice: str = Field(primary_key=True)
    predicted: str = Field(primary_key=True)
    label: str = Field(primary_key=True)
    """``predicted`` and ``label``: classes by name, or what ``ledger.outcomes`` folds others into."""
    hit: bool = Field(primary_key=True)
    bucket: int = Field(primary_key=True)
    """Of the confidence, in 1/50; -1 where there is none."""
    records: int
    weight: float
    squares: float
    confidence: float
    """Weighted sum of the confidences, and of (confidence - hit)² in ``brier``."""
    brier: float


class MinuteBlock(SQLModel, table=True):
    """First block of each minute of receipt, for labels to come."""

    __tablename__ = "minute_block"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    minute_us: int


class DriftState(SQLModel, table=True):
    """State of the watch over a model's columns, and its reference."""

    __tablename__ = "drift_state"
    model: str = Field(primary_key=True)
    width_s: int
    """Of the windows."""
    streams: str
    """Shares and slices as JSON; written with the reference alone, for erasure may clean it."""
    payload: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
