"""Tables of counts over time: measures, outcomes, minutes of blocks, drift."""

from sqlmodel import SQLModel

from .columns import Field


class MeasureCount(SQLModel, table=True):
    """Histogram of one measure per judged version, slice and minute of receipt.

    Counts and totals are exact; buckets are those of ``ledger.measures``. Rows of earlier hours hold an hour
    or a day (``ledger.roll_up``).
    """

    __tablename__ = "measure_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    measure: str = Field(primary_key=True, erase="kept")
    """``latency_s``, ``live:<test>``, ``agreement``, ``abs_error`` …"""
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="slice")
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
    model: str = Field(primary_key=True, erase="kept")
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="slice")
    predicted: str = Field(primary_key=True, erase="class")
    label: str = Field(primary_key=True, erase="class")
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


class GroupCount(SQLModel, table=True):
    """Records per declared group, answer, label, version and minute.

    Rows that are not ``is_labelled`` are of all answered records; the others as in :class:`OutcomeCount`.
    """

    __tablename__ = "group_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    minute_us: int = Field(primary_key=True)
    attribute: str = Field(primary_key=True, erase="kept")
    """As declared in ``group_by``."""
    version: str = Field(primary_key=True, erase="kept")
    part: str = Field(primary_key=True, erase="group")
    """Group: ``sex=f``, ``sex=(missing)``, or ``__other__``."""
    is_labelled: bool = Field(primary_key=True)
    predicted: str = Field(primary_key=True, erase="class")
    label: str = Field(primary_key=True, erase="class")
    """``predicted`` and ``label``: as in :class:`OutcomeCount`; without a label empty."""
    hit: bool = Field(primary_key=True)
    records: int
    entities: int
    """Of all records: entities, each once a minute and answer. Of labelled ones 0."""
    weight: float
    squares: float


class ScoreCount(SQLModel, table=True):
    """Labelled records per class, score of that class, version, slice and minute.

    Each record counts once for every class; as :class:`OutcomeCount` otherwise.
    """

    __tablename__ = "score_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="slice")
    of_class: str = Field(primary_key=True, erase="kept")
    place: int = Field(primary_key=True)
    """Of the class and its bucket in ``record.class_scores``."""
    bucket: int = Field(primary_key=True)
    is_label: bool = Field(primary_key=True)
    records: int
    weight: float
    squares: float


class DeclaredTarget(SQLModel, table=True):
    """Declared kind of a model's target, number or class."""

    __tablename__ = "declared_target"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    is_number: bool


class LossBlock(SQLModel, table=True):
    """Block of a version's labelled observations, in order of first labels."""

    __tablename__ = "loss_block"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    block: int = Field(primary_key=True)
    begun_us: int
    """When its first label came, and its last one in ``ended_us``."""
    ended_us: int
    record_us: int
    """Receipt of the first of its records to be labelled, and of its newest one in ``newest_us``."""
    newest_us: int
    observations: int
    entities: str = Field(default="", erase="cleared_model")
    """Hashes of the entities that it has counted, while it is open."""
    bound: int | None = None
    """Bucket above which an error is a loss; None up to the block in which enough errors were known."""


class LossCount(SQLModel, table=True):
    """Observations of a block by slice, weight and error.

    The error is that of the first label.
    """

    __tablename__ = "loss_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    block: int = Field(primary_key=True)
    slice: str = Field(primary_key=True, erase=("slice", "label_slice"))
    weight: int = Field(primary_key=True)
    """Class of the weight (``assertions.bets``)."""
    bucket: int = Field(primary_key=True)
    """Of the absolute error (``ledger.measures``); 0 of a right class, -1 of a wrong one."""
    records: int


class MinuteBlock(SQLModel, table=True):
    """First block of each minute of receipt, for labels to come."""

    __tablename__ = "minute_block"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    minute_us: int


class FirstSeen(SQLModel, table=True):
    """First minute of a version, prompt, client or configuration of a model."""

    __tablename__ = "first_seen"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    """Empty for a configuration."""
    kind: str = Field(primary_key=True, erase="kept")
    name: str = Field(primary_key=True, erase="kept")
    at_us: int


class DriftState(SQLModel, table=True):
    """State of the watch over a model's columns, and its reference."""

    __tablename__ = "drift_state"
    model: str = Field(primary_key=True, erase="kept")
    width_s: int
    """Of the windows."""
    streams: str = Field(erase="quotes")
    """Shares and slices as JSON; written with the reference alone, for erasure may clean it."""
    payload: bytes = Field(erase="kept")


class StatedDimension(SQLModel, table=True):
    """Sums of a dimension of stated values (``ledger.stated_values``), which halve every day."""

    __tablename__ = "stated_dimension"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    dimension: str = Field(primary_key=True, erase="kept")
    """``version``, ``slice``, ``answer``, ``label`` or ``group:`` with its attribute."""
    minute_us: int
    total: int
    folded: int
    """Of records counted under ``__other__``."""
    error: int


class StatedValue(SQLModel, table=True):
    """Stated value with a place, or one that may get one.

    Two days after its last record it goes.
    """

    __tablename__ = "stated_value"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    dimension: str = Field(primary_key=True, erase="kept")
    value: str = Field(primary_key=True, erase="stated")
    count: int
    met_us: int
    """Minute in which it was last met."""
    is_named: bool
