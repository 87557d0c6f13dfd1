"""Dataset versions: rows, their provenance, and differences between versions.

A version's rows lie in Parquet files named by their digest, one for each version that added rows. The life of
a row (:class:`DatasetRow`) says where it lies, which versions have it and where it comes from.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, and_, bindparam, func, or_, select
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

from .digests import digests_of
from .row_files import conform, schema_of_file
from .stored_rows import Labels, Run, StoredRows, rows_at, runs_of, with_labels

_VERSION, _FILE, _ROW = table_of(DatasetVersion), table_of(DatasetRowFile), table_of(DatasetRow)
_ERASED = table_of(ErasedVersion)
_LEFT_OUT = ("received", "partial")
Place = tuple[int, int]
"""File and position of a row."""


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
    """Names of the assertions that flagged it, comma-separated."""
    label_source: str | None = None
    part: str = "train"
    label_seq: int | None = None
    label_row: int | None = None
    """With ``label_seq``: place of its label in the journal; None of weak and imported ones."""
    model_version: str | None = None
    """Version of the model whose answer was judged."""
    flags: str | None = None
    """JSON: assertion, revision and severity of each flag; None of imported rows."""
    reviewer: str | None = None
    """Sources of the reviews of these flags, comma-separated."""
    weight: float | None = None
    """Records of the traffic that the row stands for; None of imported rows."""

    @property
    def flagged_by(self) -> list[RowFlag]:
        """Flags of the row, the severest first."""
        return [RowFlag(*flag) for flag in json.loads(self.flags or "[]")]

    def told(self) -> dict[str, Any]:
        """Fields with the flags as objects."""
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
    arrow_schema: bytes | None = field(default=None, repr=False)
    state: bytes | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        """Name in lineage, such as ``digits-flagged@2``."""
        return node_id(self.dataset, self.number)

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return int(self.manifest.get("bytes", sum(file["bytes"] for file in self._files)))

    @property
    def added(self) -> int:
        """Rows that are in no version before."""
        rows = sum(file["rows"] for file in self._files if file["added"] == self.number)
        return int(self.manifest.get("changes", {"added": rows})["added"])

    @property
    def _files(self) -> list[dict[str, Any]]:
        """Files that the manifest of an old version lists."""
        files: list[dict[str, Any]] = self.manifest.get("files", [])
        return files


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
    digest: bytes | None
    """SHA-256 of its content and of its labels; None in old versions."""

    @property
    def place(self) -> Place:
        """File and position."""
        return self.file, self.position

    def is_in(self, number: int) -> bool:
        """Test for a row of that version."""
        return self.number <= number and (self.removed is None or self.removed > number)


def told(version: Version, service: str) -> dict[str, object]:
    """Name, digest and address of a version, for events."""
    rows = f"{service}/v1/datasets/{quote(version.dataset, safe='')}/versions/{version.number}/rows"
    facts = {"name": version.dataset, "version": version.number, "rows": version.rows}
    said = ("rule", "field", "severity", "rows")
    warnings = version.manifest["validation"].get("warnings", [])
    told = [{key: warning[key] for key in said} for warning in warnings]
    return facts | {"digest": version.digest, "url": rows, "warnings": told}


def newest(connection: Connection, dataset: str) -> Version | None:
    """The newest version of a dataset, None when there is none."""
    row = connection.execute(_NEWEST, {"of": dataset}).first()
    return None if row is None else Version(**row._mapping)


def get(connection: Connection, dataset: str, number: int | str | None = None) -> Version:
    """Dataset version by number or digest, the newest by default.

    Raises
    ------
    NotFound
        If there is no such dataset or version.
    Erased
        If a version had that digest until rows were erased from it.
    """
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
    """True where rows were erased since the version was read."""
    at = _VERSION.c.dataset == version.dataset, _VERSION.c.number == version.number
    return connection.scalar(select(_VERSION.c.digest).where(*at)) != version.digest


def all_versions(connection: Connection) -> list[Version]:
    """Every version of every dataset, by name and number."""
    rows = connection.execute(select(_VERSION).order_by(_VERSION.c.dataset, _VERSION.c.number))
    return [Version(**row._mapping) for row in rows]


def made_since(connection: Connection, after_us: int) -> list[Version]:
    """Versions of all datasets made later than ``after_us``, in order."""
    query = select(_VERSION).where(_VERSION.c.created_us > after_us).order_by(_VERSION.c.created_us)
    return [Version(**row._mapping) for row in connection.execute(query)]


def schema_of(connection: Connection, objects: ObjectStore, version: Version) -> pa.Schema:
    """Columns of a version's rows and their types."""
    if version.arrow_schema is not None:
        return pa.ipc.read_schema(pa.py_buffer(version.arrow_schema))
    first = connection.execute(_files(version).limit(1)).first()
    if first is None:
        raise NotFound(f"{version.id} has no file in the database; restore a backup that has it")
    return schema_of_file(_content(objects, version, first.sha256))


def provenance(connection: Connection, version: Version) -> list[Provenance]:
    """Provenance of every row of a version, in :func:`read`'s order."""
    return [life.origin for life in lives(connection, version)]


def lives(connection: Connection, version: Version) -> list[Life]:
    """Every row of a version, in :func:`read`'s order."""
    query = _lives().where(_ROW.c.dataset == version.dataset, *_is_in(version.number))
    query = query.order_by(_ROW.c.file, _ROW.c.position)
    return [_life(row) for row in connection.execute(query)]


def lives_of(connection: Connection, dataset: str, ids: Sequence[str]) -> dict[str, Life]:
    """Rows of the newest version among some ids, by id."""
    found = connection.execute(_LIVING, named(dataset, ids)).all()
    return {life.origin.record_id: life for life in map(_life, found)}


def lives_everywhere(connection: Connection, ids: Sequence[str]) -> list[tuple[str, Life]]:
    """Every life of some rows in all datasets, each with its dataset."""
    places = ("dataset", "file", "position", "number")
    values = select(func.json_each(json.dumps(list(ids))).table_valued("value").c.value)
    query = _lives().add_columns(_ROW.c.dataset).where(_ROW.c.record_id.in_(values))
    rows = connection.execute(query.order_by(*(_ROW.c[name] for name in places)))
    return [(dataset, _life(row)) for *row, dataset in rows]


def named(dataset: str, ids: Sequence[str]) -> dict[str, str]:
    """Parameters of statements on rows that are :data:`NAMED`."""
    return {"of": dataset, "ids": json.dumps(list(ids))}


def read(connection: Connection, objects: ObjectStore, version: Version, *, part: str | None = None) -> Batch:
    """Rows of a version, or of its part ``train`` or ``held_out``.

    In order of the version that added them, part and id.
    """
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
    """Rows of a version as a table, all columns unless named.

    With ``since``, only those of files that this version and later ones added.
    """
    schema = schema_of(connection, objects, version)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    stored = stored_rows(connection, version, part=part, since=since)
    tables = [one.read(_content(objects, version, one.sha256), schema) for one in stored]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def stored_rows(
    connection: Connection, version: Version, *, part: str | None = None, since: int = 0
) -> list[StoredRows]:
    """Rows of a version or part by object, in :func:`read`'s order."""
    labels, gone = _relabelled(connection, version), _gone(connection, version)
    runs: list[tuple[str, list[Run]]] = []
    absent: dict[int, NDArray[np.int64]] = {}
    for file in connection.execute(_files(version).where(_FILE.c.file >= since)).all():
        mine = runs_of(file.file, file.rows, file.parts, file.packed)
        chosen = [run for of, run in mine if part is None or of is None or of == part]
        drop = set(gone[file.file]) - labels[file.file].keys()
        if part is not None and file.parts is None:
            drop |= set(range(file.rows)).difference(_of_part(connection, version, file.file, part))
        if drop:
            absent[file.file] = np.array(sorted(drop), np.int64)
        if chosen and runs and runs[-1][0] == file.sha256:
            runs[-1][1].extend(chosen)
        elif chosen:
            runs.append((file.sha256, chosen))
    return [StoredRows(sha256, found, absent, labels) for sha256, found in runs]


Change = Literal["added", "removed", "changed"]


def some_rows(
    connection: Connection, objects: ObjectStore, version: Version, *, limit: int
) -> list[dict[str, Any]]:
    """First rows of a version's newest file with any left."""
    for file in reversed(connection.execute(_files(version)).all()):
        living = _lives().where(_ROW.c.dataset == version.dataset, _ROW.c.file == file.file)
        places = living.where(*_is_in(version.number)).order_by(_ROW.c.position).limit(limit)
        if found_lives := [_life(row) for row in connection.execute(places)]:
            positions = [life.position for life in found_lives]
            schema = schema_of(connection, objects, version)
            table = rows_at(_content(objects, version, file.sha256), _runs(file), positions, schema.names)
            labels = _own_labels(connection, version.dataset, found_lives)[file.file]
            found: list[dict[str, Any]] = _labelled(conform(table, schema), positions, labels).to_pylist()
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
    """Label columns by name; None where the version does not have the row."""
    labels_after: dict[str, Any] | None = None

    def told(self) -> dict[str, Any]:
        """Fields with the provenance of :meth:`Provenance.told`."""
        sides = {"before": self.before, "after": self.after}
        return asdict(self) | {name: side and side.told() for name, side in sides.items()}


@dataclass(frozen=True, slots=True)
class Diff:
    """Ids of rows that differ between two versions, sorted."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    rows: list[RowChange] = field(default_factory=list)
    """Changed, removed, then added ones, as many as were asked for."""


def diff(connection: Connection, objects: ObjectStore, old: Version, new: Version, *, limit: int = 0) -> Diff:
    """Difference between two versions, from the rows that changed in between.

    ``rows`` has provenance and labels of ``limit`` of them.
    """
    before, after = _sides(connection, objects, old, new)
    both = before.keys() & after.keys()
    kinds: dict[Change, list[str]] = {
        "changed": sorted(key for key in both if before[key].digest != after[key].digest),
        "removed": sorted(before.keys() - after.keys()),
        "added": sorted(after.keys() - before.keys()),
    }
    chosen = [(change, key) for change, keys in kinds.items() for key in keys][:limit]
    labels, labels_now = (
        _labels_of(connection, objects, version, [side[key] for _, key in chosen if key in side])
        for version, side in ((old, before), (new, after))
    )
    rows = []
    for change, key in chosen:
        origin, now = (side[key].origin if key in side else None for side in (before, after))
        rows.append(RowChange(key, change, origin, now, labels.get(key), labels_now.get(key)))
    return Diff(**kinds, rows=rows)


def rows_of(
    connection: Connection,
    objects: ObjectStore,
    version: Version,
    living: Sequence[Life],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Some rows of a version in the order of their lives.

    No file is read that holds none of them.
    """
    schema = schema_of(connection, objects, version)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    of_file: dict[int, list[int]] = defaultdict(list)
    for place, life in enumerate(living):
        of_file[life.file].append(place)
    labels = _own_labels(connection, version.dataset, living)
    held = _FILE.c.dataset == version.dataset, _FILE.c.file.in_(list(of_file))
    tables, order = [schema.empty_table()], []
    for file in connection.execute(select(_FILE).where(*held)).all():
        places = of_file[file.file]
        positions = [living[at].position for at in places]
        table = conform(
            rows_at(_content(objects, version, file.sha256), _runs(file), positions, schema.names), schema
        )
        tables.append(_labelled(table, positions, labels[file.file]))
        order += places
    return pa.concat_tables(tables).take(pa.array(np.argsort(order)))


def _runs(file: Any) -> list[Run]:
    return [run for _, run in runs_of(file.file, file.rows, file.parts, file.packed)]


def _labelled(table: pa.Table, positions: Sequence[int], labels: Labels) -> pa.Table:
    return with_labels(table, {row: labels[at] for row, at in enumerate(positions) if at in labels})


def _sides(
    connection: Connection, objects: ObjectStore, old: Version, new: Version
) -> tuple[dict[str, Life], dict[str, Life]]:
    """Rows of both versions, by id, that came or went between them, with digests."""
    low, high = sorted((old.number, new.number))
    sides: dict[int, dict[str, Life]] = {low: {}, high: {}}
    for life in _changed(connection, old.dataset, low, high):
        for number, side in sides.items():
            if life.is_in(number):
                side[life.origin.record_id] = life
    for version in (old, new):
        side = sides[version.number]
        if any(life.digest is None for life in side.values()):  # of an old version
            table = read_table(connection, objects, version)
            for key, digest in zip(table.column("id").to_pylist(), digests_of(table), strict=True):
                if key in side:
                    side[key] = replace(side[key], digest=digest)
    return sides[old.number], sides[new.number]


def _labels_of(
    connection: Connection, objects: ObjectStore, version: Version, living: Sequence[Life]
) -> dict[str, dict[str, Any]]:
    if not living:
        return {}
    names = [name for name in schema_of(connection, objects, version).names if name.startswith("label.")]
    told = rows_of(connection, objects, version, living, names).to_pylist()
    return {life.origin.record_id: labels for life, labels in zip(living, told, strict=True)}


def kept_columns(batch: Batch) -> pa.Table:
    """Columns of a batch that a dataset keeps."""
    return pa.Table.from_batches([batch.to_arrow()]).drop_columns(list(_LEFT_OUT))


# ---- rows of the database -------------------------------------------------------------------------------

NAMED = (
    _ROW.c.record_id.in_(select(func.json_each(bindparam("ids")).table_valued("value").c.value)),
    of_dataset(_ROW, bindparam("of")),
)
"""Conditions on rows of a dataset by their ids."""


def _lives() -> Select[Any]:
    columns = [_ROW.c[name] for name in ("file", "position", "number", "removed")]
    return select(*columns, _ROW.c.digest, *(_ROW.c[name] for name in Provenance.__slots__))


def _life(row: Sequence[Any]) -> Life:
    file, position, number, removed, digest, *origin = row
    return Life(file, position, number, removed, Provenance(*origin), digest)


# built once: SQLAlchemy takes longer to build a statement than SQLite to run it
_NEWEST = select(_VERSION).where(_VERSION.c.dataset == bindparam("of"))
_NEWEST = _NEWEST.order_by(_VERSION.c.number.desc()).limit(1)
_LIVING = _lives().where(_ROW.c.removed.is_(None), *NAMED)


def _is_in(number: int) -> tuple[ColumnElement[bool], ...]:
    return _ROW.c.number <= number, or_(_ROW.c.removed.is_(None), _ROW.c.removed > number)


def _files(version: Version) -> Select[Any]:
    living = or_(_FILE.c.ended.is_(None), _FILE.c.ended > version.number)
    query = select(_FILE).where(_FILE.c.dataset == version.dataset, _FILE.c.file <= version.number, living)
    return query.order_by(_FILE.c.file)


def _content(objects: ObjectStore, version: Version, sha256: str) -> memoryview:
    try:
        return objects.mapped(sha256)
    except NotFound as error:
        raise NotFound(
            f"{version.id}: {error}; rows were erased from it just now (read it again), or its file is lost"
        ) from None


def _relabelled(connection: Connection, version: Version) -> dict[int, dict[int, dict[str, Any]]]:
    """Labels in the place of those of a file, by file and position."""
    query = select(_ROW.c.file, _ROW.c.position, _ROW.c.labels).where(
        _ROW.c.dataset == version.dataset, _ROW.c.labels.is_not(None), *_is_in(version.number)
    )
    return _by_place(connection.execute(query))


def _own_labels(
    connection: Connection, dataset: str, living: Iterable[Life]
) -> dict[int, dict[int, dict[str, Any]]]:
    """The same of some rows: a life that began behind its file has labels of its own."""
    keys = [[life.file, life.position, life.number] for life in living if life.number != life.file]
    each = func.json_each(json.dumps(keys)).table_valued("value")
    key = [func.json_extract(each.c.value, f"$[{at}]") for at in range(3)]
    is_key = [_ROW.c[name] == value for name, value in zip(("file", "position", "number"), key, strict=True)]
    query = select(_ROW.c.file, _ROW.c.position, _ROW.c.labels).select_from(
        # An outer join: else SQLite reads all rows of the dataset and looks for each among the keys.
        each.outerjoin(_ROW, and_(_ROW.c.dataset == dataset, *is_key))
    )
    return _by_place(connection.execute(query) if keys else ())


def _by_place(rows: Iterable[Any]) -> dict[int, dict[int, dict[str, Any]]]:
    found: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for file, position, labels in rows:
        if labels is not None:
            found[file][position] = labels
    return found


def _gone(connection: Connection, version: Version) -> dict[int, list[int]]:
    """Positions whose rows the version has no more, or with other labels, by file."""
    query = select(_ROW.c.file, _ROW.c.position).where(
        _ROW.c.dataset == version.dataset, _ROW.c.removed.is_not(None), _ROW.c.removed <= version.number
    )
    found: dict[int, list[int]] = defaultdict(list)
    for file, position in connection.execute(query):
        found[file].append(position)
    return found


def _of_part(connection: Connection, version: Version, file: int, part: str) -> list[int]:
    query = select(_ROW.c.position).where(
        _ROW.c.dataset == version.dataset, _ROW.c.file == file, _ROW.c.part == part
    )
    return list(connection.scalars(query))


def _changed(connection: Connection, dataset: str, low: int, high: int) -> list[Life]:
    """Rows that came or went in versions above ``low`` up to ``high``."""
    found: dict[tuple[int, int, int], Life] = {}
    for changed in (
        (_ROW.c.file > low, _ROW.c.file <= high),
        (_ROW.c.labels.is_not(None), _ROW.c.number > low, _ROW.c.number <= high),
        (_ROW.c.removed.is_not(None), _ROW.c.removed > low, _ROW.c.removed <= high),
    ):
        for row in connection.execute(_lives().where(_ROW.c.dataset == dataset, *changed)):
            life = _life(row)
            found[life.file, life.position, life.number] = life
    return list(found.values())
