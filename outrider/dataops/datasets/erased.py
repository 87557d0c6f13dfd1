"""Erasure of records from all versions of all datasets.

Erased rows are null in rewritten files, so positions, lives and digests of other rows hold; the lanes of a
version are overwritten, its old digest stays as a pointer. New files come first, one transaction swaps them
in, old objects are deleted last: a crash leaves the old state or the new one.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_new

from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.improvement_tables import (
    DatasetRow,
    DatasetRowFile,
    DatasetVersion,
    ErasedObject,
    ErasedVersion,
    Job,
    Quarantine,
)
from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

from .erasure_plan import ErasurePlan, FoundRows, find_rows, make_plan, sent_tables
from .versions import Life

_VERSION, _FILE, _ROW = table_of(DatasetVersion), table_of(DatasetRowFile), table_of(DatasetRow)
_ERASED, _OBJECT = table_of(ErasedVersion), table_of(ErasedObject)
_QUARANTINE, _JOB = table_of(Quarantine), table_of(Job)
LEFT_S = 86_400.0
"""Age from which no commit is about to name an unnamed object."""
_IDS = ("id", "entity")
_TRIES = 5
"""Plans that concurrent commits may invalidate before one is made under the write lock."""


@dataclass(frozen=True, slots=True)
class ErasedVersions:
    versions: list[tuple[str, int, str, str]] = field(default_factory=list)
    """Dataset, number, digest before and digest now."""
    models: list[tuple[str, str]] = field(default_factory=list)
    """Model and version: trained on the rows, or derived from such a model."""
    rows: int = 0
    """A relabelled row counts once."""
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class ErasableRows:
    rows: int
    versions: list[tuple[str, int]]
    models: list[tuple[str, str]]
    quarantined: int


def erasable_rows(engine: Engine, record_ids: Sequence[str], *, model: str | None = None) -> ErasableRows:
    """Dry run of :func:`erase_rows`."""
    with engine.connect() as connection:
        found = find_rows(connection, record_ids, model)
        versions = [(version.dataset, version.number) for version, _ in found.held()]
        refused = _count_quarantined(connection, found)
        return ErasableRows(_count_rows(found), versions, found.models(connection), refused)


def erase_rows(
    engine: Engine,
    store: ObjectStore,
    record_ids: Sequence[str],
    *,
    model: str | None = None,
    is_alone: bool = False,
    reached: Callable[[str], None] = lambda _step: None,
) -> ErasedVersions:
    """Also erases test cases made of records, and traces in reports."""
    delete_unneeded(engine, store, reached=reached)
    erased = _erase(engine, store, record_ids, model, reached, left_s=0.0 if is_alone else LEFT_S)
    delete_unneeded(engine, store, reached=reached)
    return erased


def delete_unneeded(
    engine: Engine, store: ObjectStore, *, reached: Callable[[str], None] = lambda _step: None
) -> int:
    """Delete objects that an erasure left unnamed; return their number."""
    with engine.connect() as connection:
        unneeded = list(connection.scalars(select(_OBJECT.c.sha256).order_by(_OBJECT.c.sha256)))
        free = [digest for digest in unneeded if not _is_named(connection, digest)]
    for digest in free:
        store.remove(digest)
        reached("object deleted")
    if unneeded:
        with write(engine) as connection:
            _scrub(connection)
            connection.execute(delete(_OBJECT).where(_OBJECT.c.sha256.in_(unneeded)))
        reached("objects forgotten")
    return len(free)


def _erase(
    engine: Engine,
    store: ObjectStore,
    record_ids: Sequence[str],
    model: str | None,
    reached: Callable[[str], None],
    *,
    left_s: float,
) -> ErasedVersions:
    for _ in range(_TRIES):
        with engine.connect() as connection:
            plan = make_plan(
                connection, store, find_rows(connection, record_ids, model), reached, left_s=left_s
            )
        reached("planned")
        with write(engine) as connection:
            if find_rows(connection, record_ids, model).state == plan.found.state:
                erased = _apply(connection, plan, reached)
                break
    else:
        with write(engine) as connection:
            plan = make_plan(
                connection, store, find_rows(connection, record_ids, model), reached, left_s=left_s
            )
            erased = _apply(connection, plan, reached)
    reached("committed")
    return erased


def _apply(connection: Connection, plan: ErasurePlan, reached: Callable[[str], None]) -> ErasedVersions:
    at_us = now_us()
    _scrub(connection)
    for file in plan.files:
        connection.execute(
            update(_FILE)
            .where(_FILE.c.dataset == file.dataset, _FILE.c.file == file.file)
            .values(sha256=file.sha256, bytes=file.bytes)
        )
    reached("files exchanged")
    for dataset, lives in plan.found.lives.items():
        _replace_lives(connection, dataset, lives)
    reached("rows exchanged")
    for changed in plan.versions:
        values = {name: getattr(changed, name) for name in ("manifest", "rows", "digest", "state")}
        before = changed.before
        at = _VERSION.c.dataset == before.dataset, _VERSION.c.number == before.number
        connection.execute(update(_VERSION).where(*at).values(values))
        if changed.is_erased:
            pointer = {"dataset": before.dataset, "number": before.number, "digest": before.digest}
            gone = {"rows": before.rows - changed.rows, "at_us": at_us}
            connection.execute(insert_new(_ERASED).values(pointer | gone).on_conflict_do_nothing())
    reached("versions exchanged")
    quarantined = _count_quarantined(connection, plan.found)
    connection.execute(delete(_QUARANTINE).where(*_quarantined(plan.found)))
    for job, digest in plan.uploads.items():
        params = connection.execute(select(_JOB.c.params).where(_JOB.c.id == job)).scalar_one()
        connection.execute(update(_JOB).where(_JOB.c.id == job).values(params={**params, "object": digest}))
    if plan.unneeded:
        rows = [{"sha256": digest, "at_us": at_us} for digest in sorted(plan.unneeded)]
        connection.execute(insert_new(_OBJECT).on_conflict_do_nothing(), rows)
    reached("applied")
    return ErasedVersions(
        [
            (changed.before.dataset, changed.before.number, changed.before.digest, changed.digest)
            for changed in plan.versions
            if changed.is_erased
        ],
        list(plan.models),
        _count_rows(plan.found),
        quarantined,
    )


def _replace_lives(connection: Connection, dataset: str, lives: Iterable[Life]) -> None:
    """A contentless life that no version has replaces all lives of a row."""
    places = sorted({life.place for life in lives})
    for file, position in places:
        at = _ROW.c.dataset == dataset, _ROW.c.file == file, _ROW.c.position == position
        connection.execute(delete(_ROW).where(*at))
    rows = [
        DatasetRow(
            dataset=dataset,
            file=file,
            position=position,
            number=file,
            removed=file,
            record_id=_no_record(dataset, file, position),
            digest=b"",
        ).model_dump()
        for file, position in places
    ]
    connection.execute(insert(_ROW), rows)


def _no_record(dataset: str, file: int, position: int) -> str:
    return f"erased:{blake2b(f'{dataset}@{file}:{position}'.encode(), digest_size=16).hexdigest()}"


def _scrub(connection: Connection) -> None:
    """SQLite overwrites deleted content on this connection."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")


def _count_rows(found: FoundRows) -> int:
    return len({(dataset, *life.place) for dataset, lives in found.lives.items() for life in lives})


def _count_quarantined(connection: Connection, found: FoundRows) -> int:
    counts = select(func.count()).select_from(_QUARANTINE)
    return connection.execute(counts.where(*_quarantined(found))).scalar_one()


def _quarantined(found: FoundRows) -> list[ColumnElement[bool]]:
    refused = [among(_QUARANTINE.c.record_id, found.ids)]
    if found.refusing is not None:
        refused.append(among(_QUARANTINE.c.dataset, found.refusing))
    return refused


def _is_named(connection: Connection, digest: str) -> bool:
    docs = _VERSION.c.manifest["validation"]["data_docs"].as_string()
    named: Collection[bool] = [
        connection.execute(select(1).where(column == digest).limit(1)).first() is not None
        for column in (_FILE.c.sha256, docs, _JOB.c.params["object"].as_string())
    ]
    return any(named)


def rows_of_entities(engine: Engine, store: ObjectStore, entities: Collection[str]) -> dict[str, list[str]]:
    """Ids by model, also of imported and sent tables."""
    wanted = pa.array(sorted(entities), pa.string())
    found: dict[str, set[str]] = defaultdict(set)
    with engine.connect() as connection:
        for model, digest in _row_files(connection):
            table = _ids_and_entities(store, digest, is_file=True)
            found[model] |= _ids_of(table, wanted)
        models = {job.id: job.model for job in connection.execute(select(_JOB.c.id, _JOB.c.model))}
        for job, digest in sent_tables(connection, None).items():
            table = _ids_and_entities(store, digest, is_file=False)
            found[models[job]] |= _ids_of(table, wanted)
    return {model: sorted(ids) for model, ids in sorted(found.items()) if ids}


def _row_files(connection: Connection) -> set[tuple[str, str]]:
    joined = _FILE.join(_VERSION, _VERSION.c.dataset == _FILE.c.dataset)
    query = select(_VERSION.c.model, _FILE.c.sha256).select_from(joined).distinct()
    return {(model, digest) for model, digest in connection.execute(query)}


def _ids_and_entities(store: ObjectStore, digest: str, *, is_file: bool) -> pa.Table | None:
    """None if the file lacks them or is lost."""
    try:
        data = pa.py_buffer(store.mapped(digest))
    except NotFound:
        return None
    if is_file:
        file = pq.ParquetFile(pa.BufferReader(data))
        has_both = {*_IDS} <= {*file.schema_arrow.names}
        return file.read([*_IDS]) if has_both else None
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    return table.select([*_IDS]) if {*_IDS} <= {*table.column_names} else None


def _ids_of(table: pa.Table | None, entities: pa.Array) -> set[str]:
    if table is None:
        return set()
    ids, names = (table.column(name).cast(pa.string()) for name in _IDS)
    return set(ids.filter(pc.is_in(names, entities)).drop_null().to_pylist())
