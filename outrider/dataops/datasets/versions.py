"""Dataset versions: rows, their provenance, and differences between versions.

Rows lie in Parquet files named by digest, one per version that added rows. A row's life says where it lies,
which versions have it and where it comes from.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import BindParameter, Connection, Engine, Select, bindparam, func, or_, select
from sqlalchemy.sql import ColumnElement

from outrider.assertions import Batch
from outrider.dataops.models.lineage import node_id
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import (
    DatasetRow,
    DatasetRowFile,
    DatasetVersion,
    ErasedVersion,
    of_dataset,
)
from outrider.dataops.state.tables import table_of
from outrider.errors import Erased, NotFound

from .digests import NOT_CONTENT, Lanes
from .row_files import conform, empty_table
from .stored_rows import Run, VersionRows, rows_at, runs_of, with_labels

_VERSION, _FILE, _ROW = table_of(DatasetVersion), table_of(DatasetRowFile), table_of(DatasetRow)
_ERASED = table_of(ErasedVersion)
_LEFT_OUT = ("received", "partial")
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RowFlag:
    """Flag that brought a row into a dataset."""

    assertion: str
    revision: str
    severity: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance and purpose of one row."""

    record_id: str
    assertion: str | None = None
    """Comma-separated names of the assertions that flagged it."""
    label_source: str | None = None
    part: str = "train"
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: place of its label in the journal; None for weak and imported ones."""
    model_version: str | None = None
    """Version of the model whose answer was judged."""
    flags: str | None = None
    """JSON: assertion, revision and severity of each flag; None for imported rows."""
    reviewer: str | None = None
    """Comma-separated sources of the reviews of these flags."""
    weight: float | None = None
    """Records of the traffic that the row represents; None for imported rows."""

    @property
    def flagged_by(self) -> list[RowFlag]:
        """Flags of the row, the severest first."""
        return [RowFlag(*flag) for flag in json.loads(self.flags or "[]")]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"flags": [asdict(flag) for flag in self.flagged_by]}


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version."""

    dataset: str
    number: int
    model: str
    parent: int | None
    digest: str
    rows: int
    manifest: dict[str, Any]
    created_us: int
    arrow_schema: bytes = field(repr=False)
    state: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Name in lineage, such as ``digits-flagged@2``."""
        return node_id(self.dataset, self.number)

    @property
    def bytes(self) -> int:
        return int(self.manifest["bytes"])

    @property
    def added(self) -> int:
        return int(self.manifest["changes"]["added"])

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.arrow_schema))

    @property
    def lanes(self) -> Lanes:
        return np.frombuffer(self.state, dtype="<u2").astype(np.uint16)


@dataclass(frozen=True, slots=True)
class Life:
    """Row of a dataset from one version until another."""

    file: int
    position: int
    number: int
    """First version that has it."""
    removed: int | None
    """First version that does not have it any more."""
    origin: Provenance
    digest: bytes
    """SHA-256 of its content and of its labels."""

    @property
    def place(self) -> Place:
        return self.file, self.position

    def is_in(self, number: int) -> bool:
        return self.number <= number and (self.removed is None or self.removed > number)


def event_facts(version: Version, service: str) -> dict[str, object]:
    rows = f"{service}/v1/datasets/{quote(version.dataset, safe='')}/versions/{version.number}/rows"
    facts = {"name": version.dataset, "version": version.number, "rows": version.rows}
    shown = ("rule", "field", "severity", "rows")
    warnings = version.manifest["validation"].get("warnings", [])
    shown_warnings = [{key: warning[key] for key in shown} for warning in warnings]
    return facts | {"digest": version.digest, "url": rows, "warnings": shown_warnings}


def newest(connection: Connection, dataset: str) -> Version | None:
    row = connection.execute(_NEWEST, {"of": dataset}).first()
    return None if row is None else Version(**row._mapping)


def get(connection: Connection, dataset: str, number: int | str | None = None) -> Version:
    """By number or digest, the newest by default."""
    query = select(_VERSION).where(_VERSION.c.dataset == dataset)
    if number is not None:
        query = query.where((_VERSION.c.digest if isinstance(number, str) else _VERSION.c.number) == number)
    row = connection.execute(query.order_by(_VERSION.c.number.desc()).limit(1)).first()
    if row is None and isinstance(number, str):
        _check_erased(connection, dataset, number)
    if row is None:
        raise NotFound(
            f"no dataset {dataset!r}" if number is None else f"dataset {dataset!r} has no version {number}"
        )
    return Version(**row._mapping)


def _check_erased(connection: Connection, dataset: str, digest: str) -> None:
    query = select(_ERASED).where(_ERASED.c.dataset == dataset, _ERASED.c.digest == digest)
    pointer = connection.execute(query.order_by(_ERASED.c.number.desc()).limit(1)).first()
    if pointer is not None:
        now = get(connection, dataset, int(pointer.number))
        at = datetime.fromtimestamp(pointer.at_us / 1e6, UTC).isoformat(timespec="seconds")
        raise Erased(
            f"{now.id} had digest {digest} until {pointer.rows} of its rows were erased at {at}; "
            f"its digest is now {now.digest}"
        )


def is_erased_from(connection: Connection, version: Version) -> bool:
    at = _VERSION.c.dataset == version.dataset, _VERSION.c.number == version.number
    return connection.scalar(select(_VERSION.c.digest).where(*at)) != version.digest


def all_versions(connection: Connection) -> list[Version]:
    rows = connection.execute(select(_VERSION).order_by(_VERSION.c.dataset, _VERSION.c.number))
    return [Version(**row._mapping) for row in rows]


def made_since(connection: Connection, after_us: int) -> list[Version]:
    query = select(_VERSION).where(_VERSION.c.created_us > after_us).order_by(_VERSION.c.created_us)
    return [Version(**row._mapping) for row in connection.execute(query)]


def provenance(connection: Connection, version: Version) -> list[Provenance]:
    """In :func:`read`'s order."""
    return [life.origin for life in lives(connection, version)]


def lives(connection: Connection, version: Version) -> list[Life]:
    """In :func:`read`'s order."""
    query = _lives().where(_ROW.c.dataset == version.dataset, *_is_in(version.number))
    query = query.order_by(_ROW.c.file, _ROW.c.position)
    return [_life(row) for row in connection.execute(query)]


def lives_of(connection: Connection, dataset: str, ids: Sequence[str]) -> dict[str, Life]:
    found = connection.execute(_LIVING, named(dataset, ids)).all()
    return {life.origin.record_id: life for life in map(_life, found)}


def ids_at(connection: Connection, dataset: str, places: Iterable[Place]) -> list[str]:
    found = []
    for file, position in places:
        at = _ROW.c.dataset == dataset, _ROW.c.file == file, _ROW.c.position == position
        found.append(str(connection.scalar(select(_ROW.c.record_id).where(*at).limit(1))))
    return found


def lives_everywhere(connection: Connection, ids: Sequence[str]) -> list[tuple[str, Life]]:
    places = ("dataset", "file", "position", "number")
    values = select(func.json_each(json.dumps(list(ids))).table_valued("value").c.value)
    query = _lives().add_columns(_ROW.c.dataset).where(_ROW.c.record_id.in_(values))
    rows = connection.execute(query.order_by(*(_ROW.c[name] for name in places)))
    return [(dataset, _life(row)) for *row, dataset in rows]


def named(dataset: str, ids: Sequence[str]) -> dict[str, str]:
    """Parameters for :data:`NAMED`."""
    return {"of": dataset, "ids": json.dumps(list(ids))}


def read(connection: Connection, objects: ObjectStore, version: Version, *, part: str | None = None) -> Batch:
    """Rows by version of origin, part and id."""
    return Batch.from_arrow(read_table(connection, objects, version, part=part), model=version.model)


def read_table(
    connection: Connection,
    objects: ObjectStore,
    version: Version,
    *,
    part: str | None = None,
    columns: Sequence[str] | None = None,
    since: int = 0,
) -> pa.Table:
    """With ``since``, only files that this version and later ones added."""
    schema = version.schema
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    stored = stored_rows(connection, version, part=part, since=since)
    tables = [file.read(content(connection.engine, objects, version, file.sha256), schema) for file in stored]
    return pa.concat_tables([empty_table(schema), *tables])


def take(
    connection: Connection,
    objects: ObjectStore,
    version: Version,
    ids: Sequence[str],
    *,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """In the order of ``ids``; ``NotFound`` if one is lacking."""
    schema = version.schema
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    named_here = named(version.dataset, ids) | {"number": version.number}
    found = {key: (file, at, labels) for key, file, at, labels in connection.execute(_PLACES, named_here)}
    if (lacking := next((key for key in ids if key not in found), None)) is not None:
        raise NotFound(f"{version.id} has no row {lacking[:80]!r}")
    held = _files(version).where(_FILE.c.file.in_({file for file, _, _ in found.values()}))
    files = {file.file: file for file in connection.execute(held)} if ids else {}
    of_object: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(ids):
        of_object[files[found[key][0]].sha256].append(row)
    tables, order = [empty_table(schema)], []
    for sha256, rows in of_object.items():
        chosen = [found[ids[row]] for row in rows]
        runs = [run for file in {file for file, _, _ in chosen} for run in _runs(files[file])]
        places = [(file, at) for file, at, _ in chosen]
        table = conform(
            rows_at(content(connection.engine, objects, version, sha256), runs, places, schema.names), schema
        )
        labels = {row: values for row, (_, _, values) in enumerate(chosen) if values is not None}
        tables.append(with_labels(table, labels))
        order += rows
    return pa.concat_tables(tables).take(pa.array(np.argsort(order)))


def _runs(file: Any) -> list[Run]:
    return [run for _, run in runs_of(file.file, file.parts, file.packed)]


def stored_rows(
    connection: Connection, version: Version, *, part: str | None = None, since: int = 0
) -> list[VersionRows]:
    """By object, in :func:`read`'s order."""
    labels, gone = _relabelled(connection, version), _gone(connection, version)
    runs: list[tuple[str, list[Run]]] = []
    absent: dict[int, NDArray[np.int64]] = {}
    for file in connection.execute(_files(version).where(_FILE.c.file >= since)).all():
        mine = runs_of(file.file, file.parts, file.packed)
        chosen = [run for of, run in mine if part is None or of == part]
        if drop := set(gone[file.file]) - labels[file.file].keys():
            absent[file.file] = np.array(sorted(drop), np.int64)
        if chosen and runs and runs[-1][0] == file.sha256:
            runs[-1][1].extend(chosen)
        elif chosen:
            runs.append((file.sha256, chosen))
    return [VersionRows(sha256, found, absent, labels) for sha256, found in runs]


Change = Literal["added", "removed", "changed"]


def some_rows(
    connection: Connection, objects: ObjectStore, version: Version, *, limit: int
) -> list[dict[str, Any]]:
    """First rows of the newest file that has any."""
    for file in reversed(connection.execute(_files(version)).all()):
        living = _lives().where(_ROW.c.dataset == version.dataset, _ROW.c.file == file.file)
        places = living.where(*_is_in(version.number)).order_by(_ROW.c.position).limit(limit)
        if ids := [_life(row).origin.record_id for row in connection.execute(places)]:
            found: list[dict[str, Any]] = take(connection, objects, version, ids).to_pylist()
            return found
    return []


@dataclass(frozen=True, slots=True)
class RowChange:
    """Row that differs between two versions: provenance and labels in each."""

    id: str
    change: Change
    before: Provenance | None
    after: Provenance | None
    labels_before: dict[str, Any] | None = None
    """Label columns by name; None if the version lacks the row."""
    labels_after: dict[str, Any] | None = None
    columns: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after}
        return asdict(self) | {name: side and side.to_dict() for name, side in sides.items()}


@dataclass(frozen=True, slots=True)
class Diff:
    """Ids of rows that differ between two versions, sorted."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    rows: list[RowChange] = field(default_factory=list)
    """Changed, removed, then added ones, up to a limit."""


def diff(connection: Connection, objects: ObjectStore, old: Version, new: Version, *, limit: int = 0) -> Diff:
    before, after = _sides(connection, old, new)
    both = before.keys() & after.keys()
    kinds: dict[Change, list[str]] = {
        "changed": sorted(key for key in both if before[key] != after[key]),
        "removed": sorted(key for key in before if key not in both),
        "added": sorted(key for key in after if key not in both),
    }
    chosen = [(change, key) for change, keys in kinds.items() for key in keys[:limit]][:limit]
    ids = [key for _, key in chosen]
    rows, rows_now = (_sides_of(connection, objects, version, ids) for version in (old, new))
    moved = [key for key in rows if key in rows_now and rows[key][0].place != rows_now[key][0].place]
    columns = _unequal_columns(connection, objects, old, new, moved)
    changes = []
    for change, key in chosen:
        (life, labels), (now, labels_now) = rows.get(key, _ABSENT), rows_now.get(key, _ABSENT)
        differ = columns.get(key, []) + (_unequal(labels, labels_now) if labels and labels_now else [])
        origin, origin_now = (side.origin if side else None for side in (life, now))
        names = list(dict.fromkeys(differ))
        changes.append(RowChange(key, change, origin, origin_now, labels, labels_now, names))
    return Diff(**kinds, rows=changes)


_Digests = dict[str, bytes]
_Side = tuple[Life | None, dict[str, Any] | None]
_ABSENT: _Side = None, None


def _unequal_columns(
    connection: Connection, objects: ObjectStore, old: Version, new: Version, ids: Sequence[str]
) -> dict[str, list[str]]:
    """Columns in which rewritten rows differ, by id."""
    if not ids:
        return {}
    first, second = (take(connection, objects, version, ids).to_pylist() for version in (old, new))
    return {key: _unequal(*rows) for key, *rows in zip(ids, first, second, strict=True)}


def _unequal(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """NaN equals NaN, and an absent value null."""
    names = [name for name in dict.fromkeys([*first, *second]) if name not in NOT_CONTENT]
    values = {name: (first.get(name), second.get(name)) for name in names}
    return [name for name, (a, b) in values.items() if a != b and (a == a or b == b)]


def _sides(connection: Connection, old: Version, new: Version) -> tuple[_Digests, _Digests]:
    """Rows of both versions that came or went between them."""
    low, high = sorted((old.number, new.number))
    between = {"of": old.dataset, "low": low, "high": high}
    sides: dict[int, _Digests] = {low: {}, high: {}}
    for number, statement in ((low, _WENT), (high, _CAME), (high, _RELABELLED)):
        found = connection.execute(statement, between)
        assert found.cursor is not None  # it has rows
        sides[number].update(found.cursor.fetchall())  # SQLAlchemy's rows take three times as long
        found.close()
    return sides[old.number], sides[new.number]


def _sides_of(
    connection: Connection, objects: ObjectStore, version: Version, ids: Sequence[str]
) -> dict[str, tuple[Life, dict[str, Any]]]:
    if not ids:
        return {}
    known = connection.execute(_IN_VERSION, named(version.dataset, ids) | {"number": version.number})
    living = {life.origin.record_id: life for life in map(_life, known)}
    labels = _labels_of(connection, objects, version, list(living))
    return {key: (life, labels[key]) for key, life in living.items()}


def _labels_of(
    connection: Connection, objects: ObjectStore, version: Version, ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    names = [name for name in version.schema.names if name.startswith("label.")]
    if not names:
        return {key: {} for key in ids}
    table = take(connection, objects, version, ids, columns=names)  # without ids: texts take longest
    return dict(zip(ids, table.to_pylist(), strict=True))


def kept_columns(batch: Batch) -> pa.Table:
    return pa.Table.from_batches([batch.to_arrow()]).drop_columns(list(_LEFT_OUT))


# ---- rows of the database -------------------------------------------------------------------------------

NAMED = (
    _ROW.c.record_id.in_(select(func.json_each(bindparam("ids")).table_valued("value").c.value)),
    of_dataset(_ROW, bindparam("of")),
)


def _lives() -> Select[Any]:
    columns = [_ROW.c[name] for name in ("file", "position", "number", "removed")]
    return select(*columns, _ROW.c.digest, *(_ROW.c[name] for name in Provenance.__slots__))


def _life(row: Sequence[Any]) -> Life:
    file, position, number, removed, digest, *origin = row
    return Life(file, position, number, removed, Provenance(*origin), digest)


def _is_in(number: int | BindParameter[int]) -> tuple[ColumnElement[bool], ...]:
    return _ROW.c.number <= number, or_(_ROW.c.removed.is_(None), _ROW.c.removed > number)


# built once: SQLAlchemy takes longer to build a statement than SQLite to run it
_NEWEST = select(_VERSION).where(_VERSION.c.dataset == bindparam("of"))
_NEWEST = _NEWEST.order_by(_VERSION.c.number.desc()).limit(1)
_LIVING = _lives().where(_ROW.c.removed.is_(None), *NAMED)
_IN_VERSION = _lives().where(*NAMED, *_is_in(bindparam("number")))
_PLACES = select(_ROW.c.record_id, _ROW.c.file, _ROW.c.position, _ROW.c.labels).where(
    *NAMED, *_is_in(bindparam("number"))
)
_LOW: BindParameter[int] = bindparam("low")
_HIGH: BindParameter[int] = bindparam("high")
_DIGESTS = select(_ROW.c.record_id, _ROW.c.digest).where(_ROW.c.dataset == bindparam("of"))
_STAYS = or_(_ROW.c.removed.is_(None), _ROW.c.removed > _HIGH)
_CAME = _DIGESTS.where(_ROW.c.file > _LOW, _ROW.c.file <= _HIGH, _ROW.c.number <= _HIGH, _STAYS)
_RELABELLED = _DIGESTS.where(_ROW.c.labels.is_not(None), _ROW.c.number > _LOW, _ROW.c.number <= _HIGH, _STAYS)
_WENT = _DIGESTS.where(
    _ROW.c.removed.is_not(None), _ROW.c.removed > _LOW, _ROW.c.removed <= _HIGH, _ROW.c.number <= _LOW
)


def _files(version: Version) -> Select[Any]:
    living = or_(_FILE.c.ended.is_(None), _FILE.c.ended > version.number)
    query = select(_FILE).where(_FILE.c.dataset == version.dataset, _FILE.c.file <= version.number, living)
    return query.order_by(_FILE.c.file)


def content(engine: Engine, objects: ObjectStore, version: Version, sha256: str) -> memoryview:
    """``Erased`` if rows were erased meanwhile."""
    try:
        return objects.mapped(sha256)
    except NotFound as error:
        with engine.connect() as connection:  # what the caller reads may be of before the erasure
            _check_erased(connection, version.dataset, version.digest)
        raise NotFound(
            f"{version.id}: {error}; open it again: its file was written anew, or is lost"
        ) from None


def _relabelled(connection: Connection, version: Version) -> dict[int, dict[int, dict[str, Any]]]:
    """Labels that override a file's, by file and position."""
    query = select(_ROW.c.file, _ROW.c.position, _ROW.c.labels).where(
        _ROW.c.dataset == version.dataset, _ROW.c.labels.is_not(None), *_is_in(version.number)
    )
    found: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for file, position, labels in connection.execute(query).all():
        found[file][position] = labels
    return found


def _gone(connection: Connection, version: Version) -> dict[int, list[int]]:
    """Positions of rows that the version lacks or has with other labels, by file."""
    query = select(_ROW.c.file, _ROW.c.position).where(
        _ROW.c.dataset == version.dataset, _ROW.c.removed.is_not(None), _ROW.c.removed <= version.number
    )
    found: dict[int, list[int]] = defaultdict(list)
    for file, position in connection.execute(query).all():
        found[file].append(position)
    return found
