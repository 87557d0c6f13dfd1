"""Commits of dataset versions; a version costs only its changes."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, bindparam, insert, or_, select, update
from typing_extensions import TypedDict

from outrider.assertions import Batch
from outrider.dataops.models.lineage import Kind, add_edges, node_id
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetRowFile, DatasetVersion
from outrider.dataops.state.rows import Row, insert_rows, update_rows
from outrider.dataops.state.tables import table_of
from outrider.errors import OutriderError, SchemaMismatch

from .digests import NOT_CONTENT, Lanes, digests_of, lanes, version_digest
from .references import check_dataset_name
from .row_files import conform, empty_table, inexact_columns, is_read, merged_schema, to_parquet
from .versions import (
    NAMED,
    Life,
    Provenance,
    Version,
    event_facts,
    is_erased_from,
    kept_columns,
    lives_of,
    named,
    newest,
    read_table,
)

_VERSION, _FILE, _ROW = table_of(DatasetVersion), table_of(DatasetRowFile), table_of(DatasetRow)
_KEY = ("dataset", "file", "position", "number")
# built once: SQLAlchemy takes longer to build a statement than SQLite to run it
_ADD_VERSION, _ADD_FILE = insert(_VERSION), insert(_FILE)
_CHANGED = select(_ROW.c.record_id).where(
    *NAMED, or_(_ROW.c.number > bindparam("known"), _ROW.c.removed > bindparam("known"))
)
_LABEL = "label."
_MOST_NAMED = 3


class RowCounts(TypedDict):
    """Rows of a version by part, source of the label and assertion."""

    parts: dict[str, int]
    label_sources: dict[str, int]
    """Under ``""`` the rows that name none."""
    assertions: dict[str, int]
    """A row that several flagged counts for each."""


class StaleParent(OutriderError):  # noqa: N818 - reads as the event it is
    """Another version changed the same rows meanwhile: prepare again."""


@dataclass(frozen=True, slots=True)
class Relabelled:
    """Next life of a row at its place: other labels or origin."""

    before: Life
    origin: Provenance
    digest: bytes
    labels: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    sha256: str
    rows: int
    bytes: int
    parts: list[list[object]]


@dataclass(frozen=True, slots=True)
class Draft:
    """Change of a dataset whose file is stored but not yet visible."""

    dataset: str
    model: str
    parent: Version | None
    schema: pa.Schema = field(repr=False)
    file: StoredFile | None
    added: Sequence[tuple[Provenance, bytes]] = field(repr=False)
    """Rows of the file with their digests, by position."""
    lanes: Lanes = field(repr=False)
    """Of the added rows, less those of the removed ones."""
    relabelled: Sequence[Relabelled] = field(default=(), repr=False)
    removed: Sequence[Life] = field(default=(), repr=False)
    is_whole: bool = False
    """The new version holds the added rows alone."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Columns that no model reads and whose values did not fit, with the reason."""

    @property
    def rows(self) -> int:
        before = 0 if self.is_whole or self.parent is None else self.parent.rows
        return before + len(self.added) - len(self.removed)

    @property
    def has_changes(self) -> bool:
        return bool(self.added or self.relabelled or self.removed)

    @property
    def touched(self) -> list[str]:
        ids = [origin.record_id for origin, _ in self.added]
        return [
            *ids,
            *(life.origin.record_id for life in [*(r.before for r in self.relabelled), *self.removed]),
        ]


def prepare(
    connection: Connection,
    objects: ObjectStore,
    *,
    dataset: str,
    batch: Batch | None,
    provenance: Sequence[Provenance],
    append: bool,
    removed: Collection[str] = (),
    reads: Callable[[str], bool] = is_read,
) -> Draft:
    """Rows with a known id replace or relabel the old row."""
    check_dataset_name(dataset)
    rows = 0 if batch is None else batch.rows
    if not (rows or (append and removed)) or len(provenance) != rows:
        raise ValueError(f"one provenance per row expected for > 0 rows, got {len(provenance)} for {rows}")
    _check_unique([*(origin.record_id for origin in provenance), *removed])
    parent = newest(connection, dataset)
    if removed and (parent is None or not append):
        raise ValueError(f"dataset {dataset!r} has no row {_named(removed)} to remove")
    if parent is None or not append:
        assert batch is not None  # there are rows, as nothing is removed
        table, provenance = _in_order(kept_columns(batch), provenance)
        digests = digests_of(table)
        file: StoredFile | None = _stored(objects, table, provenance)
        added = list(zip(provenance, digests, strict=True))
        return Draft(dataset, batch.model, parent, table.schema, file, added, lanes(digests), is_whole=True)
    table = empty_table(parent.schema) if batch is None else kept_columns(batch)
    table, provenance = _in_order(table, provenance)
    ids = [*(origin.record_id for origin in provenance), *removed]
    known = lives_of(connection, dataset, ids)
    if missing := sorted(set(removed).difference(known)):
        raise ValueError(f"dataset {dataset!r} has no row {_named(missing)} to remove")
    schema, unfit = _evolved(connection, objects, parent, table, reads)
    table = conform(table.drop_columns([name for name in table.column_names if name in unfit]), schema)
    with ThreadPoolExecutor(1) as pool:  # compressing and digesting take as long as each other
        is_new = bool(provenance) and known.keys().isdisjoint(origin.record_id for origin in provenance)
        early = pool.submit(_stored, objects, table, provenance) if is_new else None
        digests = digests_of(table)
        relabelled, new = _divided(table, provenance, digests, known)
        added = [(provenance[row], digests[row]) for row in new]
        ended = [known[name] for name in removed]
        ended += [known[origin.record_id] for origin, _ in added if origin.record_id in known]
        come = lanes([*(digest for _, digest in added), *(row.digest for row in relabelled)])
        change = come - lanes([life.digest for life in [*ended, *(row.before for row in relabelled)]])
        if early is not None:
            file = early.result()
        else:
            chosen = table.take(pa.array(new, pa.int64()))
            file = _stored(objects, chosen, [provenance[row] for row in new]) if new else None
    return Draft(
        dataset,
        parent.model if batch is None else batch.model,
        parent,
        schema,
        file,
        added,
        change,
        relabelled,
        ended,
        unfit=unfit,
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
    """Rebase onto newer versions that changed other rows, else raise ``StaleParent``."""
    current = newest(connection, draft.dataset)
    schema = _rebased(connection, draft, current)
    number = 1 if current is None else current.number + 1
    state = draft.lanes if draft.is_whole or current is None else current.lanes + draft.lanes
    rows = draft.rows
    if current is not None and draft.parent is not None and not draft.is_whole:
        rows += current.rows - draft.parent.rows
    columns = {column.name: str(column.type) for column in schema}
    content = {name: kind for name, kind in columns.items() if name not in NOT_CONTENT}
    digest = version_digest(content, rows, state)
    if current is not None and (current.digest == digest if draft.is_whole else not draft.has_changes):
        return current
    version = Version(
        draft.dataset,
        number,
        draft.model,
        None if current is None else current.number,
        digest,
        rows,
        _manifest(draft, current, columns, validation) | dict(notes or {}),
        now_us,
        schema.serialize().to_pybytes(),
        state.astype("<u2").tobytes(),
    )
    connection.execute(_ADD_VERSION, {name: getattr(version, name) for name in Version.__slots__})
    _write_rows(connection, draft, number)
    parents = [*made_from]
    if current is not None and not draft.is_whole:
        parents.append(("dataset", node_id(version.dataset, current.number), "parent"))
    add_edges(connection, "dataset", version.id, parents, now_us=now_us)
    job = next((name for kind, name, _ in made_from if kind == "job"), None)
    data = {"job": job, "model": version.model} | event_facts(version, service)
    enqueue(connection, "dataset.committed", data, targets=targets, now_us=now_us)
    return version


# ---- preparing ------------------------------------------------------------------------------------------


def _in_order(table: pa.Table, provenance: Sequence[Provenance]) -> tuple[pa.Table, list[Provenance]]:
    keys = pa.table({"part": pa.array([origin.part for origin in provenance]), "id": table.column("id")})
    order = pc.sort_indices(keys, [("part", "ascending"), ("id", "ascending")])
    return table.take(order), [provenance[row] for row in order.to_pylist()]


def _stored(objects: ObjectStore, table: pa.Table, provenance: Sequence[Provenance]) -> StoredFile:
    data, parts = to_parquet(table, [origin.part for origin in provenance])
    return StoredFile(objects.put(data), table.num_rows, len(data), parts)


def _evolved(
    connection: Connection,
    objects: ObjectStore,
    parent: Version,
    table: pa.Table,
    reads: Callable[[str], bool],
) -> tuple[pa.Schema, dict[str, str]]:
    """Schema of the new version, and columns whose values it cannot hold."""
    before = parent.schema
    schema, unfit = merged_schema(before, table.schema, parent.id, reads)
    inexact = inexact_columns(table, schema, "the rows to append")
    widened = [name for name in before.names if schema.field(name).type != before.field(name).type]
    if any(pa.types.is_integer(before.field(name).type) for name in widened):
        inexact |= inexact_columns(
            read_table(connection, objects, parent, columns=widened), schema, parent.id
        )
    for name, reason in inexact.items():
        if reads(name):
            raise SchemaMismatch(name, reason)
        place = schema.get_field_index(name)
        schema = schema.set(place, before.field(name))
    return schema, unfit | inexact


def _divided(
    table: pa.Table, provenance: Sequence[Provenance], digests: Sequence[bytes], known: Mapping[str, Life]
) -> tuple[list[Relabelled], list[int]]:
    """Relabelled rows, and positions of added ones; unchanged rows are neither."""
    if not known:
        return [], list(range(len(provenance)))
    lying = [row for row, origin in enumerate(provenance) if _lies(known, origin, digests[row])]
    labels = _labels(table, lying)
    relabelled: list[Relabelled] = []
    for row, text in labels.items():
        life = known[provenance[row].record_id]
        if life.digest != digests[row] or life.origin != provenance[row]:
            relabelled.append(Relabelled(life, provenance[row], digests[row], text))
    return relabelled, [row for row in range(len(provenance)) if row not in labels]


def _lies(known: Mapping[str, Life], origin: Provenance, digest: bytes) -> bool:
    """True if the file already holds everything of the row but its labels."""
    life = known.get(origin.record_id)
    return life is not None and life.digest[:32] == digest[:32] and life.origin.part == origin.part


def _labels(table: pa.Table, rows: Sequence[int]) -> dict[int, str]:
    """Labels as JSON; rows whose labels JSON cannot hold are absent."""
    names = [name for name in table.column_names if name.startswith(_LABEL)]
    values = table.select(names).take(pa.array(rows, pa.int64())).to_pylist()
    found = {}
    for row, labels in zip(rows, values, strict=True):
        try:
            found[row] = json.dumps(labels, allow_nan=False)
        except (TypeError, ValueError):
            continue
    return found


def _check_unique(ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = sorted(name for name, count in Counter(ids).items() if count > 1)
        raise ValueError(f"ids must be unique in a dataset, got {twice[:_MOST_NAMED]} more than once")


def _named(ids: Collection[str]) -> str:
    ids = list(ids)
    more = len(ids) - _MOST_NAMED
    return ", ".join(map(repr, ids[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


# ---- committing -----------------------------------------------------------------------------------------


def _rebased(connection: Connection, draft: Draft, current: Version | None) -> pa.Schema:
    known = 0 if draft.parent is None else draft.parent.number
    now = 0 if current is None else current.number
    if draft.parent is not None and is_erased_from(connection, draft.parent):
        raise StaleParent(f"rows were erased from {draft.parent.id} meanwhile; prepare it again")
    if known == now:
        return draft.schema
    where = f"dataset {draft.dataset!r}: prepared on version {known or None}, but the newest is {now or None}"
    if current is None or draft.is_whole:
        raise StaleParent(f"{where}; prepare it again")
    changed = connection.scalars(_CHANGED, named(draft.dataset, draft.touched) | {"known": known})
    if ids := sorted(set(changed)):
        raise StaleParent(f"{where}, and both change row {_named(ids)}; prepare it again")
    before = current.schema
    schema, unfit = merged_schema(before, draft.schema, current.id)
    if unfit or any(schema.field(name).type != before.field(name).type for name in before.names):
        raise StaleParent(f"{where} with other types; prepare it again")
    return schema


def _manifest(
    draft: Draft, current: Version | None, columns: Mapping[str, str], validation: Mapping[str, Any]
) -> dict[str, Any]:
    shared = 0 if current is None or draft.is_whole else current.bytes
    changes = {"added": len(draft.added), "relabelled": len(draft.relabelled), "removed": len(draft.removed)}
    before = None if current is None or draft.is_whole else current.manifest["counts"]
    come = [*(origin for origin, _ in draft.added), *(row.origin for row in draft.relabelled)]
    gone = [life.origin for life in [*draft.removed, *(row.before for row in draft.relabelled)]]
    manifest = {
        "columns": columns,
        "counts": row_counts(come, before, gone=gone),
        "bytes": shared + (0 if draft.file is None else draft.file.bytes),
        "changes": changes,
        "validation": validation,
    }
    return manifest | ({"unfit": draft.unfit} if draft.unfit else {})


def row_counts(
    rows: Iterable[Provenance], before: RowCounts | None = None, *, gone: Iterable[Provenance] = ()
) -> RowCounts:
    """Added to ``before``; ``gone`` rows are subtracted."""
    parts, sources, assertions = (
        Counter({} if before is None else before[name]) for name in ("parts", "label_sources", "assertions")
    )
    for origins, sign in ((rows, 1), (gone, -1)):
        alike = Counter((origin.part, origin.label_source, origin.assertion) for origin in origins)
        for (part, source, names), count in alike.items():
            parts[part] += sign * count
            sources[source or ""] += sign * count
            for name in filter(None, (names or "").split(",")):
                assertions[name] += sign * count
    return {
        "parts": dict(sorted((+parts).items())),
        "label_sources": dict(sorted((+sources).items())),
        "assertions": dict(sorted((+assertions).items())),
    }


def _write_rows(connection: Connection, draft: Draft, number: int) -> None:
    dataset = draft.dataset
    if draft.is_whole:
        mine = _ROW.c.dataset == dataset
        connection.execute(update(_ROW).where(mine, _ROW.c.removed.is_(None)).values(removed=number))
        open_files = _FILE.c.dataset == dataset, _FILE.c.ended.is_(None)
        connection.execute(update(_FILE).where(*open_files).values(ended=number))
    elif ended := [*draft.removed, *(row.before for row in draft.relabelled)]:
        ends = sorted((number, dataset, *_place(life)) for life in ended)
        update_rows(connection, DatasetRow, ends, "removed", where=_KEY)
    if (file := draft.file) is not None:
        facts = {"sha256": file.sha256, "rows": file.rows, "bytes": file.bytes, "parts": file.parts}
        connection.execute(_ADD_FILE, {"dataset": dataset, "file": number} | facts)
    rows: list[Row] = [
        (dataset, number, position, number, None, *_origin(origin), digest, None)
        for position, (origin, digest) in enumerate(draft.added)
    ]
    rows += [
        (dataset, *row.before.place, number, None, *_origin(row.origin), row.digest, row.labels)
        for row in draft.relabelled
    ]
    insert_rows(connection, DatasetRow, rows)


_origin = attrgetter(*Provenance.__slots__)
_place = attrgetter("file", "position", "number")
