"""Tables of labels, datasets, models, shadow tests, jobs and verdicts."""

from typing import Any

from sqlalchemy import JSON, BindParameter, ColumnElement, Index, text
from sqlmodel import SQLModel

from .columns import Field


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
    model: str = Field(erase="kept")
    record_id: str = Field(erase="record")
    source: str = Field(erase="quotes")
    value: str | None = Field(default=None, erase="with_row")
    """``label.<target>`` as text."""
    label: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="with_row")
    ts_us: int
    received_us: int
    entity: str | None = Field(default=None, erase="subject")
    """Of a label that names no record: ``record_id`` is that of the entity's latest record at or before
    ``ts_us``, and empty until there is one."""
    is_other_class: bool | None = None
    """Whether counts have its value under ``__other__``; None for no."""
    key: str | None = Field(default=None, erase="quotes")
    """Of its sender, who may send it again: of several labels with one key the first is stored."""


class LabelRequest(SQLModel, table=True):
    """A record chosen for labelling: the label queue."""

    __tablename__ = "label_request"
    model: str = Field(primary_key=True, erase="kept")
    record_id: str = Field(primary_key=True, erase="record")
    policy: str = Field(erase="kept")
    reason: str = Field(erase="kept")
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
    model: str = Field(primary_key=True, erase="kept")
    round: int = Field(primary_key=True)
    policy: str = Field(erase="kept")
    upto_seq: int
    """Last journal block that was there."""
    records: int
    """Of the champion's slot since the beginning: the next round takes the difference."""
    fires: dict[str, int] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    """Flags per assertion, likewise; exact in storms too."""
    created_us: int
    since_us: int | None = None
    """Records of an earlier time were no candidates; None is no such limit."""


class DatasetVersion(SQLModel, table=True):
    """Immutable, validated set of rows, as changes of its parent."""

    __tablename__ = "dataset_version"
    __table_args__ = (Index("dataset_version_made", "model", "created_us"),)
    dataset: str = Field(primary_key=True, erase="kept")
    number: int = Field(primary_key=True)
    model: str = Field(erase="kept")
    parent: int | None = None
    digest: str = Field(erase="dataset")
    rows: int
    manifest: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="dataset")
    """Columns, counts by provenance, changes, notes and the validation result."""
    created_us: int
    arrow_schema: bytes = Field(erase="kept")
    """Of its rows, serialized."""
    state: bytes = Field(erase="dataset")
    """Sum of its rows' lanes, from which the next version's digest is made."""


class DatasetRowFile(SQLModel, table=True):
    """Parquet file with the rows that a version added."""

    __tablename__ = "dataset_file"
    dataset: str = Field(primary_key=True, erase="kept")
    file: int = Field(primary_key=True)
    """Number of the version that added it."""
    sha256: str = Field(erase="dataset")
    rows: int
    bytes: int
    parts: list[list[object]] = Field(sa_type=JSON, erase="kept")
    """Part and number of rows of each row group, in order."""
    ended: int | None = None
    """First version in which none of its rows is left."""
    packed: list[int] | None = Field(default=None, sa_type=JSON(none_as_null=True), erase="kept")
    """Where the rows of each of ``parts`` begin in an object of several files. None: it has its own."""


class DatasetTag(SQLModel, table=True):
    """Name of a dataset version, which may move to another."""

    __tablename__ = "dataset_tag"
    dataset: str = Field(primary_key=True, erase="kept")
    tag: str = Field(primary_key=True, erase="kept")
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
    dataset: str = Field(primary_key=True, erase="kept")
    file: int = Field(primary_key=True)
    position: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    """First version that has it."""
    removed: int | None = None
    """First version that does not have it any more."""
    record_id: str = Field(erase="dataset")
    assertion: str | None = Field(default=None, erase="dataset")
    label_source: str | None = Field(default=None, erase="dataset")
    part: str = Field(default="train", erase="kept")
    """``train``, or ``held_out`` for the share the gate judges with."""
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: the label that the row holds; None of weak and imported ones."""
    model_version: str | None = Field(default=None, erase="dataset")
    """Version of the model whose answer was judged."""
    flags: str | None = Field(default=None, erase="dataset")
    """JSON: assertion, revision and severity of each flag. None in imported rows."""
    reviewer: str | None = Field(default=None, erase="dataset")
    """Sources of the reviews of these flags, comma-separated."""
    weight: float | None = None
    """Records of the traffic that the row stands for."""
    digest: bytes = Field(erase="dataset")
    """SHA-256 of its content and of its labels; empty where it was erased."""
    labels: dict[str, object] | None = Field(default=None, sa_type=JSON, erase="dataset")
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
    dataset: str = Field(primary_key=True, erase="kept")
    number: int = Field(primary_key=True)
    digest: str = Field(primary_key=True, erase="kept")
    rows: int
    """Rows that were erased then."""
    at_us: int


class ErasedObject(SQLModel, table=True):
    """Unnamed object with erased rows, still to be deleted."""

    __tablename__ = "erased_object"
    sha256: str = Field(primary_key=True, erase="kept")
    at_us: int


class Quarantine(SQLModel, table=True):
    """Row that a dataset refused, with reasons and state. No row is deleted."""

    __tablename__ = "quarantine"
    __table_args__ = (Index("quarantine_record", "dataset", "record_id"),)
    id: int | None = Field(default=None, primary_key=True)
    dataset: str = Field(erase="kept")
    record_id: str = Field(erase="dataset")
    reasons: str = Field(erase="quotes")
    at_us: int
    state: str = Field(default="held", erase="kept")
    """``held``, ``retried`` (the next commit looks again), ``taken``, or ``dropped`` (left out for good)."""
    rules: str = Field(erase="kept")
    """Digest of the rules that refused it."""
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: the label that it was refused with; None of a weak one."""


class ModelVersion(SQLModel, table=True):
    """Set of weights (or one predictor) of a model, with status."""

    __tablename__ = "model_version"
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    status: str = Field(erase="kept")
    """``challenger``, ``champion``, ``former``, ``retired``, ``refused`` or ``failed``."""
    weights: str | None = Field(default=None, erase="kept")
    """SHA-256 of the safetensors object; None for what has none of its own, such as a predictor function."""
    source: str = Field(erase="kept")
    """`outrider.dataops.model_kinds.source.Source` as JSON."""
    digest: str = Field(default="", erase="kept")
    replaced: str | None = Field(default=None, erase="kept")
    """The champion it took over from when it was promoted: where a rollback returns to."""
    created_us: int
    changed_us: int
    note: str = Field(default="", erase="quotes")


class ChampionChange(SQLModel, table=True):
    """Change of a model's champion; deletions and updates are refused."""

    __tablename__ = "champion_change"
    __table_args__ = (Index("champion_change_model", "model", "seq"),)
    seq: int | None = Field(default=None, primary_key=True)
    model: str = Field(erase="kept")
    version: str = Field(erase="kept")
    replaced: str | None = Field(default=None, erase="kept")
    action: str = Field(erase="kept")
    by: str = Field(erase="kept")
    reason: str = Field(erase="quotes")
    verdict: str | None = Field(default=None, erase="kept")
    at_us: int


class ShadowTest(SQLModel, table=True):
    """Shadow test of a challenger beside the champion. For a time, with the recommendation at its end."""

    __tablename__ = "shadow_test"
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    began_us: int = Field(primary_key=True)
    champion: str = Field(erase="kept")
    after_seq: int
    """Journal block behind which it began."""
    ends_us: int | None = None
    ends_rows: int | None = None
    ended_us: int | None = None
    recommendation: str = Field(default="", erase="kept")
    """``promote``, ``keep`` or ``undecided``; empty while it runs."""
    findings: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")


class Watch(SQLModel, table=True):
    """Watch over a new champion, beside the former one."""

    __tablename__ = "watch"
    model: str = Field(primary_key=True, erase="kept")
    version: str = Field(primary_key=True, erase="kept")
    """The new champion."""
    began_us: int = Field(primary_key=True)
    former: str = Field(erase="kept")
    after_seq: int
    """Journal block behind which records are compared."""
    until_seq: int | None = None
    """Last block that the former champion answers; None while it does."""
    records: int = 0
    """That both have answered."""
    proposed_us: int | None = None
    ended_us: int | None = None
    outcome: str = Field(default="", erase="kept")
    """``kept``, ``proposed``, ``rolled_back`` or ``superseded``; empty while it runs."""
    findings: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")


class LineageEdge(SQLModel, table=True):
    """``child`` was made from ``parent``; kinds are ``model``, ``dataset``, ``job`` and ``records``."""

    __tablename__ = "lineage_edge"
    child_kind: str = Field(primary_key=True, erase="kept")
    child: str = Field(primary_key=True, erase="kept")
    parent_kind: str = Field(primary_key=True, erase="kept")
    parent: str = Field(primary_key=True, erase="quotes")
    role: str = Field(primary_key=True, erase="kept")
    """``weights``, ``fresh``, ``replay``, ``held_out``, ``trigger``, ``parent`` …"""
    created_us: int


class Job(SQLModel, table=True):
    """Work for the trainer process: fine-tune and judge a candidate."""

    __tablename__ = "job"
    __table_args__ = (
        Index("job_status", "status"),
        Index("job_made", "model", "created_us"),
    )
    id: str = Field(primary_key=True, erase="kept")
    model: str = Field(erase="kept")
    kind: str = Field(erase="kept")
    """``retrain`` or ``dataset``."""
    status: str = Field(default="queued", erase="kept")
    """One of those in `outrider.dataops.state.job_states`."""
    stage: str = Field(default="", erase="kept")
    params: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")
    result: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")
    """Candidate version, dataset version, seconds per stage, error."""
    attempts: int = 0
    created_us: int
    started_us: int | None = None
    finished_us: int | None = None


class JobToken(SQLModel, table=True):
    """Token of a job that is trained outside."""

    __tablename__ = "job_token"
    digest: str = Field(primary_key=True, erase="kept")
    """SHA-256."""
    job: str = Field(unique=True, erase="kept")
    model: str = Field(erase="kept")
    created_us: int
    until_us: int


class VersionUpload(SQLModel, table=True):
    """Upload of a version: announced, then its files, then the registered version."""

    __tablename__ = "version_upload"
    __table_args__ = (Index("version_upload_job", "job"), Index("version_upload_status", "status"))
    id: str = Field(primary_key=True, erase="kept")
    model: str = Field(erase="kept")
    job: str | None = Field(default=None, erase="kept")
    """That trained it."""
    token: bool = False
    """True where the job's own token began it."""
    begun_by: str = Field(erase="kept")
    """Name of the key."""
    request: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    status: str = Field(default="open", erase="kept")
    """``open`` or ``done``."""
    version: str | None = Field(default=None, erase="kept")
    created_us: int
    until_us: int
    """An unfinished one is removed then."""


class TriggerState(SQLModel, table=True):
    """Memory of one trigger of retraining, and its outcomes counted."""

    __tablename__ = "trigger_state"
    model: str = Field(primary_key=True, erase="kept")
    trigger: str = Field(primary_key=True, erase="kept")
    state: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    suggested_us: int | None = None
    """When the suggestion that stands was made."""
    suggestion: str = Field(default="", erase="quotes")
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
    model: str = Field(erase="kept")
    trigger: str = Field(erase="kept")
    outcome: str = Field(erase="kept")
    """``fired``, ``suggested``, ``held`` or ``quiet``."""
    reason: str = Field(erase="kept")
    """One word, by which outcomes are equal."""
    why: str = Field(erase="quotes")
    """Sentence of the newest."""
    score: float | None = None
    threshold: float | None = None
    inputs: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="kept")
    since_us: int
    until_us: int
    times: int = 1
    job: str | None = Field(default=None, erase="kept")
    """Job that it started."""


class AlertRow(SQLModel, table=True):
    """Alert that Alertmanager posted for a model, without its labels."""

    __tablename__ = "alert"
    model: str = Field(primary_key=True, erase="kept")
    fingerprint: str = Field(primary_key=True, erase="kept")
    starts_us: int = Field(primary_key=True)
    name: str = Field(erase="kept")
    received_us: int
    """When it was last said to fire."""
    resolved_us: int | None = None


class TakenMessage(SQLModel, table=True):
    """Id of a signed message, against replays."""

    __tablename__ = "taken_message"
    id: str = Field(primary_key=True, erase="kept")
    at_us: int


class RowTries(SQLModel, table=True):
    """Verdicts decided by a held-out row, by its inputs' keyed hash."""

    __tablename__ = "row_tries"
    __table_args__ = ({"sqlite_with_rowid": False},)
    model: str = Field(primary_key=True, erase="kept")
    row: str = Field(primary_key=True, erase="kept")
    tries: int


class GateVerdict(SQLModel, table=True):
    """Verdict of the promotion gate on a candidate. With reasons and evidence."""

    __tablename__ = "gate_verdict"
    id: str = Field(primary_key=True, erase="kept")
    model: str = Field(erase="kept")
    candidate: str = Field(erase="kept")
    champion: str = Field(erase="kept")
    promoted: bool
    reasons: list[str] = Field(default_factory=list, sa_type=JSON, erase="quotes")
    evidence: dict[str, object] = Field(default_factory=dict, sa_type=JSON, erase="quotes")
    created_us: int
