"""Columns of one model's records as blocks.

Rows that do not fit are left out and named.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch import PARTS, REST, SYSTEM, TIME, schema_digest
from outrider.assertions.columns import is_tensor
from outrider.dataops.journal.journal import Kind
from outrider.dataops.payloads.columns import is_payload, text_array
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.stream.event_time import outside

from .column_types import Values, convert, is_text, nested_rows, nulls
from .column_weights import Rival, joined, rivals, type_key
from .fast_arrow import KnownColumns, is_fed
from .fast_json import FittingRecords, KnownRecords
from .fast_v2 import FittingTensors, KnownTensors
from .list_columns import Bounds, ConvertedColumn, cells_of, convert_column, width
from .payload_values import in_lists, is_marked, lists_where_known, parsed_column, refused, with_bytes
from .rare_fields import as_json, rest_column
from .schema_book import KIND, SchemaBook, is_rest
from .uuid7 import uuid7s

BLOCK_ROWS = 8192
"""Larger requests become several blocks, so that nobody downstream meets a giant one."""
MAX_CELLS = 20_000_000
"""Rows x columns of one request: a small body of sparse records must not become gigabytes of nulls."""
LABEL_SYSTEM: dict[str, pa.DataType] = {
    "id": pa.string(),
    "ts": TIME,
    "source": pa.string(),
    "entity": pa.string(),
}
_SHORT = ("id", "version", "entity", "source")
_PASSES = 4

Side = Literal["request", "response"]
Fitting: TypeAlias = FittingRecords | FittingTensors | KnownColumns
Faults = dict[int, tuple[str, str]]
"""Row to the field that does not fit, and why."""


@dataclass(frozen=True, slots=True)
class PendingBlock:
    """A block that waits to be appended.

    Parameters
    ----------
    kind
        ``records`` or ``labels``.
    model
        Name of the model.
    digest
        Digest of the table's schema: equal digests may be merged.
    table
        The rows; records in the column order of a `Batch`.
    """

    kind: Kind
    model: str
    digest: str
    table: pa.RecordBatch

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def only_id(self) -> str | None:
        """Id of the row, when there is one only."""
        return str(self.table.column("id")[0]) if self.rows == 1 else None


@dataclass(frozen=True, slots=True)
class PendingHalf:
    """Unmatched side of records, to be joined; ``block`` holds its rows.

    Parameters
    ----------
    key, side
        As of a `HalfPart`.
    block
        Its rows in the columns of whole records.
    """

    key: str
    side: Side
    block: "Block"


@dataclass(frozen=True, slots=True)
class RequestPart:
    """Records of one model as received.

    Parameters
    ----------
    model
        Name of the model; ``""`` when none was given.
    indices
        Place of every row in what was sent.
    system
        System columns by name; those that are missing get their defaults.
    fields
        ``inputs``, ``outputs``, … as one dictionary (or None) per row.
    columns
        The same as whole columns under their full names, when they came as columns.
    known
        Instead of all these: records that have been found to fit.
    has_own_names
        Whether the protocol itself names the fields, so that none can be misnamed.
    """

    model: str
    indices: Sequence[int]
    system: dict[str, Values]
    fields: dict[str, list[dict[str, Any] | None]] = field(default_factory=dict)
    columns: dict[str, Values] = field(default_factory=dict)
    known: Fitting | None = None
    has_own_names: bool = False

    def id_of(self, row: int) -> str | None:
        """Id of a row as received, shortened to 256 characters."""
        values = self.system.get("id")
        value = None if values is None else values[row]
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        return None if value is None else str(value)[:256]

    def take(self, rows: list[int]) -> "RequestPart":
        """Part of these rows."""
        return RequestPart(
            model=self.model,
            indices=[self.indices[row] for row in rows],
            system={name: _take(values, rows) for name, values in self.system.items()},
            fields={name: [values[row] for row in rows] for name, values in self.fields.items()},
            columns={name: _take(values, rows) for name, values in self.columns.items()},
            has_own_names=self.has_own_names,
        )

    def slice(self, rows: range) -> "RequestPart":
        """Part of neighbouring rows."""
        place = slice(rows.start, rows.stop)
        return RequestPart(
            model=self.model,
            indices=self.indices[place],
            system={name: values[place] for name, values in self.system.items()},
            fields={name: values[place] for name, values in self.fields.items()},
            columns={name: values[place] for name, values in self.columns.items()},
            has_own_names=self.has_own_names,
        )


Block: TypeAlias = PendingBlock | KnownRecords | KnownTensors


@dataclass(frozen=True, slots=True)
class HalfPart:
    """One side of records.

    Rows of both sides become one record where ``key`` and their id are equal.

    Parameters
    ----------
    key
        Scope of the ids, such as the source of an event or a trace; ``""`` where ids stand for themselves.
    side
        ``request`` or ``response``: each waits for the other.
    part
        Its rows, each with an id.
    """

    key: str
    side: Side
    part: RequestPart


class BlockBuilder:
    """Builder of blocks that teaches the schema book new columns.

    Only good records teach.

    Parameters
    ----------
    book
        Columns of each model.
    max_columns, max_depth, max_elements
        Bounds of ``[limits]``.
    """

    def __init__(
        self, book: SchemaBook, *, max_columns: int, max_depth: int, max_elements: int = 100_000
    ) -> None:
        self._book = book
        self._max_columns = max_columns
        self._max_depth = max_depth
        self._max_elements = max_elements
        self._lock = threading.Lock()  # one block at a time teaches the book
        self._schemas: dict[tuple[Kind, str], tuple[dict[str, pa.DataType], pa.Schema, str]] = {}

    @property
    def is_busy(self) -> bool:
        """True while a thread builds a block."""
        return self._lock.locked()

    def build(self, part: RequestPart, *, kind: Kind, received_us: int) -> tuple[list[Block], Faults]:
        """Blocks of the fitting rows, and the faults of the others.

        Raises
        ------
        ProblemError
            413 when the rows would fill too many cells.
        """
        rows = len(part.indices)
        columns = len(self._glance(kind, part.model)[0])
        if rows * columns > MAX_CELLS:
            raise ProblemError(
                problem(413, f"{rows} records of {columns} columns are too many in one request; send fewer")
            )
        most = min(BLOCK_ROWS, self._book.rows_at_once(part.model))
        if rows <= most:
            with self._lock:
                return self._build(part, range(rows), kind, received_us, MAX_CELLS)
        blocks: list[Block] = []
        faults: Faults = {}
        cells = MAX_CELLS
        for start in range(0, rows, most):
            members = range(start, min(rows, start + most))
            chunk = part.slice(members)
            with self._lock:
                more, bad = self._build(chunk, members, kind, received_us, cells)
            cells -= sum(cells_of(array) for block in more for array in block.table.columns)
            blocks += more
            faults |= bad
        return blocks, faults

    def fitting(self, model: str, known: Fitting, received_us: int) -> list[Block]:
        """Blocks of records that have been found to fit."""
        most = min(BLOCK_ROWS, self._book.rows_at_once(model))
        blocks: list[Block] = [
            piece
            if isinstance(piece, KnownRecords | KnownTensors)
            else PendingBlock("records", model, known.digest, piece)
            for piece in known.pieces(received_us, most)
        ]
        if names := self._book.open_columns("records", model):
            for block in blocks:
                self._book.weigh("records", model, _values_of(block, names))
        return blocks

    def _build(
        self, part: RequestPart, rows: Sequence[int], kind: Kind, received_us: int, cells: int
    ) -> tuple[list[Block], Faults]:
        """Build one block of ``part``; its rows are called ``rows`` in the faults."""
        faults: Faults = {}
        admitted = self._admitted(kind, part.model)
        for attempt in range(_PASSES):
            known = self._schema(kind, part.model)[0]
            drawn = _Drawn(self, part, kind, known, admitted)
            arrays, bad = drawn.columns(received_us, cells)
            if not bad:
                break
            faults |= {rows[row]: fault for row, fault in bad.items()}
            keep = [row for row in range(len(rows)) if row not in bad]
            rows = [rows[row] for row in keep]
            if attempt < _PASSES - 1:
                # Once more without them: a refused record must not teach the schema.
                part = part.take(keep)
            else:
                arrays = {name: array.take(pa.array(keep, pa.int64())) for name, array in arrays.items()}
        if not rows:
            return [], faults
        news = {name: type_ for name, type_ in drawn.kinds.items() if known.get(name) != type_}
        if news:
            self._book.learn(kind, part.model, news, changed=drawn.changed)
            self._schemas.pop((kind, part.model), None)
        if drawn.rare:
            self._book.count_rare(kind, part.model, drawn.rare)
        known, schema, digest = self._schema(kind, part.model)
        for name, type_ in known.items():
            if name not in arrays:
                arrays[name] = nulls(len(rows), type_)
        table = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
        block = PendingBlock(kind, part.model, digest, table)
        if names := self._book.open_columns(kind, part.model):
            self._book.weigh(kind, part.model, _values_of(block, names))
        return [block], faults

    def _admitted(self, kind: Kind, model: str) -> frozenset[str]:
        """Fields that are no longer rare: where there is no room, columns that are make way."""
        admitted: set[str] = set()
        for name in self._book.proven(kind, model):
            if self._room(self._schema(kind, model)[0]) <= len(admitted):
                rarest = self._book.rarest(kind, model)
                if rarest is None:
                    break
                self._book.forget(kind, model, rarest)
                self._schemas.pop((kind, model), None)
            admitted.add(name)
        return frozenset(admitted)

    def _room(self, known: Mapping[str, pa.DataType]) -> int:
        """Columns that a model may still get."""
        return self._max_columns - sum(width(kind) for name, kind in known.items() if not is_rest(name))

    def forget(self, kind: Kind, model: str, name: str) -> bool:
        """Drop a learned column; False where there was none."""
        with self._lock:
            found = self._book.forget(kind, model, name)
            self._schemas.pop((kind, model), None)
        return found

    def schema(self, model: str) -> tuple[pa.Schema, str]:
        """Schema of a model's records now, and its digest.

        Does not wait for a block under way.
        """
        return self._glance("records", model)[1:]

    def _glance(self, kind: Kind, model: str) -> tuple[dict[str, pa.DataType], pa.Schema, str]:
        """As `_schema`, for those who do not hold the lock: what they see may be old in a moment."""
        cached = self._schemas.get((kind, model))
        if cached is None and self._lock.acquire(blocking=False):
            try:
                cached = self._schema(kind, model)
            finally:
                self._lock.release()
        return cached or self._made(kind, model)

    def _schema(self, kind: Kind, model: str) -> tuple[dict[str, pa.DataType], pa.Schema, str]:
        """Known columns, Arrow schema and its digest; made once per change. For holders of the lock."""
        cached = self._schemas.get((kind, model))
        if cached is None:
            cached = self._schemas[kind, model] = self._made(kind, model)
        return cached

    def _made(self, kind: Kind, model: str) -> tuple[dict[str, pa.DataType], pa.Schema, str]:
        known = self._book.columns(kind, model)
        system = LABEL_SYSTEM if kind == "labels" else SYSTEM
        ordered = sorted(known, key=lambda name: (PARTS.index(name.partition(".")[0]), name))
        fields = [pa.field(name, type_) for name, type_ in system.items()]
        fields += [pa.field(name, known[name]) for name in ordered]
        metadata = {b"outrider.model": model.encode()} | ({KIND: b"labels"} if kind == "labels" else {})
        schema = pa.schema(fields, metadata=metadata)
        return known, schema, schema_digest(schema)


class _Drawn:
    """Columns that one pass over a part draws.

    Attributes
    ----------
    kinds
        Types of the fields that were found.
    changed
        Those among them that take the place of another type.
    rare
        Fields without a column, and how many values they had.
    """

    def __init__(
        self,
        builder: BlockBuilder,
        part: RequestPart,
        kind: Kind,
        known: dict[str, pa.DataType],
        admitted: frozenset[str],
    ) -> None:
        self._builder = builder
        self._book = builder._book
        self._part = part
        self._kind: Kind = kind
        self._known = known
        self._admitted = admitted
        self._room = builder._room(known)
        self._rest: dict[str, dict[int, dict[str, Any]]] = {}
        self.kinds: dict[str, pa.DataType] = {}
        self.changed: set[str] = set()
        self.rare: Counter[str] = Counter()

    def columns(self, received_us: int, cells: int) -> tuple[dict[str, pa.Array], Faults]:
        """Arrays by full name, and faults.

        Faults against what is known come alone: only when there are none do rows that disagree among
        themselves about a new column count as faulty.
        """
        part = self._part
        arrays, faults = _system_columns(part, self._kind, received_us)
        disagreeing: Faults = {}
        for name, values in self._cells(faults):
            new = name not in self._known
            if new and (reason := _misnamed(name)):
                name = name if is_text(name) else ascii(name)
                faults |= {row: (name, reason) for row in _filled(values) if row not in faults}
                continue
            if new and not self._has_room(name):
                faults |= self._put_aside(name, values, faults)
                continue
            found = self._converted(name, values, cells)
            for row, (below, reason) in found.bad.items():
                faults.setdefault(row, (name + below, reason))
            for row, (below, reason) in found.disagreeing.items():
                disagreeing.setdefault(row, (name + below, reason))
            if found.array is not None:
                arrays[name] = found.array
                cells -= cells_of(found.array)
                self._take_up(name, found.array, faults)
        for prefix, members in self._rest.items():
            name = f"{prefix}.{REST}"
            arrays[name] = rest_column(arrays.get(name), members, len(part.indices))
            self.kinds[name] = pa.string()
        needed = () if self._kind == "labels" or part.has_own_names else self._book.inputs(part.model)
        if needed:
            faults = _unfed(arrays, needed) | faults
        return arrays, faults or disagreeing

    def _take_up(self, name: str, array: pa.Array, faults: Faults) -> None:
        """Note the type of a column, and what is wrong with its payloads."""
        self.kinds[name] = array.type
        self._room -= 0 if is_rest(name) else width(array.type) - width(self._known.get(name))
        if is_payload(array.type):
            form, rules = self._book.form(self._part.model, name), self._book.payload_rules(self._part.model)
            for row, reason in refused(array, form, rules).items():
                faults.setdefault(row, (name, reason))

    def _converted(self, name: str, values: Values, cells: int) -> ConvertedColumn:
        """Column of the type that is known of it, or of another that speaks for more of its values."""
        part, builder = self._part, self._builder
        known = self._known.get(name, pa.string() if is_rest(name) else None)
        declared = self._book.is_declared(part.model, name)
        form = self._book.form(part.model, name)
        if form is not None and form.kind == "text":
            values = text_array(values)
        elif not isinstance(values, pa.Array):
            values = lists_where_known(values, known)
        bounds = Bounds(builder._max_depth, builder._max_elements, max(0, self._room), cells)
        found = convert_column(values, known, declared=declared, bounds=bounds)
        weight = self._book.weight(self._kind, part.model, name)
        if declared or not (found.bad or found.disagreeing) or (known is not None and weight is None):
            return found
        own = found.array.type if known is None and found.array is not None else known
        if own is None:
            return found
        misfits = found.disagreeing if known is None else found.bad
        others = rivals(values, sorted(misfits), own)
        votes = {rival: len(one.rows) for rival, one in others.items()}
        if known is None or weight is None:
            lead, margin, past = 0, 1, {}
        else:
            lead, margin, past = weight.own, weight.changes, weight.rivals
        lead += len(_filled(values)) - len(misfits)
        best = max(others, key=lambda rival: past.get(rival, 0) + votes[rival], default=None)
        if best is None or past.get(best, 0) + votes[best] < lead + margin:
            self._book.vote(self._kind, part.model, name, votes)
            return found
        changed = self._as_rival(values, own, others[best], bounds)
        if changed is None:
            return found
        refused_rows = [row for row in changed.bad if row not in misfits]
        votes.pop(best)
        self._book.vote(self._kind, part.model, name, votes | {type_key(own): len(refused_rows)})
        if known is None:
            return ConvertedColumn(changed.array, {}, changed.bad)
        self.changed.add(name)
        return changed

    def _as_rival(
        self, values: Values, own: pa.DataType, rival: Rival, bounds: Bounds
    ) -> ConvertedColumn | None:
        found = convert_column(values, joined(own, rival.kind), declared=False, bounds=bounds)
        return None if found.array is None or found.disagreeing else found

    # ---- fields without a column -------------------------------------------------------------------------

    def _has_room(self, name: str) -> bool:
        if name in self._admitted or is_rest(name):
            return True
        waiting = sum(one not in self._known and one not in self.kinds for one in self._admitted)
        return self._room > waiting

    def _put_aside(self, name: str, values: Values, faults: Faults) -> Faults:
        """Keep the values of a rare field as JSON; faults of those that are none."""
        prefix, _, field_name = name.partition(".")
        bad: Faults = {}
        rows = [row for row in _filled(values) if row not in faults]
        for row, value in zip(rows, _taken(values, rows), strict=True):
            try:
                as_json(value)
            except (TypeError, ValueError, RecursionError):
                reason = (
                    f"a new column beyond the {self._builder._max_columns} that a model may have "
                    f"(limits.columns), and not a value of JSON, which {prefix}.{REST} could hold"
                )
                bad[row] = (name, reason)
                continue
            self._rest.setdefault(prefix, {}).setdefault(row, {})[field_name] = value
            self.rare[name] += 1
        return bad

    def _cells(self, faults: Faults) -> Iterator[tuple[str, Values]]:
        """Every field as a column of values; nested objects become dotted names."""
        for name, values in self._part.columns.items():
            yield name, values if isinstance(values, pa.Array) else with_bytes(values)
        for prefix, dicts in self._part.fields.items():
            for name in _names(dicts):
                values = [None if d is None else d.get(name) for d in dicts]
                yield from self._flatten(f"{prefix}.{name}", values, faults, self._builder._max_depth)

    def _flatten(
        self, name: str, values: list[Any], faults: Faults, depth: int
    ) -> Iterator[tuple[str, Values]]:
        kinds = set(map(type, values))
        if list in kinds and (bad := in_lists(values)):
            faults |= dict.fromkeys(
                bad, (name, "a payload cannot stand in a list; give it a field of its own")
            )
            values = [None if row in bad else value for row, value in enumerate(values)]
        if dict in kinds and any(map(is_marked, values)):
            values = parsed_column(values, lambda row, reason: faults.setdefault(row, (name, reason)))
            kinds = set(map(type, values))
        if dict not in kinds:
            yield name, values
            return
        dicts = [value if isinstance(value, dict) else None for value in values]
        if depth <= 2:
            reason = f"nested deeper than {self._builder._max_depth} levels (limits.depth)"
            faults |= {row: (name[:256], reason) for row, d in enumerate(dicts) if d is not None}
            return
        rest = [None if isinstance(value, dict) else value for value in values]
        if any(value is not None for value in rest):
            yield name, rest
        for key in _names(dicts):
            inner = [None if d is None else d.get(key) for d in dicts]
            yield from self._flatten(f"{name}.{key}", inner, faults, depth - 1)


def _unfed(arrays: dict[str, pa.Array], needed: tuple[str, ...]) -> Faults:
    """Records whose inputs are all called otherwise than the model's."""
    given = [name for name in arrays if name.startswith("inputs.")]
    strange = [name for name in given if not is_fed(name, needed)]
    if not strange:
        return {}
    rows = len(arrays["id"])
    fed = np.zeros(rows, dtype=np.bool_)
    for name in set(given) - set(strange):
        fed |= arrays[name].is_valid().to_numpy(zero_copy_only=False)
    faults: Faults = {}
    for name in strange:
        present = arrays[name].is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(present & ~fed).tolist():
            faults.setdefault(row, ("inputs", _unfed_reason(needed, strange)))
    return faults


def _unfed_reason(needed: tuple[str, ...], strange: list[str]) -> str:
    return (
        f"none of the declared inputs is there ({', '.join(needed[:20])}); got "
        f"{', '.join(strange[:20])[:400]}; "
        'take such records with missing_inputs = "flag" in [models.NAME.intake]'
    )


def _misnamed(name: str) -> str | None:
    """Fault of a field's name; None for a good one."""
    field_name = name.partition(".")[2]
    if not field_name:
        return "a field needs a name, got an empty one"
    if len(field_name) > 256 or not is_text(field_name):
        return "names of fields are texts of at most 256 characters"
    return None


def _taken(values: Values, rows: list[int]) -> list[Any]:
    if not isinstance(values, pa.Array):
        return [values[row] for row in rows]
    taken = values.take(pa.array(rows, pa.int64()))
    listed: list[Any] = nested_rows(taken) if is_tensor(values.type) else taken.to_pylist()
    return listed


def _values_of(block: Block, names: Iterable[str]) -> dict[str, int]:
    """Values that are no nulls, by column; columns that a block of bytes does not bring have none."""
    if isinstance(block, KnownRecords):
        return block.values_of(names)
    if isinstance(block, KnownTensors):
        brought = {column.name for column in block.shape.columns}
        return {name: block.rows for name in names if name in brought}
    table = block.table
    found = {name: table.schema.get_field_index(name) for name in names}
    return {name: block.rows - table.column(at).null_count for name, at in found.items() if at >= 0}


def _system_columns(part: RequestPart, kind: Kind, received_us: int) -> tuple[dict[str, pa.Array], Faults]:
    """System columns with their defaults, and the rows whose values cannot stand there."""
    arrays, faults = _given_columns(part, LABEL_SYSTEM if kind == "labels" else SYSTEM)
    rows = len(part.indices)
    received = pa.repeat(pa.scalar(received_us, TIME), rows)
    given = arrays["ts"]
    arrays["ts"] = _filled_up(given, received)
    if kind == "labels":
        arrays["source"] = _filled_up(arrays["source"], pa.repeat("api", rows))
        return arrays, _nameless(arrays, given) | faults
    arrays["received"] = received
    arrays["weight"] = _filled_up(arrays["weight"], pa.repeat(1.0, rows))
    arrays["partial"] = _filled_up(arrays["partial"], pa.repeat(False, rows))
    arrays["id"] = _with_ids(arrays["id"])
    if not part.columns:
        for row, fields in enumerate(zip(part.fields["inputs"], part.fields["outputs"], strict=True)):
            if not (fields[0] or fields[1]):
                faults.setdefault(row, ("inputs", "a record needs inputs, outputs, or both; got neither"))
    return arrays, faults


def _nameless(arrays: dict[str, pa.Array], ts: pa.Array) -> Faults:
    """Labels that name neither a record, nor an entity and a time."""
    faults: Faults = {}
    for row in _null_rows(arrays["id"]):
        if not arrays["entity"][row].is_valid:
            faults[row] = ("id", "is missing: name the record, or the entity and the time (ts) of the label")
        elif not ts[row].is_valid:
            faults[row] = ("ts", "is missing: the label is that of the entity's latest record at this time")
    return faults


def _given_columns(part: RequestPart, system: dict[str, pa.DataType]) -> tuple[dict[str, pa.Array], Faults]:
    rows = len(part.indices)
    arrays: dict[str, pa.Array] = {}
    faults: Faults = {}
    for name, type_ in system.items():
        values = part.system.get(name)
        if values is None or name == "received":
            arrays[name] = nulls(rows, type_)
            continue
        if name in _SHORT and isinstance(values, pa.Array) and pa.types.is_integer(values.type):
            values = values.cast(pa.string())
        array, bad = convert(values, type_, declared=True)
        array = arrays[name] = nulls(rows, type_) if array is None else array
        if isinstance(values, pa.Array):  # what came as JSON has been looked at already
            bad |= _out_of_bounds(name, arrays[name])
        if name == "ts":
            bad |= outside(array)
        for row, reason in bad.items():
            faults.setdefault(row, (name, reason))
    return arrays, faults


def _with_ids(ids: pa.Array) -> pa.Array:
    missing = _null_rows(ids)
    if not missing:
        return ids
    if len(missing) == len(ids):
        return pa.array(uuid7s(len(missing)), pa.string())
    filled = ids.to_pylist()
    for row, new_id in zip(missing, uuid7s(len(missing)), strict=True):
        filled[row] = new_id
    return pa.array(filled, pa.string())


def _out_of_bounds(name: str, array: pa.Array) -> dict[int, str]:
    if name in _SHORT:
        length = pc.utf8_length(array)
        wrong = pc.or_(pc.equal(length, 0), pc.greater(length, 256))
        reason = "1 to 256 characters expected"
    elif name == "weight":
        wrong = pc.or_(pc.less_equal(array, 0.0), pc.greater(array, 1e12))
        reason = "a weight above 0 and up to 1e12 expected"
    else:
        return {}
    return {row: reason for row, bad in enumerate(wrong.to_pylist()) if bad}


def _names(dicts: list[dict[str, Any] | None]) -> list[str]:
    """Keys of all dictionaries in order of appearance."""
    first = next((d for d in dicts if d is not None), None)
    if first is None:
        return []
    keys = first.keys()
    if all(d is not None and d.keys() == keys for d in dicts):
        return list(keys)
    names: dict[str, None] = {}
    for d in dicts:
        if d is not None:
            names.update(dict.fromkeys(d))
    return list(names)


def _filled(values: Values) -> list[int]:
    if isinstance(values, pa.Array):
        return [row for row, valid in enumerate(values.is_valid().to_pylist()) if valid]
    return [row for row, value in enumerate(values) if value is not None]


def _null_rows(array: pa.Array) -> list[int]:
    return [row for row, null in enumerate(array.is_null().to_pylist()) if null] if array.null_count else []


def _filled_up(array: pa.Array, defaults: pa.Array) -> pa.Array:
    if not array.null_count:
        return array
    return defaults if array.null_count == len(array) else pc.coalesce(array, defaults)


def _take(values: Values, rows: list[int]) -> Values:
    if isinstance(values, pa.Array):
        return values.take(pa.array(rows, pa.int64()))
    return [values[row] for row in rows]
