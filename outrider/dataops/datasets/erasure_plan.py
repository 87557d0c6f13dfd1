"""Plan of an erasure: rows to erase, and versions without them."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Row, or_, select, tuple_

from outrider.assertions import Batch
from outrider.dataops.models.lineage import models_made_from
from outrider.dataops.models.registry import objects_of_versions
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetRowFile, DatasetVersion, Job
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

from .aggregates import Aggregates, aggregates, merged
from .changes import row_counts
from .collect import dataset_of
from .digests import NOT_CONTENT, lanes, version_digest
from .frames import EXTREMES, values_by_name
from .row_files import has_ids, table_without, without_rows
from .stored_rows import runs_of
from .versions import Life, Version, all_versions, lives_everywhere, read_table

_FILE, _ROW, _JOB = table_of(DatasetRowFile), table_of(DatasetRow), table_of(Job)
_VERSION = table_of(DatasetVersion)
_PARQUET, _STREAM = b"PAR1", b"\xff\xff\xff\xff"
"""First bytes of a row file and of an Arrow IPC stream."""
_OBSERVED = ": observed "
_FIGURES = ("class_shift", "range_growth")
"""Rules whose text contains figures of the rows."""
CASES = "behavioral test"
"""Prefix of the label source of rows that were test cases made of records."""
_COPY = "~"
"""Separates the id of a case from the name of a changed copy."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    ids: frozenset[str]
    """Of the records, and of test cases made of them."""
    lives: Mapping[str, Sequence[Life]]
    versions: Sequence[Version] = field(repr=False)
    """Of all datasets that were searched."""
    refusing: frozenset[str] | None
    """Datasets whose quarantine was searched; None: all."""
    files: Sequence[Row[Any]]
    """Row files with the rows, and those that share an object with one."""
    uploads: Mapping[str, str]
    """Object of the sent table, by job."""

    def held(self) -> Iterator[tuple[Version, list[Life]]]:
        for version in self.versions:
            held = [life for life in self.lives.get(version.dataset, ()) if life.is_in(version.number)]
            if held:
                yield version, held

    @property
    def state(self) -> object:
        """Equal as long as a plan holds."""
        versions = [(version.dataset, version.number, version.digest) for version in self.versions]
        return self.ids, dict(self.lives), versions, list(self.files), dict(self.uploads)

    def models(self, connection: Connection) -> list[tuple[str, str]]:
        used = {(version.id, "replay") for version, _ in self.held()}
        used |= {
            (version.id, "fresh")
            for version, held in self.held()
            if any(life.origin.part == "train" for life in held)
        }
        return models_made_from(connection, used)


@dataclass(frozen=True, slots=True)
class ChangedVersion:
    before: Version
    manifest: dict[str, Any]
    rows: int
    digest: str
    state: bytes

    @property
    def is_erased(self) -> bool:
        return self.rows != self.before.rows


@dataclass(frozen=True, slots=True)
class ChangedFile:
    dataset: str
    file: int
    ended: int | None
    before: str
    sha256: str
    bytes: int
    less: int


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    found: FoundRows
    files: Sequence[ChangedFile]
    versions: Sequence[ChangedVersion] = field(repr=False)
    uploads: Mapping[str, str]
    """Object without the rows, by job."""
    unneeded: frozenset[str]
    """Objects that hold erased rows, or figures of them."""
    models: Sequence[tuple[str, str]]


def find_rows(connection: Connection, record_ids: Collection[str], model: str | None) -> FoundRows:
    versions = all_versions(connection)
    refusing = None
    if model is not None:
        own = {version.dataset for version in versions if version.model == model}
        refusing = frozenset(own | {dataset_of(model)})
        versions = [version for version in versions if version.dataset in own]
    known = {version.dataset for version in versions}
    ids = frozenset(record_ids) | _cases(connection, versions, frozenset(record_ids))
    lives: dict[str, list[Life]] = defaultdict(list)
    for dataset, life in lives_everywhere(connection, sorted(ids)):
        if dataset in known:
            lives[dataset].append(life)
    files = _sharing(connection, lives)
    return FoundRows(ids, lives, versions, refusing, files, sent_tables(connection, model))


def sent_tables(connection: Connection, model: str | None) -> dict[str, str]:
    """Objects of tables that were sent for a dataset, by job."""
    sent = _JOB.c.params["object"].as_string()
    of_model = [] if model is None else [_JOB.c.model == model]
    query = select(_JOB.c.id, sent.label("sent")).where(
        _JOB.c.kind == "dataset", sent.is_not(None), *of_model
    )
    return {row.id: row.sent for row in connection.execute(query)}


def _cases(connection: Connection, versions: Sequence[Version], records: frozenset[str]) -> set[str]:
    """Ids of rows that were test cases made of records: ``suite/test/record~copy``."""
    names = {
        version.dataset
        for version in versions
        if any(CASES in source for source in version.manifest["counts"]["label_sources"])
    }
    source = _ROW.c.label_source
    query = select(_ROW.c.record_id, _ROW.c.assertion).where(
        _ROW.c.dataset.in_(names), or_(source.startswith(CASES), source.startswith(f"weak:{CASES}"))
    )
    return {row for row, test in connection.execute(query) if is_case_of(row, test, records)}


def is_case_of(row: str, test: str | None, records: Collection[str]) -> bool:
    """True for the id of a test's case made of a record.

    Of its changed copy too.

    Examples
    --------
    >>> is_case_of("robust/typos/r/1~typos", "robust/typos", {"r/1"})
    True
    """
    if test is None or not row.startswith(f"{test}/"):
        return False
    case = row.removeprefix(f"{test}/")
    ends = [at for at, letter in enumerate(case) if letter == _COPY]
    return any(case[:end] in records for end in (*ends, len(case)))


def make_plan(
    connection: Connection,
    objects: ObjectStore,
    found: FoundRows,
    reached: Callable[[str], None],
    *,
    left_s: float,
) -> ErasurePlan:
    """Writes new, still unnamed objects. ``left_s`` is the least age of a leftover."""
    files = _files(objects, found, reached)
    versions = [
        changed
        for dataset in dict.fromkeys(version.dataset for version in found.versions)
        for changed in _changed(connection, objects, found, dataset, files)
    ]
    uploads = _uploads(connection, objects, found)
    unneeded = {file.before for file in files} | {found.uploads[job] for job in uploads}
    for changed in versions:
        docs = changed.before.manifest["validation"].get("data_docs")
        if docs and "data_docs" not in changed.manifest["validation"]:
            unneeded.add(docs)
    unneeded |= _leftovers(connection, objects, found, left_s)
    return ErasurePlan(found, files, versions, uploads, frozenset(unneeded), found.models(connection))


def _files(objects: ObjectStore, found: FoundRows, reached: Callable[[str], None]) -> list[ChangedFile]:
    rows = found.files
    positions: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        lives = [life for life in found.lives.get(row.dataset, ()) if life.file == row.file]
        for _, run in runs_of(row.file, row.parts, row.packed):
            of_run = (life.position - run.position for life in lives)
            positions[row.sha256] |= {run.start + at for at in of_run if 0 <= at < run.rows}
    contents: dict[str, tuple[str, int]] = {}
    for digest, gone in positions.items():
        try:
            content = without_rows(objects.mapped(digest), gone)
        except NotFound:
            continue  # lost, and the rows with it
        contents[digest] = objects.put(content), len(content)
        reached("file written")
    return [_exchanged(row, *contents[row.sha256]) for row in rows if row.sha256 in contents]


def _exchanged(row: Row[Any], digest: str, size: int) -> ChangedFile:
    """The size of a packed file stays."""
    size = row.bytes if row.packed is not None else size
    return ChangedFile(row.dataset, row.file, row.ended, row.sha256, digest, size, row.bytes - size)


def _sharing(connection: Connection, lives: Mapping[str, Sequence[Life]]) -> list[Row[Any]]:
    places = sorted({(dataset, life.file) for dataset, some in lives.items() for life in some})
    held = select(_FILE.c.sha256).where(tuple_(_FILE.c.dataset, _FILE.c.file).in_(places))
    query = select(_FILE).where(_FILE.c.sha256.in_(held)).order_by(_FILE.c.dataset, _FILE.c.file)
    return list(connection.execute(query)) if places else []


def _changed(
    connection: Connection,
    objects: ObjectStore,
    found: FoundRows,
    dataset: str,
    files: Sequence[ChangedFile],
) -> Iterator[ChangedVersion]:
    lives = found.lives.get(dataset, ())
    own = [file for file in files if file.dataset == dataset]
    replaced = _replaced(connection, dataset) if lives else {}
    recount = _Recount(connection, objects, sorted(found.ids))
    for version in (version for version in found.versions if version.dataset == dataset):
        number, ended = version.number, replaced.get(version.number, frozenset())
        sizes = {
            file.file: (file.sha256, file.bytes, file.less)
            for file in own
            if file.file <= number and (file.ended is None or file.ended > number)
        }
        held = [life for life in lives if life.is_in(number)]
        manifest = _without_ids(
            _without_lives(version, lives, sizes=sizes, ended=ended, recount=recount), found.ids
        )
        if not held:
            if manifest != version.manifest:
                yield ChangedVersion(version, manifest, version.rows, version.digest, version.state)
            continue
        rows = version.rows - len(held)
        digest, state = _digest(version, held, rows)
        yield ChangedVersion(version, manifest, rows, digest, state)


def _replaced(connection: Connection, dataset: str) -> dict[int, frozenset[int]]:
    """Files by the version that replaced them as a whole."""
    query = select(_FILE.c.ended, _FILE.c.file).where(_FILE.c.dataset == dataset, _FILE.c.ended.is_not(None))
    found: dict[int, set[int]] = defaultdict(set)
    for ended, file in connection.execute(query):
        found[ended].add(file)
    return {ended: frozenset(files) for ended, files in found.items()}


def _digest(version: Version, held: Sequence[Life], rows: int) -> tuple[str, bytes]:
    columns = {column.name: str(column.type) for column in version.schema if column.name not in NOT_CONTENT}
    state = version.lanes - lanes([life.digest for life in held])
    return version_digest(columns, rows, state), state.astype("<u2").tobytes()


def _leftovers(
    connection: Connection, objects: ObjectStore, found: FoundRows, older_than_s: float
) -> set[str]:
    """Unnamed objects with the rows: of a failed commit, or packed elsewhere since."""
    docs = _VERSION.c.manifest["validation"]["data_docs"].as_string()
    named = {
        digest
        for column in (_FILE.c.sha256, docs, _JOB.c.params["object"].as_string())
        for digest in connection.scalars(select(column).where(column.is_not(None)).distinct())
    }
    named |= objects_of_versions(connection, objects)
    unnamed = (digest for digest in objects.digests(older_than_s=older_than_s) if digest not in named)
    return {digest for digest in unnamed if _holds(objects, digest, found.ids)}


def _holds(objects: ObjectStore, digest: str, ids: frozenset[str]) -> bool:
    """True for a row file or a sent table with any of the rows."""
    try:
        data = objects.mapped(digest)
    except (NotFound, ValueError):  # deleted meanwhile, or no object
        return False
    if bytes(data[:4]) == _PARQUET:
        return any(has_ids(data, ids))
    is_stream = bytes(data[:4]) == _STREAM
    return (
        is_stream
        and table_without(data, lambda row, test: row in ids or is_case_of(row, test, ids)) is not None
    )


def _uploads(connection: Connection, objects: ObjectStore, found: FoundRows) -> dict[str, str]:
    """Sent tables that hold the rows, rewritten without them."""
    contents: dict[str, str] = {}

    def is_gone(row: str, test: str | None) -> bool:
        return row in found.ids or is_case_of(row, test, found.ids)

    for job in connection.execute(select(_JOB).where(_JOB.c.kind == "dataset")).all():
        if job.id not in found.uploads:
            continue
        if job.status == "done" and job.result.get("dataset") not in found.lives:
            continue  # all its rows are in that dataset
        try:
            content = table_without(objects.mapped(found.uploads[job.id]), is_gone)
        except NotFound:
            continue
        if content is not None:
            contents[job.id] = objects.put(content)
    return contents


# ---- aggregates ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Recount:
    """A version that only added rows extends its parent's aggregates."""

    connection: Connection
    objects: ObjectStore
    ids: Sequence[str]
    _last: tuple[int, Aggregates] | None = field(default=None, init=False)

    def pass_over(self, version: Version) -> None:
        """Continue from a version whose aggregates hold."""
        kept = version.manifest["validation"].get("aggregates")
        self._last = (version.number, kept) if kept else None

    def of(self, version: Version, kept: Aggregates, *, is_whole: bool) -> Aggregates:
        before = None
        if self._last is not None and not is_whole and _only_adds(version):
            number, last = self._last
            if number == version.parent and _counted_values(last) == _counted_values(kept):
                before = last
        names = [*dict.fromkeys(["id", *_aggregated_columns(kept)])]
        known = set(version.schema.names)
        table = read_table(
            self.connection,
            self.objects,
            version,
            columns=[name for name in names if name in known],
            since=0 if before is None else version.number,
        )
        is_erased = pc.is_in(table.column("id"), pa.array(self.ids, pa.string()))
        batch = Batch.from_arrow(table.filter(pc.invert(is_erased)), model=version.model)
        found = _recounted(batch, kept, before)
        self._last = version.number, found
        return found


def _aggregated_columns(kept: Aggregates) -> list[str]:
    figures = tuple(f".{extreme}" for extreme in EXTREMES)
    names = (name.rpartition(".")[0] if name.endswith(figures) else name for name in kept["columns"])
    return sorted({*names, *kept["columns"]})


def _recounted(batch: Batch, kept: Aggregates, before: Aggregates | None = None) -> Aggregates:
    found = aggregates(
        batch.rows,
        values_by_name(batch, kept["columns"]),
        [
            (name, json.loads(values))
            for name, sets in _counted_values(kept).items()
            for values in sorted(sets)
        ],
    )
    found["columns"] = {name: column for name, column in found["columns"].items() if name in kept["columns"]}
    return found if before is None else merged(before, found)


def _counted_values(kept: Aggregates) -> dict[str, set[str]]:
    return {name: set(column.get("of", {})) for name, column in kept["columns"].items()}


def _only_adds(version: Version) -> bool:
    changes = version.manifest["changes"]
    return not changes["relabelled"] and not changes["removed"]


# ---- manifests -----------------------------------------------------------------------------------------


def _without_lives(
    version: Version,
    lives: Sequence[Life],
    *,
    sizes: Mapping[int, tuple[str, int, int]],
    ended: Collection[int],
    recount: _Recount,
) -> dict[str, Any]:
    """Data Docs and figures also leave the first version without the rows.

    ``sizes``: by file, new digest, bytes and bytes saved; ``ended``: files replaced as a whole.
    """
    number, manifest = version.number, dict(version.manifest)
    if sizes:
        manifest["bytes"] = version.bytes - sum(less for _, _, less in sizes.values())
    held = [life for life in lives if life.is_in(number)]
    if not held:
        recount.pass_over(version)
        if all(life.removed != number for life in lives):
            return manifest
    manifest["counts"] = row_counts([], manifest["counts"], gone=[life.origin for life in held])
    manifest["changes"] = _changes_without(manifest["changes"], number, lives, ended)
    manifest["validation"] = _validation_without(version, lives)
    if held and (kept := manifest["validation"].get("aggregates")):
        try:
            found = recount.of(version, kept, is_whole=bool(ended) or version.parent is None)
            manifest["validation"]["aggregates"] = found
        except NotFound:  # a file is lost: figures with the rows in them may not stay
            del manifest["validation"]["aggregates"]
    if held:
        manifest["erased"] = manifest.get("erased", 0) + len(held)
    return manifest


def _changes_without(
    known: Mapping[str, int], number: int, lives: Sequence[Life], ended: Collection[int]
) -> dict[str, int]:
    begun = {life.place for life in lives if life.number == number}
    added = sum(life.number == number == life.file for life in lives)
    left = sum(
        life.removed == number and life.place not in begun and life.file not in ended for life in lives
    )
    less = {"added": added, "relabelled": len(begun) - added, "removed": left}
    return {name: max(0, count - less.get(name, 0)) for name, count in known.items()}


def _validation_without(version: Version, lives: Sequence[Life]) -> dict[str, Any]:
    known = version.manifest["validation"]
    found = {key: value for key, value in known.items() if key != "data_docs"}
    judged = sum(life.number == version.number for life in lives)
    if "rows" in found:
        found["rows"] = max(0, found["rows"] - judged)
    if "warnings" in found:
        found["warnings"] = [warning | {"text": _without_figures(warning)} for warning in found["warnings"]]
    return found


def _without_figures(warning: Mapping[str, Any]) -> str:
    if warning["rule"] in _FIGURES:
        return f"{warning['field']}: differs from the version before ({warning['rule']})"
    return str(warning["text"]).partition(_OBSERVED)[0]


def _without_ids(manifest: dict[str, Any], ids: frozenset[str]) -> dict[str, Any]:
    """Warnings and leaks lose the ids of erased rows."""
    found = dict(manifest)
    if warnings := manifest["validation"].get("warnings"):
        kept = [_without_id(warning, ids) for warning in warnings]
        found["validation"] = manifest["validation"] | {"warnings": kept}
    if leaks := manifest.get("leaks"):
        found["leaks"] = {
            name: _without_pairs(entry, ids) if isinstance(entry, list) else entry
            for name, entry in leaks.items()
        }
    return found


def _without_id(warning: Mapping[str, Any], ids: frozenset[str]) -> dict[str, Any]:
    kept = [name for name in warning["ids"] if name not in ids]
    return {**warning, "ids": kept, "rows": max(0, warning["rows"] - len(warning["ids"]) + len(kept))}


def _without_pairs(leaks: Sequence[Mapping[str, Any]], ids: frozenset[str]) -> list[dict[str, Any]]:
    """Leaks that had only pairs of erased rows go."""
    found = []
    for leak in leaks:
        kept = [pair for pair in leak["pairs"] if ids.isdisjoint(pair)]
        gone = [pair for pair in leak["pairs"] if not ids.isdisjoint(pair)]
        ours, theirs = (len({pair[side] for pair in gone} - {pair[side] for pair in kept}) for side in (0, 1))
        if not gone or leak["rows"] > ours:
            counts = {"rows": leak["rows"] - ours, "others": max(0, leak["others"] - theirs)}
            found.append({**leak, **counts, "pairs": kept})
    return found
