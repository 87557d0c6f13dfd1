"""Dataset versions.

Immutable Parquet files named by their digest, a manifest each, provenance per row. A version is a list of
files; appending shares the parent's files. A row's provenance (:class:`DatasetRow`) stands under the number
of the version that *added* its file, at its position in that file, and is written in the transaction that
commits the version, together with lineage and outbox.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection, func, insert, select

from outrider.assertions import Batch
from outrider.assertions.columns import as_type, common_type
from outrider.dataops.models.lineage import Kind, add_edges, node_id
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetVersion, Quarantine
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound, OutriderError, SchemaMismatch

from .row_counts import row_counts

_VERSION = table_of(DatasetVersion)
_ROW = table_of(DatasetRow)
_REFUSED = table_of(Quarantine)
_LEFT_OUT = ("received", "partial")
_NOT_CONTENT = ("ts", *_LEFT_OUT)


class StaleParent(OutriderError):  # noqa: N818 - reads as the event it is
    """Another version was committed meanwhile: prepare again."""


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

    @property
    def id(self) -> str:
        """Name in lineage, such as ``digits-flagged@2``."""
        return node_id(self.dataset, self.number)


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft of a version: files are stored, but still invisible."""

    dataset: str
    model: str
    parent: Version | None
    digest: str
    rows: int
    files: list[dict[str, Any]]
    columns: dict[str, str]
    provenance: Sequence[Provenance] = field(repr=False)
    appended: bool = False
    """Made of the parent's rows."""
    retold: bool = False
    """A row that stays is told of anew, such as a weak label that a person confirmed."""


def prepare(
    connection: Connection,
    objects: ObjectStore,
    *,
    dataset: str,
    batch: Batch | None,
    provenance: Sequence[Provenance],
    append: bool,
    removed: Collection[str] = (),
) -> Draft:
    """Store the files of a coming version; nothing is visible until :func:`commit`.

    Parameters
    ----------
    batch, provenance
        The rows to add and where each comes from, aligned. They are stored in order of their ids. None where
        rows are removed alone.
    append
        Whether the rows of the newest version stay, but for those whose ids come again; else the new
        version holds these rows alone.
    removed
        Ids of rows of the newest version that do not stay.

    Raises
    ------
    ValueError
        If nothing is added or removed, provenance is not aligned, or an id occurs twice.
    SchemaMismatch
        If appended rows have other columns than the version they are appended to; lists of objects may have
        got fields.
    """
    parent = newest(connection, dataset)
    stored = None if parent is None or not append else _read_files(objects, parent.manifest["files"])
    if batch is None and parent is not None and stored is not None and removed:
        batch = Batch.from_arrow(stored.slice(0, 0), model=parent.model)
    elif batch is None or batch.rows == 0:
        raise ValueError("rows to add, or ids of the newest version to remove expected, got neither")
    if len(provenance) != batch.rows:
        raise ValueError(f"one provenance per row expected, got {len(provenance)} for {batch.rows}")
    table = canonical(batch)
    order = np.argsort(np.asarray(batch.keys, dtype=str), kind="stable")
    provenance = [provenance[row] for row in order]
    files: list[dict[str, Any]] = []
    whole, retold = table, False
    if parent is not None and stored is not None:
        old = _grown(stored, table.schema)
        table = _conform(table, old.schema, node_id(dataset, parent.number))
        gone = pa.chunked_array([table["id"].combine_chunks(), pa.array([*removed], pa.string())])
        stays = pc.invert(pc.is_in(old["id"], gone))
        whole = pa.concat_tables([old.filter(stays), table])
        if old is stored and pc.all(stays).as_py() is not False:
            files = list(parent.manifest["files"])
        else:  # files never change: what is left of the old rows is written anew
            earlier = _provenance_in_order(connection, parent)
            told = {row.record_id: row for row in earlier}
            retold = any(told.get(row.record_id, row) != row for row in provenance)
            provenance = [
                *(p for p, stay in zip(earlier, stays.to_pylist(), strict=True) if stay),
                *provenance,
            ]
            table = whole
    _unique_ids(whole)
    data = _to_parquet(table)
    number = 1 if parent is None else parent.number + 1
    entry = {"sha256": objects.put(data), "rows": table.num_rows, "bytes": len(data), "added": number}
    columns = {f.name: str(f.type) for f in table.schema}
    return Draft(
        dataset,
        batch.model,
        parent,
        content_digest(whole),
        whole.num_rows,
        [*files, entry],
        columns,
        provenance,
        appended=stored is not None,
        retold=retold,
    )


def commit(
    connection: Connection,
    draft: Draft,
    *,
    validation: dict[str, Any],
    now_us: int,
    made_from: Sequence[tuple[Kind, str, str]] = (),
    targets: Sequence[WebhookTarget] = (),
    service: str = "",
    notes: Mapping[str, Any] | None = None,
) -> Version:
    """Make a draft the newest version, in the caller's write transaction.

    ``service`` is the address under which receivers of the event find the rows. Content equal to the newest
    version's, told of alike, commits nothing and returns that version. ``notes`` join the manifest.

    Raises
    ------
    StaleParent
        If the newest version is no longer the draft's parent.
    """
    current = newest(connection, draft.dataset)
    if current is not None and current.digest == draft.digest and not draft.retold:
        return current
    expected = None if draft.parent is None else draft.parent.number
    if (None if current is None else current.number) != expected:
        raise StaleParent(
            f"dataset {draft.dataset!r}: prepared on version {expected}, but the newest is "
            f"{None if current is None else current.number}; prepare it again"
        )
    number = 1 if expected is None else expected + 1
    shared = draft.parent if len(draft.files) > 1 else None
    before = None if shared is None else shared.manifest["counts"]
    counts = row_counts(draft.provenance, before)
    manifest = {"files": draft.files, "columns": draft.columns, "counts": counts, "validation": validation}
    manifest |= notes or {}
    version = Version(
        draft.dataset, number, draft.model, expected, draft.digest, draft.rows, manifest, now_us
    )
    connection.execute(insert(_VERSION).values(asdict(version)))
    if draft.provenance:
        connection.execute(
            insert(_ROW),
            [
                {
                    "dataset": version.dataset,
                    "number": number,
                    "position": position,
                    "record_id": row.record_id,
                    "assertion": row.assertion,
                    "label_source": row.label_source,
                    "part": row.part,
                    "label_seq": row.label_seq,
                    "label_row": row.label_row,
                }
                for position, row in enumerate(draft.provenance)
            ],
        )
    parents = [*made_from]
    if expected is not None and draft.appended:
        parents.append(("dataset", node_id(version.dataset, expected), "parent"))
    add_edges(connection, "dataset", version.id, parents, now_us=now_us)
    job = next((name for kind, name, _ in made_from if kind == "job"), None)
    data = {"job": job, "model": version.model} | told(version, service)
    enqueue(connection, "dataset.committed", data, targets=targets, now_us=now_us)
    return version


def told(version: Version, service: str) -> dict[str, object]:
    """Name, digest and address of a version, for events."""
    rows = f"{service}/v1/datasets/{quote(version.dataset, safe='')}/versions/{version.number}/rows"
    facts = {"name": version.dataset, "version": version.number, "rows": version.rows}
    return facts | {"digest": version.digest, "url": rows}


def newest(connection: Connection, dataset: str) -> Version | None:
    """The newest version of a dataset, None when there is none."""
    row = connection.execute(
        select(_VERSION).where(_VERSION.c.dataset == dataset).order_by(_VERSION.c.number.desc()).limit(1)
    ).first()
    return None if row is None else Version(**row._mapping)


def get(connection: Connection, dataset: str, number: int | None = None) -> Version:
    """Dataset version by number, the newest by default.

    Raises
    ------
    NotFound
        If there is no such dataset or version.
    """
    query = select(_VERSION).where(_VERSION.c.dataset == dataset)
    if number is not None:
        query = query.where(_VERSION.c.number == number)
    row = connection.execute(query.order_by(_VERSION.c.number.desc()).limit(1)).first()
    if row is None:
        raise NotFound(
            f"no dataset {dataset!r}" if number is None else f"dataset {dataset!r} has no version {number}"
        )
    return Version(**row._mapping)


def all_versions(connection: Connection) -> list[Version]:
    """Every version of every dataset, by name and number."""
    rows = connection.execute(select(_VERSION).order_by(_VERSION.c.dataset, _VERSION.c.number))
    return [Version(**row._mapping) for row in rows]


def made_since(connection: Connection, after_us: int) -> list[Version]:
    """Versions of all datasets made later than ``after_us``, in order."""
    query = select(_VERSION).where(_VERSION.c.created_us > after_us).order_by(_VERSION.c.created_us)
    return [Version(**row._mapping) for row in connection.execute(query)]


def count_quarantined(connection: Connection) -> list[tuple[str | None, int]]:
    """Number of refused rows by model; None: datasets without a version."""
    owner = (
        select(_VERSION.c.model).where(_VERSION.c.dataset == _REFUSED.c.dataset).limit(1).scalar_subquery()
    )
    query = select(owner.label("model"), func.count()).group_by("model")
    return [(model, count) for model, count in connection.execute(query)]


def provenance(connection: Connection, version: Version) -> list[Provenance]:
    """Provenance of every row of a version, in :func:`read`'s order."""
    return _provenance_in_order(connection, version)


def _provenance_in_order(connection: Connection, version: Version) -> list[Provenance]:
    rows: list[Provenance] = []
    for file in version.manifest["files"]:
        found = connection.execute(
            select(*(_ROW.c[name] for name in Provenance.__slots__))
            .where(_ROW.c.dataset == version.dataset, _ROW.c.number == int(file["added"]))
            .order_by(_ROW.c.position)
        )
        rows += [Provenance(*row) for row in found]
    return rows


def read(connection: Connection, objects: ObjectStore, version: Version, *, part: str | None = None) -> Batch:
    """Rows of a version, or its part ``train`` or ``held_out``."""
    batch = Batch.from_arrow(_read_files(objects, version.manifest["files"]), model=version.model)
    if part is None:
        return batch
    parts = np.array([row.part for row in provenance(connection, version)], dtype=str)
    return batch.take(parts == part)


@dataclass(frozen=True, slots=True)
class Diff:
    """Ids of rows that differ between two versions, sorted."""

    added: list[str]
    removed: list[str]
    changed: list[str]


def diff(objects: ObjectStore, old: Version, new: Version) -> Diff:
    """Difference between two versions; common files are not read."""
    shared = {file["sha256"] for file in old.manifest["files"]} & {
        file["sha256"] for file in new.manifest["files"]
    }
    sides = []
    for version in (old, new):
        files = [file for file in version.manifest["files"] if file["sha256"] not in shared]
        rows: dict[str, int] = {}
        if files:
            batch = Batch.from_arrow(_read_files(objects, files).drop_columns("ts"), model=version.model)
            rows = dict(zip(batch.keys.tolist(), batch.content_digests().tolist(), strict=True))
        sides.append(rows)
    before, after = sides
    return Diff(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        changed=sorted(key for key in before.keys() & after.keys() if before[key] != after[key]),
    )


def canonical(batch: Batch) -> pa.Table:
    """The columns that a dataset keeps, rows in order of their ids."""
    table = kept_columns(batch)
    order = np.argsort(np.asarray(batch.keys, dtype=str), kind="stable")
    return table.take(pa.array(order))


def kept_columns(batch: Batch) -> pa.Table:
    """Columns of a batch that a dataset keeps."""
    return pa.Table.from_batches([batch.to_arrow()]).drop_columns(list(_LEFT_OUT))


def content_digest(table: pa.Table) -> str:
    """SHA-256 of rows' content, whatever their order, files, or time recorded.

    Covers names, types, nulls and values of all columns but ``ts``, ``received`` and ``partial``.
    """
    order = np.argsort(table.column("id").to_numpy().astype(str), kind="stable")
    table = table.take(pa.array(order))
    digest = hashlib.sha256()
    for name in sorted(name for name in table.column_names if name not in _NOT_CONTENT):
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        digest.update(f"{name}\0{column.type}\0{len(column)}\0".encode())
        digest.update(np.packbits(column.is_null().to_numpy(zero_copy_only=False)).tobytes())
        for part in _value_bytes(column):
            digest.update(part)
    return digest.hexdigest()


def _value_bytes(column: pa.Array) -> list[bytes]:
    """Bytes that depend on the values alone, not on what lies under nulls or in spare buffer space."""
    if isinstance(column.type, pa.FixedShapeTensorType):
        column = column.storage
    if pa.types.is_fixed_size_list(column.type) and not column.null_count:
        return _value_bytes(column.flatten())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        if pa.types.is_floating(kind):
            values = values + values.dtype.type(0)  # -0.0 equals 0.0
        return [values.tobytes()]
    texts = [repr(value).encode() for value in column.to_pylist()]
    return [np.array([len(text) for text in texts], dtype=np.int64).tobytes(), b"".join(texts)]


def _to_parquet(table: pa.Table) -> bytes:
    floats = {f.name for f in table.schema if not pa.types.is_string(f.type)}
    buffer = BytesIO()
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in floats],
        store_schema=True,
        use_compliant_nested_type=False,  # lists keep the type that they had, and so the digest of a version
    )
    return buffer.getvalue()


def _read_files(objects: ObjectStore, files: Sequence[dict[str, Any]]) -> pa.Table:
    tables = [pq.read_table(BytesIO(objects.get(file["sha256"]))) for file in files]
    return pa.concat_tables([table.replace_schema_metadata(tables[0].schema.metadata) for table in tables])


def _grown(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` with its lists in the types that they share with ``schema``: itself when none has grown."""
    for place, column in enumerate(table.column_names):
        if column not in schema.names:
            continue
        kind = table.schema.field(column).type
        common = common_type(kind, schema.field(column).type)
        if common is not None and common != kind:
            table = table.set_column(place, column, as_type(table.column(column).combine_chunks(), common))
    return table


def _conform(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """``table`` with the columns of ``schema``: inputs and labels must fit, others are filled or dropped."""
    for column in dict.fromkeys([*schema.names, *table.column_names]):
        kinds = [str(s.field(column).type) if column in s.names else "absent" for s in (schema, table.schema)]
        if kinds[0] == kinds[1]:
            continue
        if "absent" not in kinds:
            wanted, given = schema.field(column).type, table.schema.field(column).type
            if common_type(wanted, given) == wanted:  # lists that say less than others before
                place = table.schema.get_field_index(column)
                table = table.set_column(
                    place, column, as_type(table.column(column).combine_chunks(), wanted)
                )
                continue
        if column.startswith(("inputs.", "label.")) or "absent" not in kinds:
            raise SchemaMismatch(column, f"{kinds[0]} in {name}, {kinds[1]} in the rows to append")
        if kinds[1] == "absent":
            table = table.append_column(column, pa.nulls(table.num_rows, schema.field(column).type))
    return table.select(schema.names).replace_schema_metadata(schema.metadata)


def _unique_ids(table: pa.Table) -> None:
    ids, counts = np.unique(table.column("id").to_numpy().astype(str), return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"ids must be unique in a dataset, got {ids[counts > 1][:3].tolist()} more than once"
        )
