"""Blocks of one model's records; rows that do not fit are left out and named."""

import threading

import numpy as np
import pyarrow as pa

from outrider.assertions.batch import PARTS, SYSTEM, schema_digest
from outrider.dataops.journal.journal import Kind
from outrider.monitor.http.problem import ProblemError, problem

from .column_types import nulls
from .drawn_columns import ASIDE_CELLS, ColumnLimits, DrawnColumns
from .list_columns import cells_of
from .pending_blocks import PendingBlock
from .rejections import FaultyRows, Rows
from .request_parts import RequestPart
from .schema_book import KIND, SchemaBook
from .system_columns import LABEL_SYSTEM

BLOCK_ROWS = 8192
"""Larger requests become several blocks."""
MAX_CELLS = 20_000_000
"""Rows x columns of one request: a small body of sparse records must not become gigabytes of nulls."""
_PASSES = 4


class BlockBuilder:
    """Builder of blocks that teaches the schema book new columns; only good records teach."""

    def __init__(
        self, book: SchemaBook, *, max_columns: int, max_depth: int, max_elements: int = 100_000
    ) -> None:
        self._book = book
        self._limits = ColumnLimits(max_columns, max_depth, max_elements)
        self._lock = threading.Lock()  # one block at a time teaches the book
        self._schemas: dict[tuple[Kind, str], tuple[dict[str, pa.DataType], pa.Schema, str]] = {}

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    def build(
        self, part: RequestPart, *, kind: Kind, received_us: int
    ) -> tuple[list[PendingBlock], list[FaultyRows]]:
        rows = len(part.indices)
        columns = len(self._glance(kind, part.model)[0])
        if rows * columns > MAX_CELLS:
            raise ProblemError(
                problem(413, f"{rows} records of {columns} columns are too many in one request; send fewer")
            )
        most = min(BLOCK_ROWS, self._book.rows_at_once(part.model))
        if rows <= most:
            with self._lock:
                return self._build(part, np.arange(rows), kind, received_us, MAX_CELLS)[:2]
        blocks: list[PendingBlock] = []
        faults: list[FaultyRows] = []
        cells = MAX_CELLS
        for start in range(0, rows, most):
            members = range(start, min(rows, start + most))
            chunk = part.slice(members)
            with self._lock:
                more, bad, aside = self._build(
                    chunk, np.arange(members.start, members.stop), kind, received_us, cells
                )
            cells -= aside + sum(cells_of(array) for block in more for array in block.table.columns)
            blocks += more
            faults += bad
        return blocks, faults

    def fitting(self, known: PendingBlock) -> list[PendingBlock]:
        blocks = known.pieces(min(BLOCK_ROWS, self._book.rows_at_once(known.model)))
        for block in blocks:
            self._weigh(block)
        return blocks

    def _weigh(self, block: PendingBlock) -> None:
        if names := self._book.open_columns(block.kind, block.model):
            self._book.weigh(block.kind, block.model, block.values_of(names))

    def _build(
        self, part: RequestPart, rows: Rows, kind: Kind, received_us: int, cells: int
    ) -> tuple[list[PendingBlock], list[FaultyRows], int]:
        """One block of ``part``, whose rows the faults call ``rows``; cells spent on its rare fields."""
        faults: list[FaultyRows] = []
        admitted = self._admitted(kind, part.model)
        for attempt in range(_PASSES):
            known = self._schema(kind, part.model)[0]
            drawn = DrawnColumns(self._book, self._limits, part, kind, known, admitted)
            arrays, bad = drawn.columns(received_us, cells)
            if not bad:
                break
            faults += bad.renumbered(rows)
            keep = np.flatnonzero(~bad.is_bad)
            rows = rows[keep]
            if not len(rows):
                break
            if attempt < _PASSES - 1:
                # Once more without them: a refused record must not teach the schema.
                part = part.take(keep.tolist())
            else:
                arrays = {name: array.take(pa.array(keep)) for name, array in arrays.items()}
        if not len(rows):
            return [], faults, drawn.aside * ASIDE_CELLS
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
        self._weigh(block)
        return [block], faults, drawn.aside * ASIDE_CELLS

    def _admitted(self, kind: Kind, model: str) -> frozenset[str]:
        """Fields that are no longer rare; without room, rarer columns make way."""
        admitted: set[str] = set()
        for name in self._book.proven(kind, model):
            if self._limits.room(self._schema(kind, model)[0]) <= len(admitted):
                rarest = self._book.rarest(kind, model)
                if rarest is None:
                    break
                self._book.forget(kind, model, rarest)
                self._schemas.pop((kind, model), None)
            admitted.add(name)
        return frozenset(admitted)

    def forget(self, kind: Kind, model: str, name: str) -> bool:
        with self._lock:
            found = self._book.forget(kind, model, name)
            self._schemas.pop((kind, model), None)
        return found

    def schema(self, model: str) -> tuple[pa.Schema, str]:
        return self._glance("records", model)[1:]

    def _glance(self, kind: Kind, model: str) -> tuple[dict[str, pa.DataType], pa.Schema, str]:
        """As `_schema`, without the lock: may be old in a moment."""
        cached = self._schemas.get((kind, model))
        if cached is None and self._lock.acquire(blocking=False):
            try:
                cached = self._schema(kind, model)
            finally:
                self._lock.release()
        return cached or self._made(kind, model)

    def _schema(self, kind: Kind, model: str) -> tuple[dict[str, pa.DataType], pa.Schema, str]:
        """Known columns, schema and digest, made once per change; for holders of the lock."""
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
