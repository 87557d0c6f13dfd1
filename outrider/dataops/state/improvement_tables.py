"""Tables of labels, datasets, models, shadow tests, jobs and verdicts."""

from typing import Any

from sqlalchemy import JSON, BindParameter, Column, ColumnElement, Index, text
from sqlmodel import Field, SQLModel


class Label(SQLModel, table=True):
    """Label of a record; of several, the latest counts."""

    __tablename__ = "label"
    __table_args__ = (
        Index("label_record", "model", "record_id"),
        Index("label_entity", "model", "entity", "ts_us", sqlite_where=text("entity IS NOT NULL")),
        Index("label_key", "model", "key", unique=True, sqlite_where=text('"key" IS NOT NULL')),
    )
    seq: int = Field(primary_key=True)
    row: int = Field(primary_key=True)
    model: str
    record_id: str
    source: str
    value: str | None = None
    """``label.<target>`` as text."""
    label: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    ts_us: int
    received_us: int
    entity: str | None = None
    """Of a label that names no record: ``record_id`` is that of the entity's latest record at or before
    ``ts_us``, and empty until there is one."""
    is_other_class: bool | None = None
    """Whether counts have its value under ``__other__``; None for no."""
    key: str | None = None
    """Of its sender, who may send it again: of several labels with one key the first is stored."""


class LabelRequest(SQLModel, table=True):
    """A record chosen for labelling: the label queue."""

    __tablename__ = "label_request"
    model: str = Field(primary_key=True)
    record_id: str = Field(primary_key=True)
    policy: str
    reason: str
    """The assertion (or policy, or ``audit``) for which the record was picked."""
    probability: float
    """Of this draw, policy and audit together, among the records left to it."""
    round: int
    created_us: int
    position: int = 0
    """Place in the order of choice within its round."""
    population: int
    """Records left to the draw."""
    is_audit: bool = False
    """Whether it is of the uniform audit sample."""
    floor: float
    """Least probability of any record left to the draw, times their number."""


class LabelRound(SQLModel, table=True):
    """Observation of a label round, to compare the next one with. The next round sees whose fires fell."""

    __tablename__ = "label_round"
    model: str = Field(primary_key=True)
    round: int = Field(primary_key=True)
    policy: str
    upto_seq: int
    """Last journal block that was there."""
    records: int
    """Of the champion's slot since the beginning: the next round takes the difference."""
    fires: dict[str, int] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    """Flags per assertion, likewise; exact in storms too."""
    created_us: int
    since_us: int | None = None
    """Records of an earlier time were no candidates; None is no such limit."""


class DatasetVersion(SQLModel, table=True):
    """Immutable, validated set of rows, as changes of its parent."""

    __tablename__ = "dataset_version"
    __table_args__ = (Index("dataset_version_made", "model", "created_us"),)
    dataset: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    model: str
    parent: int | None = None
    digest: str
    rows: int
    manifest: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    """Columns, counts by provenance, changes, notes and the validation result."""
    created_us: int
    arrow_schema: bytes
    """Of its rows, serialized."""
    state: bytes
    """Sum of its rows' lanes, from which the next version's digest is made."""


class DatasetRowFile(SQLModel, table=True):
    """Parquet file with the rows that a version added."""

    __tablename__ = "dataset_file"
    dataset: str = Field(primary_key=True)
    file: int = Field(primary_key=True)
    """Number of the version that added it."""
    sha256: str
    rows: int
    bytes: int
    parts: list[list[object]] = Field(sa_column=Column(JSON, nullable=False))
    """Part and number of rows of each row group, in order."""
    ended: int | None = None
    """First version in which none of its rows is left."""
    packed: list[int] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """Where the rows of each of ``parts`` begin in an object of several files. None: it has its own."""


class DatasetTag(SQLModel, table=True):
    """Name of a dataset version, which may move to another."""

    __tablename__ = "dataset_tag"
    dataset: str = Field(primary_key=True)
    tag: str = Field(primary_key=True)
    version: int
    set_us: int


class DatasetRow(SQLModel, table=True):
    """Life of one dataset row: place, versions, record and provenance.

    A relabelled row lies where it was; another life begins there with the labels that count.
    """

    __tablename__ = "dataset_row"
    __table_args__ = (
        Index("dataset_row_record", "record_id", "dataset", "number"),
        Index("dataset_row_removed", "dataset", "removed", sqlite_where=text("removed IS NOT NULL")),
        Index("dataset_row_relabelled", "dataset", "number", sqlite_where=text("labels IS NOT NULL")),
        {"sqlite_with_rowid": False},
    )
    dataset: str = Field(primary_key=True)
    file: int = Field(primary_key=True)
    position: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    """First version that has it."""
    removed: int | None = None
    """First version that does not have it any more."""
    record_id: str
    assertion: str | None = None
    label_source: str | None = None
    part: str = "train"
    """``train``, or ``held_out`` for the share the gate judges with."""
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: the label that the row holds; None of weak and imported ones."""
    model_version: str | None = None
    """Version of the model whose answer was judged."""
    flags: str | None = None
    """JSON: assertion, revision and severity of each flag. None in imported rows."""
    reviewer: str | None = None
    """Sources of the reviews of these flags, comma-separated."""
    weight: float | None = None
    """Records of the traffic that the row stands for."""
    digest: bytes
    """SHA-256 of its content and of its labels; empty where it was erased."""
    labels: dict[str, object] | None = Field(default=None, sa_column=Column(JSON))
    """Labels that stand in the place of those in the file."""


def of_dataset(rows: Any, dataset: str | BindParameter[str]) -> ColumnElement[bool]:
    """Condition on rows that are looked up by their record.

    An expression: else SQLite, which does not know how many rows a dataset has, reads all of them each time.

    Parameters
    ----------
    rows
        Table of dataset rows, or an alias of it.
    """
    condition: ColumnElement[bool] = rows.c.dataset.concat("") == dataset
    return condition


class ErasedVersion(SQLModel, table=True):
    """Digest of a dataset version before rows were erased."""

    __tablename__ = "erased_version"
    __table_args__ = (Index("erased_version_digest", "digest"),)
    dataset: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    rows: int
    """Rows that were erased then."""
    at_us: int


class ErasedObject(SQLModel, table=True):
    """Unnamed object with erased rows, still to be deleted."""

    __tablename__ = "erased_object"
    sha256: str = Field(primary_key=True)
    at_us: int


class Quarantine(SQLModel, table=True):
    """Row that a dataset refused, with reasons and state. No row is deleted."""

    __tablename__ = "quarantine"
    __table_args__ = (Index("quarantine_record", "dataset", "record_id"),)
    id: int | None = Field(default=None, primary_key=True)
    dataset: str
    record_id: str
    reasons: str
    at_us: int
    state: str = "held"
    """``held``, ``retried`` (the next commit looks again), ``taken``, or ``dropped`` (left out for good)."""
    rules: str
    """Digest of the rules that refused it."""
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: the label that it was refused with; None of a weak one."""


class ModelVersion(SQLModel, table=True):
    """Set of weights (or one predictor) of a model, with status."""

    __tablename__ = "model_version"
    model: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    status: str
    """``challenger``, ``champion``, ``former``, ``retired``, ``refused`` or ``failed``."""
    weights: str | None = None
    """SHA-256 of the safetensors object; None for what has none of its own, such as a predictor function."""
    source: str
    """`outrider.dataops.model_kinds.source.Source` as JSON."""
    digest: str = ""
    replaced: str | None = None
    """The champion it took over from when it was promoted: where a rollback returns to."""
    created_us: int
    changed_us: int
    note: str = ""


class ChampionChange(SQLModel, table=True):
    """Change of a model's champion; deletions and updates are refused."""

    __tablename__ = "champion_change"
    __table_args__ = (Index("champion_change_model", "model", "seq"),)
    seq: int | None = Field(default=None, primary_key=True)
    model: str
    version: str
    replaced: str | None = None
    action: str
    by: str
    reason: str
    verdict: str | None = None
    at_us: int


class ShadowTest(SQLModel, table=True):
    """Shadow test of a challenger beside the champion. For a time, with the recommendation at its end."""

    __tablename__ = "shadow_test"
    model: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    began_us: int = Field(primary_key=True)
    champion: str
    after_seq: int
    """Journal block behind which it began."""
    ends_us: int | None = None
    ends_rows: int | None = None
    ended_us: int | None = None
    recommendation: str = ""
    """``promote``, ``keep`` or ``undecided``; empty while it runs."""
    findings: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))


class Watch(SQLModel, table=True):
    """Watch over a new champion, beside the former one."""

    __tablename__ = "watch"
    model: str = Field(primary_key=True)
    version: str = Field(primary_key=True)
    """The new champion."""
    began_us: int = Field(primary_key=True)
    former: str
    after_seq: int
    """Journal block behind which records are compared."""
    until_seq: int | None = None
    """Last block that the former champion answers; None while it does."""
    records: int = 0
    """That both have answered."""
    proposed_us: int | None = None
    ended_us: int | None = None
    outcome: str = ""
    """``kept``, ``proposed``, ``rolled_back`` or ``superseded``; empty while it runs."""
    findings: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))


class LineageEdge(SQLModel, table=True):
    """``child`` was made from ``parent``; kinds are ``model``, ``dataset``, ``job`` and ``records``."""

    __tablename__ = "lineage_edge"
    child_kind: str = Field(primary_key=True)
    child: str = Field(primary_key=True)
    parent_kind: str = Field(primary_key=True)
    parent: str = Field(primary_key=True)
    role: str = Field(primary_key=True)
    """``weights``, ``fresh``, ``replay``, ``held_out``, ``trigger``, ``parent`` …"""
    created_us: int


class Job(SQLModel, table=True):
    """Work for the trainer process: fine-tune and judge a candidate."""

    __tablename__ = "job"
    __table_args__ = (
        Index("job_status", "status"),
        Index("job_made", "model", "created_us"),
    )
    id: str = Field(primary_key=True)
    model: str
    kind: str
    """``retrain`` or ``dataset``."""
    status: str = "queued"
    """One of those in `outrider.dataops.state.job_states`."""
    stage: str = ""
    params: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    result: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    """Candidate version, dataset version, seconds per stage, error."""
    attempts: int = 0
    created_us: int
    started_us: int | None = None
    finished_us: int | None = None


class JobToken(SQLModel, table=True):
    """Token of a job that is trained outside."""

    __tablename__ = "job_token"
    digest: str = Field(primary_key=True)
    """SHA-256."""
    job: str = Field(unique=True)
    model: str
    created_us: int
    until_us: int


class VersionUpload(SQLModel, table=True):
    """Upload of a version: announced, then its files, then the registered version."""

    __tablename__ = "version_upload"
    __table_args__ = (Index("version_upload_job", "job"), Index("version_upload_status", "status"))
    id: str = Field(primary_key=True)
    model: str
    job: str | None = None
    """That trained it."""
    token: bool = False
    """True where the job's own token began it."""
    begun_by: str
    """Name of the key."""
    request: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    status: str = "open"
    """``open`` or ``done``."""
    version: str | None = None
    created_us: int
    until_us: int
    """An unfinished one is removed then."""


class TriggerState(SQLModel, table=True):
    """Memory of one trigger of retraining, and its outcomes counted."""

    __tablename__ = "trigger_state"
    model: str = Field(primary_key=True)
    trigger: str = Field(primary_key=True)
    state: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    suggested_us: int | None = None
    """When the suggestion that stands was made."""
    suggestion: str = ""
    """Why it was made."""
    fired: int = 0
    suggested: int = 0
    held: int = 0
    quiet: int = 0


class TriggerEvaluation(SQLModel, table=True):
    """Log of a trigger: equal outcomes in a row are one row.

    It names no record, entity or slice.
    """

    __tablename__ = "trigger_evaluation"
    __table_args__ = (Index("trigger_evaluation_order", "model", "trigger", "id"),)
    id: int | None = Field(default=None, primary_key=True)
    model: str
    trigger: str
    outcome: str
    """``fired``, ``suggested``, ``held`` or ``quiet``."""
    reason: str
    """One word, by which outcomes are equal."""
    why: str
    """Sentence of the newest."""
    score: float | None = None
    threshold: float | None = None
    inputs: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    since_us: int
    until_us: int
    times: int = 1
    job: str | None = None
    """Job that it started."""


class AlertRow(SQLModel, table=True):
    """Alert that Alertmanager posted for a model, without its labels."""

    __tablename__ = "alert"
    model: str = Field(primary_key=True)
    fingerprint: str = Field(primary_key=True)
    starts_us: int = Field(primary_key=True)
    name: str
    received_us: int
    """When it was last said to fire."""
    resolved_us: int | None = None


class TakenMessage(SQLModel, table=True):
    """Id of a signed message, against replays."""

    __tablename__ = "taken_message"
    id: str = Field(primary_key=True)
    at_us: int


class RowTries(SQLModel, table=True):
    """Verdicts decided by a held-out row, by its inputs' keyed hash."""

    __tablename__ = "row_tries"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True)
    row: str = Field(primary_key=True)
    tries: int


class GateVerdict(SQLModel, table=True):
    """Verdict of the promotion gate on a candidate. With reasons and evidence."""

    __tablename__ = "gate_verdict"
    id: str = Field(primary_key=True)
    model: str
    candidate: str
    champion: str
    promoted: bool
    reasons: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    evidence: dict[str, object] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    created_us: int
