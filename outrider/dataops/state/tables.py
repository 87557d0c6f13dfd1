"""Tables of ``state.db``.

Everything that must survive a restart, and the cursors beside it.

One database, so that the worker's answers, flags, counters and cursor commit in one transaction. Tables of
the improvement loop stand in `outrider.dataops.state.improvement_tables`. SQLModel classes stay inside
``dataops``; queries and hot paths use the core tables (:func:`table_of`).
Times are integer microseconds since the epoch, UTC: their column names end in ``_us``.
"""

from functools import cache

from sqlalchemy import JSON, Index, PrimaryKeyConstraint, Table, text
from sqlmodel import SQLModel

from .columns import Field


def table_of(model: type[SQLModel]) -> Table:
    """Core table of a SQLModel class, for queries and hot paths."""
    table: Table = model.__table__  # type: ignore[attr-defined]  # added by SQLModel's metaclass
    return table


@cache
def columns_of(model: type[SQLModel]) -> tuple[str, ...]:
    """Columns of a table in order, except keys that the database numbers."""
    given = table_of(model).autoincrement_column
    return tuple(name for name in model.model_fields if given is None or name != given.name)


class Meta(SQLModel, table=True):
    """Facts of the database itself, such as its ``journal_uuid``."""

    __tablename__ = "meta"
    key: str = Field(primary_key=True, erase="kept")
    value: str = Field(erase="kept")


class Cursor(SQLModel, table=True):
    """Last journal block whose effects are committed, per model and slot."""

    __tablename__ = "cursor"
    model: str = Field(primary_key=True, erase="kept")
    slot: str = Field(primary_key=True, erase="kept")
    seq: int


class Backfill(SQLModel, table=True):
    """Blocks that the champion skipped for its objective, or owes answers to.

    Judged later, from ``at_seq`` on.
    """

    __tablename__ = "backfill"
    __table_args__ = (Index("backfill_open", "model", "slot", "done_us"),)
    id: int | None = Field(default=None, primary_key=True)
    model: str = Field(erase="kept")
    slot: str = Field(erase="kept")
    reason: str = Field(erase="kept")
    after_seq: int
    """Blocks with ``after_seq < seq <= until_seq`` were skipped."""
    until_seq: int
    records: int
    at_seq: int
    """Last block of the range that has been judged since."""
    passed: int = 0
    """Records up to there that the journal still had."""
    version: str | None = Field(default=None, erase="kept")
    """Champion that judges it: another one continues in a row of its own."""
    created_us: int
    done_us: int | None = None


class Freshness(SQLModel, table=True):
    """Age of the champion's records at their verdict. Within the last minute that had any."""

    __tablename__ = "freshness"
    model: str = Field(primary_key=True, erase="kept")
    slo_s: float | None = None
    records: int
    p50_s: float
    p99_s: float
    share: float
    """Of the records that are admitted."""
    measure: str = Field(erase="kept")
    """What is shed now, as ``monitor.admission.Measure`` names it."""
    at_us: int


class Pause(SQLModel, table=True):
    """Pause of a model by a person: ``shadow`` or ``live-tests``. Capture always goes on."""

    __tablename__ = "pause"
    model: str = Field(primary_key=True, erase="kept")
    """``""`` for every model."""
    what: str = Field(primary_key=True, erase="kept")
    who: str = Field(erase="kept")
    since_us: int


class Record(SQLModel, table=True):
    """Location of a record in the journal, and its counts' keys. The payload stays in the journal."""

    __tablename__ = "record"
    __table_args__ = (
        Index("record_block", "model", "seq"),
        Index("record_entity", "model", "entity", "ts_us", sqlite_where=text("entity IS NOT NULL")),
    )
    model: str = Field(primary_key=True, erase="kept")
    id: str = Field(primary_key=True, erase="record")
    seq: int
    row: int
    ts_us: int
    digest: int = Field(erase="with_row")
    version: str | None = Field(default=None, erase="kept")
    entity: str | None = Field(default=None, erase="with_row")
    slice: str | None = Field(default=None, erase="with_row")
    """Value of the model's ``slice_by`` attribute, as counts name it."""
    predicted: str | None = Field(default=None, erase="with_row")
    """``outputs.<target>`` as text: what labels are compared with."""
    weight: float = 1.0
    by_replica: bool | None = None
    """Whether the champion's replica gave the judged answer, because production said nothing; None without
    any answer."""
    confidence: int | None = None
    """In ``predicted``, in 1/10,000; None where the answer has none in [0, 1]."""
    is_unnamed: bool | None = None
    """Whether counts have its stated version under ``__other__``; None for no."""
    class_scores: bytes | None = Field(default=None, erase="with_row")
    """Score of each class in steps of log-odds, a byte each; None but for three to fifty classes."""
    groups: str | None = Field(default=None, erase="with_row")
    """Groups of ``group_by`` as counts name them, JSON by attribute; None where none is declared."""
    is_other_class: bool | None = None
    """Whether counts have its answer under ``__other__``; None for no."""


class ExpiredRecord(SQLModel, table=True):
    """Hash of an expired record's id. Repeats and late labels are told by the hash."""

    __tablename__ = "expired_record"
    __table_args__ = ({"sqlite_with_rowid": False},)
    hash: bytes = Field(primary_key=True, erase="id_hash")
    day: int
    """When it went, in days since the epoch."""


class BlockAge(SQLModel, table=True):
    """Receive time of a journal block, which may have expired. One an hour."""

    __tablename__ = "block_age"
    model: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    received_us: int


class Answer(SQLModel, table=True):
    """Answers of one model version to one journal block. An Arrow IPC batch of ``outputs.*``, row-aligned."""

    __tablename__ = "answer"
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    payload: bytes = Field(erase="answers")


class JudgedBlock(SQLModel, table=True):
    """Marks of a journal block's records: judged, flagged.

    Written while challengers run. Of the champion's slot, one row per version that answered.
    """

    __tablename__ = "judged_block"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    slot: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    """Whose answers were judged."""
    marks: bytes = Field(erase="kept")
    """One byte per row of the block, as ``ledger.flag_marks`` names its bits."""


class AssertionRow(SQLModel, table=True):
    """Assertion or live behavioral test, one row per revision. As the host offers them."""

    __tablename__ = "assertion"
    model: str = Field(primary_key=True, erase="kept")
    name: str = Field(primary_key=True, erase="kept")
    revision: str = Field(primary_key=True, erase="kept")
    kind: str = Field(erase="kept")
    """``assertion`` or ``live_test``."""
    level: str = Field(erase="kept")
    description: str = Field(erase="kept")
    owner: str = Field(erase="kept")
    active: bool = True
    suspended_until_us: int = 0
    suspension: str = Field(default="", erase="kept")
    """Why a person suspended it; empty when its strikes did."""
    first_seen_us: int = 0
    first_seq: int = 0
    """Last journal block that was judged before this revision came."""
    definition: str = Field(default="", erase="kept")
    """JSON of a live test: kind, capability and expectation (null where that is a function)."""
    window_by: str = Field(default="", erase="kept")
    """Column that names the entities of its window; empty without a window."""
    judged_us: int = 0
    """When it last gave verdicts on production's answers, to the minute; 0 for never."""
    reads: str = Field(default="[]", erase="kept")
    """JSON of the columns that it was seen to read."""
    of_sender: bool = False
    """It reads inputs and attributes alone: what it flags is the sender's, whatever the model answers."""


class Strike(SQLModel, table=True):
    """Failure of an assertion to give verdicts. Raised, deadline, died, wrong shape, out of memory."""

    __tablename__ = "strike"
    __table_args__ = (Index("strike_reason", "model", "reason"),)
    id: int | None = Field(default=None, primary_key=True)
    model: str = Field(erase="kept")
    assertion: str = Field(erase="kept")
    at_us: int
    seq: int
    reason: str = Field(erase="kept")
    detail: str = Field(erase="quotes")
    slot: str = Field(erase="kept")
    """Whose records it was judging."""


class Flag(SQLModel, table=True):
    """Subject on which an assertion fired. ``id`` digests its identity, so a replay adds none."""

    __tablename__ = "flag"
    __table_args__ = (
        Index("flag_of_record", "model", "record_id"),
        Index("flag_order", "model", "seq", "row"),
        Index("flag_assertion", "model", "assertion", "seq"),
    )
    id: str = Field(primary_key=True, erase="with_row")
    model: str = Field(erase="kept")
    record_id: str = Field(erase="record")
    assertion: str = Field(erase="kept")
    revision: str = Field(erase="kept")
    slot: str = Field(erase="kept")
    version: str | None = Field(default=None, erase="kept")
    """The judged model version."""
    severity: float
    level: str = Field(erase="kept")
    evidence: str | None = Field(default=None, erase="quotes")
    """JSON, for example the perturbed input and its answer."""
    seq: int
    row: int
    ts_us: int


class FlagRecord(SQLModel, table=True):
    """Further record of a flag. Frames of a gap, records of a group."""

    __tablename__ = "flag_record"
    __table_args__ = (Index("flag_record_member", "model", "record_id"),)
    flag_id: str = Field(primary_key=True, erase="flag")
    record_id: str = Field(primary_key=True, erase="record")
    model: str = Field(erase="kept")
    seq: int
    row: int


class FlagCount(SQLModel, table=True):
    """Exact number of flags per revision, slot, slice, minute and version.

    Minutes are of receive time. Rows of earlier weeks hold an hour or a day (``ledger.roll_up``).
    """

    __tablename__ = "flag_count"
    __table_args__ = (
        PrimaryKeyConstraint("model", "slot", "assertion", "minute_us", "version", "slice", "revision"),
        Index("flag_count_time", "model", "slot", "minute_us"),
        {"sqlite_with_rowid": False},
    )
    model: str = Field(primary_key=True, erase="kept")
    slot: str = Field(primary_key=True, erase="kept")
    assertion: str = Field(primary_key=True, erase="kept")
    revision: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="slice")
    """Value of the model's ``slice_by`` attribute; empty when there is none."""
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    """The judged one; empty where it is not known."""
    flags: int
    kept: int
    """How many of them stand in ``flag`` with their evidence: in a storm a seeded sample."""
    entities: int
    """Entities among them, each once a minute; a record without one is its own."""


class RecordCount(SQLModel, table=True):
    """Exact number of records per slice, minute and judged version.

    Those that the champion's slot judged; minutes as in :class:`FlagCount`.
    """

    __tablename__ = "record_count"
    __table_args__ = (
        PrimaryKeyConstraint("model", "minute_us", "version", "slice"),
        {"sqlite_with_rowid": False},
    )
    model: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="slice")
    """As in :class:`FlagCount`."""
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    """As in :class:`FlagCount`."""
    records: int
    entities: int
    """As in :class:`FlagCount`."""


class VersionCount(SQLModel, table=True):
    """Records of the last hour by stated version and minute of receipt."""

    __tablename__ = "version_count"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    minute_us: int = Field(primary_key=True)
    version: str = Field(primary_key=True, erase="kept")
    records: int


class Review(SQLModel, table=True):
    """Review of a flag by a person: was the model wrong?."""

    __tablename__ = "review"
    __table_args__ = (Index("review_assertion", "model", "assertion"),)
    flag_id: str = Field(primary_key=True, erase="flag")
    model: str = Field(erase="kept")
    assertion: str = Field(erase="kept")
    is_error: bool
    source: str = Field(erase="kept")
    note: str = Field(default="", erase="quotes")
    at_us: int


class Incident(SQLModel, table=True):
    """Alarms of one cause since one onset, told once."""

    __tablename__ = "incident"
    __table_args__ = (Index("incident_status", "model", "status"),)
    id: str = Field(primary_key=True, erase="kept")
    model: str = Field(erase="kept")
    assertion: str = Field(erase="kept")
    slice: str = Field(erase="slice")
    kind: str = Field(default="flags", erase="kept")
    """``flags``: they became many; ``silence``: what came stopped; ``performance``: the loss has risen, as
    labels say; ``drift``: a column shifted; ``live_test``: its failure rate is proven to be above its
    tolerance; ``event_time``: records from the future; ``clock``: the service's own was set (of no model);
    ``version_mismatch``: records state another version than the champion's; ``version_retired``: it hung."""
    status: str = Field(default="open", erase="kept")
    """``open``, ``acknowledged``, ``muted`` or ``resolved``."""
    opened_us: int
    last_flag_us: int
    """Receive time of the last flags that kept it open."""
    muted_until_us: int = 0
    resolved_us: int | None = None
    flags: int = 0
    level: str = Field(erase="kept")
    first_record: str = Field(erase=("cleared_record", "quotes"))
    note: str = Field(default="", erase="quotes")
    details: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")
    """Onset, figures before and now, causes, nearest event, records and proposed action."""


class WeakLabelRow(SQLModel, table=True):
    """A correction that an assertion proposes for one record, with its provenance."""

    __tablename__ = "weak_label"
    __table_args__ = (Index("weak_label_record", "model", "record_id"),)
    id: str = Field(primary_key=True, erase="with_row")
    model: str = Field(erase="kept")
    record_id: str = Field(erase="record")
    flag_id: str = Field(erase="flag")
    assertion: str = Field(erase="kept")
    revision: str = Field(erase="kept")
    slot: str = Field(erase="kept")
    version: str | None = Field(default=None, erase="kept")
    """The model version whose output is corrected."""
    kind: str = Field(erase="kept")
    """``replace``, ``add`` or ``remove``."""
    field: str = Field(erase="kept")
    element: int
    value: str = Field(erase="quotes")
    """JSON."""
    confidence: float
    seq: int
    row: int
    ts_us: int


class WindowCheckpoint(SQLModel, table=True):
    """State of one window of one slot behind journal block ``seq``."""

    __tablename__ = "window_checkpoint"
    model: str = Field(primary_key=True, erase="kept")
    slot: str = Field(primary_key=True, erase="kept")
    window: str = Field(primary_key=True, erase="window")
    """Digest of the window's settings."""
    seq: int
    payload: bytes = Field(erase="with_row")


class ChampionBorder(SQLModel, table=True):
    """The version that was champion from the block behind ``seq`` on."""

    __tablename__ = "champion_border"
    model: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    version: str = Field(erase="kept")


class RotationRow(SQLModel, table=True):
    """Change of an overloaded model's sampled entities behind block ``seq``."""

    __tablename__ = "rotation"
    model: str = Field(primary_key=True, erase="kept")
    seq: int = Field(primary_key=True)
    at_us: int


class AdmissionRow(SQLModel, table=True):
    """Sampling state of an overload, beside the champion's cursor."""

    __tablename__ = "admission"
    model: str = Field(primary_key=True, erase="kept")
    carried: float = 0.0
    """Weight that was offered and that no admitted record stands for yet."""
    since_us: int = 0
    until_us: int = 0


class JudgeAnswer(SQLModel, table=True):
    """Answer of a judge model to one input. Equal questions are asked once."""

    __tablename__ = "judge_answer"
    judge: str = Field(primary_key=True, erase="judge")
    """Digest of model version, prompt template and output schema."""
    input_digest: str = Field(primary_key=True, erase="with_row")
    answer: str = Field(erase="with_row")
    """JSON."""
    tokens: int = 0
    seconds: float = 0.0
    at_us: int


class LiveAnswer(SQLModel, table=True):
    """Sampled question of a live behavioral test. Asked, or not asked because the worker was behind."""

    __tablename__ = "live_answer"
    model: str = Field(primary_key=True, erase="kept")
    test: str = Field(primary_key=True, erase="kept")
    record_id: str = Field(primary_key=True, erase="record")
    version: str = Field(primary_key=True, erase="kept")
    seq: int
    ts_us: int
    status: str = Field(erase="kept")
    """``passed``, ``failed``, ``not_applicable``, ``shed`` or ``unanswered``."""
    probability: float = 1.0
    """Of having been sampled, in (0, 1]."""


class LiveBudgetRow(SQLModel, table=True):
    """Saved budgets of a model's live questions, behind a cursor. The cursor of one slot."""

    __tablename__ = "live_budget"
    model: str = Field(primary_key=True, erase="kept")
    slot: str = Field(primary_key=True, erase="kept")
    state: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="kept")


class LiveRate(SQLModel, table=True):
    """Failure rate of a live test for one model version.

    A confidence sequence, valid at any time one looks.
    """

    __tablename__ = "live_rate"
    model: str = Field(primary_key=True, erase="kept")
    test: str = Field(primary_key=True, erase="kept")
    revision: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    asked: int = 0
    failed: int = 0
    rate: float = 0.0
    """Weighted by 1 / probability of having been sampled."""
    low: float = 0.0
    high: float = 1.0
    """Of the confidence sequence."""
    tolerance: float = 0.0
    alarm_us: int | None = None
    """Receive time of the record at which ``low`` first exceeded ``tolerance``; None when it never did."""
    updated_us: int = 0
    state: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    """Sums of the confidence sequence."""


class SuiteOutcome(SQLModel, table=True):
    """Newest outcome of one behavioral test for one model version. From the gate, CI or by hand."""

    __tablename__ = "suite_outcome"
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    suite: str = Field(primary_key=True, erase="kept")
    test: str = Field(primary_key=True, erase="kept")
    revision: str = Field(default="", erase="kept")
    kind: str = Field(erase="kept")
    capability: str = Field(erase="kept")
    description: str = Field(default="", erase="kept")
    status: str = Field(erase="kept")
    """``passed``, ``failed``, ``skipped`` or ``error``."""
    cases: int
    failures: int
    not_applicable: int
    tolerance: float
    rate: float
    low: float
    high: float
    source: str = Field(erase="kept")
    """``gate``, ``registered`` (the first version), ``cli`` or ``pytest``."""
    at_us: int
    outcome: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")
    """``Outcome.to_dict()``: examples, measures, error. Last: SQLite reads the others without it."""
    passed_us: int | None = None
    """When it last passed; None if it never did. Behind the outcome, and read of few rows."""


class DeadLetter(SQLModel, table=True):
    """Unusable record, with its reason. ``conflict``, ``payload``, ``poison``."""

    __tablename__ = "dead_letter"
    seq: int = Field(primary_key=True)
    row: int = Field(primary_key=True)
    model: str = Field(erase="kept")
    record_id: str = Field(erase="record")
    reason: str = Field(erase="kept")
    detail: str = Field(erase="quotes")
    at_us: int


class Counter(SQLModel, table=True):
    """Exact counts, advanced in the transaction that counts."""

    __tablename__ = "counter"
    model: str = Field(primary_key=True, erase="kept")
    slot: str = Field(primary_key=True, erase="kept")
    name: str = Field(primary_key=True, erase="kept")
    value: int = 0


class ProfileWindow(SQLModel, table=True):
    """Profile of a version and slice in a minute, hour or day. Of one slot, in receive time."""

    __tablename__ = "profile"
    __table_args__ = (Index("profile_block", "model", "slot", "seq"),)
    model: str = Field(primary_key=True, erase="kept")
    span_s: int = Field(primary_key=True)
    start_us: int = Field(primary_key=True, erase="receipt")
    slot: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    slice: str = Field(primary_key=True, erase="with_row")
    seq: int = Field(primary_key=True)
    """Last block that is in it: a minute may be written in parts."""
    layout: str = Field(erase="kept")
    rows: int
    payload: bytes = Field(erase="with_row")


class ProfileLayoutRow(SQLModel, table=True):
    """Layout of a model's profiles: bins of each column, and their reference."""

    __tablename__ = "profile_layout"
    model: str = Field(primary_key=True, erase="kept")
    digest: str = Field(primary_key=True, erase="kept")
    at_us: int
    source: str = Field(erase="kept")
    rows: int
    layout: str = Field(erase="categories")


class Outbox(SQLModel, table=True):
    """Event to be delivered at least once. ``id`` is the ``webhook-id`` of every attempt."""

    __tablename__ = "outbox"
    __table_args__ = (Index("outbox_due", "delivered_us", "next_attempt_us"),)
    id: str = Field(primary_key=True, erase="kept")
    event: str = Field(erase="kept")
    url: str = Field(erase="kept")
    payload: str = Field(erase="quotes")
    """The exact body that is signed and sent."""
    attempts: int = 0
    created_us: int
    next_attempt_us: int
    delivered_us: int | None = None
    last_error: str = Field(default="", erase="quotes")
