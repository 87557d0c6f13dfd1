"""State that a :class:`Window` or :class:`Group` carries between batches.

The state is a pure function of the arrived records and their receive times: however they are cut into
batches, and wherever the state is saved and restored, the same rows are judged with the same context.
"""

import json
from collections.abc import Collection
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import MARKS, SYSTEM, Batch
from outrider.assertions.batch.columns import entity_codes, mix, null_column

from .arrivals import NEVER, Bools, Ints, WatermarkPolicy, judge_arrivals, order_by_time, stable_order
from .columns import entity_column, merged_schema, record_hashes, widened
from .entities import Entities
from .entity_rows import EntityRows, concat, numbers, take
from .group import Group
from .rows import RELEASED, Arrived, OrderedRows, View, any_in_run, ends_of_runs, starts_of_runs
from .window import Window

__all__ = ["View", "WindowState", "holds"]

TAG = "~tag"
_STATE = b"outrider.window"
_SEEN = pa.schema([("ts", pa.int64()), ("hash", pa.uint64())])


class WindowState:
    """Context and held-back records of one window or group over a stream.

    Attributes
    ----------
    late, duplicates, evicted
        Number of records not judged because they were late or repeated, and of entities ended by the limit on
        open entities.
    late_positions
        Rows of the last batch that were late.

    Examples
    --------
    >>> frames = Batch.from_columns({"entity": ["a", "a", "a"], "outputs.label": [1, 2, 1]}, model="m")
    >>> state = WindowState(Window(rows=2))
    >>> _ = state.update(frames.slice(0, 2))
    >>> [view] = state.update(frames.slice(2, 1))
    >>> view.batch.column("outputs.label").tolist(), view.batch.is_new.tolist(), view.positions.tolist()
    ([2, 1], [False, True], [-1, 0])
    >>> [closing] = state.finish()
    >>> closing.batch.column("outputs.label").tolist(), closing.batch.is_last.tolist()
    ([1], [True])
    """

    def __init__(self, window: Window | Group) -> None:
        self.window = window
        if isinstance(window, Group):
            self._pace = WatermarkPolicy(None, _us(window.wait_s))
            self._context, self._span = 0, None
            self._most = window.max_groups
        else:
            self._pace = WatermarkPolicy(_us(window.lateness_s), _us(window.idle_s))
            self._context = window.capacity - 1
            self._span = None if window.seconds is None else _us(window.seconds)
            self._most = window.max_entities
        self.late = self.duplicates = self.evicted = 0
        self.late_positions = np.zeros(0, dtype=np.int64)
        self._tags: int | None = None
        self._model = ""
        self._schema: pa.Schema | None = None
        self._clock = int(NEVER)
        self._due = int(NEVER)
        self._forget()

    def _forget(self) -> None:
        self._rows, self._hashes, self._known = EntityRows(), EntityRows(), Entities()

    # ---- size ------------------------------------------------------------------------------------------

    @property
    def entities(self) -> int:
        """Number of open entities."""
        return len(self._known)

    @property
    def rows(self) -> int:
        """Number of records kept as context or held back."""
        return self._rows.rows

    @property
    def nbytes(self) -> int:
        """Bytes of kept records and of the hashes that detect duplicates."""
        return self._rows.nbytes + self._hashes.nbytes

    # ---- the stream ------------------------------------------------------------------------------------

    def update(
        self, batch: Batch, tags: Ints | None = None, *, ahead: Bools | None = None, ends: bool = False
    ) -> list[View]:
        """Views to judge after the records of a batch, in order.

        Usually one; none if nothing is due. More if an entity ended and restarted, as no view has rows of
        both.

        Parameters
        ----------
        tags
            Integers attached to each row, shape (rows, tags).
        ahead
            Mask of rows whose ``ts`` is limited to the time of receipt, shape (rows,); None is none. They
            wait until the watermark, or during silence the receive time, reaches their ``ts``.
        ends
            Whether the stream ends: every entity ends with this batch.

        Raises
        ------
        ValueError
            If the entity column has an unsuitable type, or the number of tags differs from earlier batches.
        """
        tags = np.zeros((batch.rows, 0), dtype=np.int64) if tags is None else np.asarray(tags, dtype=np.int64)
        if len(tags) != batch.rows or tags.ndim != 2 or self._tags not in (None, tags.shape[1]):
            raise ValueError(f"tags must have shape ({batch.rows}, {self._tags}), got {tags.shape}")
        self._tags = tags.shape[1]
        self.late_positions = np.zeros(0, dtype=np.int64)
        table = self._narrow(batch)
        by = entity_column(batch, self.window.by)  # raises before anything has changed
        views = self._adopt(table, batch.model)
        at = 0
        while not ends and (stop := self._room(by, at)) < batch.rows:
            views += self._pass(table, by, tags, at, stop, ahead=ahead)
            views += self._make_room(numbers(table.column("received"))[stop])
            at = stop
        return views + self._pass(table, by, tags, at, batch.rows, ahead=ahead, ends=ends)

    def advance(self, received_us: int) -> list[View]:
        """Views to judge because receive time advanced."""
        self._clock = max(self._clock, int(received_us))
        return self._none()

    def finish(self) -> list[View]:
        """Closing views of all entities, at the end of the stream."""
        return self._none(ends=True)

    def _none(self, *, ends: bool = False) -> list[View]:
        if self._schema is None:
            return []
        empty = pa.RecordBatch.from_arrays(
            [null_column(0, f.type) for f in self._schema], schema=self._schema
        )
        none = np.zeros((0, self._tags or 0), dtype=np.int64)
        return self._pass(empty, pa.nulls(0), none, 0, 0, ends=ends, sweep=True)

    # ---- room for entities -----------------------------------------------------------------------------

    def _room(self, by: pa.Array, at: int) -> int:
        """First row from ``at`` on whose entity may exceed the limit; the number of rows if there is none."""
        left = self._most - self.entities
        if len(by) - at <= left:
            return len(by)
        local, values = entity_codes(by.slice(at))
        fresh = self._known.find(values) < 0
        if int(fresh.sum()) <= left:
            return len(by)
        appears = np.full(len(values), len(local))
        rows = np.flatnonzero(local >= 0)
        np.minimum.at(appears, local[rows], rows)
        return at + int(np.sort(appears[fresh])[left])

    def _make_room(self, received_us: np.int64) -> list[View]:
        views = self.advance(int(received_us))
        if self.entities < self._most:
            return views
        many = min(max(1, self._most // 10), self.entities)
        self.evicted += many
        self._known.silence_longest(many)
        self._due = int(NEVER)
        return views + self._none()

    # ---- columns ---------------------------------------------------------------------------------------

    def _narrow(self, batch: Batch) -> pa.RecordBatch:
        table = batch.to_arrow()
        if not self.window.columns:
            return table
        wanted = {*SYSTEM, *MARKS, self.window.by, *self.window.columns}
        return table.select([name for name in table.schema.names if name in wanted])

    def _adopt(self, table: pa.RecordBatch, model: str) -> list[View]:
        """Adopt new columns.

        A column whose type changes (other than to a wider one) ends all entities.
        """
        old, new = self._schema, table.schema
        if old is not None and old.equals(new):
            return []
        if old is None:
            self._schema, self._model = new, model
            return []
        if model != self._model:
            raise ValueError(f"records of one model expected, {self._model!r}, got {model!r}")
        views: list[View] = []
        merged = merged_schema(old, new)
        if merged is None:
            views = self.finish()
            self._forget()
            merged = merged_schema(pa.schema([]), new)
        self._schema = merged
        if old.equals(self._schema):
            return views
        inside = self._inside
        self._rows.map(lambda chunk: widened(chunk, inside))
        return views

    @property
    def _width(self) -> int:
        """Number of columns that a view shows."""
        return len(self._schema or ())

    @property
    def _inside(self) -> pa.Schema:
        """Schema of a kept row."""
        assert self._schema is not None
        schema = self._schema.append(pa.field(RELEASED, pa.int8()))
        for index in range(self._tags or 0):
            schema = schema.append(pa.field(f"{TAG}{index}", pa.int64()))
        return schema

    # ---- one pass --------------------------------------------------------------------------------------

    def _pass(
        self,
        table: pa.RecordBatch,
        by: pa.Array,
        tags: Ints,
        at: int,
        stop: int,
        *,
        ahead: Bools | None = None,
        ends: bool = False,
        sweep: bool = False,
    ) -> list[View]:
        """Process rows ``at`` to ``stop``, which contain no entity beyond the limit."""
        if at or stop < table.num_rows:
            table, by, tags = table.slice(at, stop - at), by.slice(at, stop - at), tags[at:stop]
        arrived = self._arrive(table, by, None if ahead is None else ahead[at:stop])
        self.late_positions = np.append(self.late_positions, at + arrived.late)
        touched, due = arrived.codes[arrived.codes >= 0], self._overdue(ends=ends, sweep=sweep)
        silent = due[~np.isin(due, touched)] if len(touched) else due
        return self._settle(table, tags, at, arrived, silent, ends=ends)

    def _arrive(self, table: pa.RecordBatch, by: pa.Array, ahead: Bools | None) -> Arrived:
        rows = table.num_rows
        local, values = entity_codes(by)
        named = len(values)
        alone = np.flatnonzero(local < 0)
        local[alone] = named + np.arange(len(alone))
        entities = named + len(alone)
        codes = np.full(entities, -1, dtype=np.int64)
        codes[:named] = self._known.find(values)
        received = np.maximum.accumulate(np.append(self._clock, numbers(table.column("received"))))[1:]
        order = stable_order(local, entities)
        entity, ts, clock = local[order], numbers(table.column("ts"))[order], received[order]
        first = np.ones(rows, dtype=np.bool_)
        first[1:] = entity[1:] != entity[:-1]
        prior = codes[entity[first]]
        seen, newest, reach, floor = self._known.known(prior)
        timing = judge_arrivals(
            self._pace, ts, clock, first, known=prior >= 0, seen=seen, newest=newest, reach=reach,
            floor=floor, ahead=None if ahead is None else ahead[order],
        )  # fmt: skip
        if rows:
            self._clock = int(received[-1])
        last = np.flatnonzero(np.append(first[1:], np.ones(min(rows, 1), dtype=np.bool_)))
        self.late += int(timing.late.sum())
        keep = np.flatnonzero(~timing.late) if timing.late.any() else slice(None)
        key = timing.round * entities + entity
        bound = entities * (int(timing.round.max(initial=0)) + 1)
        places, keys, times = order[keep], key[keep], ts[keep]
        by_time = order_by_time(keys, times, bound)
        fresh = Arrived(
            values=values,
            codes=codes,
            entities=entities,
            named=named,
            rounds=timing.round[last],
            last=clock[last],
            newest=timing.newest[last],
            reach=timing.reach[last],
            floor=timing.floor[last],
            places=places[by_time],
            keys=keys[by_time],
            ts=times[by_time],
            late=np.sort(order[timing.late]),
        )
        return self._distinct(fresh, table)

    def _distinct(self, arrived: Arrived, table: pa.RecordBatch) -> Arrived:
        """Arrivals without records already received, in this batch or an earlier one."""
        keys, ts = arrived.keys, arrived.ts
        if not len(keys):
            return arrived
        equal = (keys[1:] == keys[:-1]) & (ts[1:] == ts[:-1])
        suspect = np.append(equal, False) | np.append(False, equal)
        known = arrived.codes >= 0
        top = np.full(arrived.entities, NEVER)
        top[known] = self._known.newest[arrived.codes[known]]
        in_first = keys < arrived.entities
        suspect |= in_first & (ts <= top[np.where(in_first, keys, 0)])
        rows = np.flatnonzero(suspect)
        if not len(rows):
            return arrived
        hashes = record_hashes(table, arrived.places[rows], ts[rows]) ^ mix(keys[rows].astype(np.uint64))
        before = self._hashes_of(
            np.flatnonzero(known & np.isin(np.arange(len(known)), keys[rows])), arrived.codes
        )
        both = np.concatenate([before, hashes])
        earliest = np.unique(both, return_index=True)[1]
        again = np.ones(len(both), dtype=np.bool_)
        again[earliest] = False
        again = again[len(before) :]
        self.duplicates += int(again.sum())
        keep = np.ones(len(keys), dtype=np.bool_)
        keep[rows[again]] = False
        return arrived.only(keep)

    def _hashes_of(self, entities: Ints, codes: Ints) -> NDArray[np.uint64]:
        """Hashes of records that could be repeated: of kept rows, and of some rows no longer kept."""
        kept, gone = self._rows.gather(codes[entities]), self._hashes.gather(codes[entities])
        hashes = gone.numbers("hash").astype(np.uint64)
        owner = gone.owner
        if kept.tables:
            ids = concat([table.select(["id", "ts"]) for table in kept.tables])
            hashes = np.concatenate([hashes, record_hashes(ids, kept.index, kept.numbers("ts"))])
            owner = np.concatenate([owner, kept.owner])
        return hashes ^ mix(entities[owner].astype(np.uint64))

    def _overdue(self, *, ends: bool, sweep: bool) -> Ints:
        """Codes of entities that must release records, or end, because time advanced."""
        if ends:
            return self._known.codes
        if self._clock < self._due and not sweep:
            return np.zeros(0, dtype=np.int64)
        known = self._known
        wait = np.where(known.held > 0, self._pace.lateness or self._pace.idle, self._pace.idle)
        until = np.where(known.is_open, known.last + wait, -NEVER)
        has_come = known.is_open & (known.held > 0) & self._has_come(known.newest, known.reach)
        due = np.flatnonzero((until <= self._clock) | has_come)
        # Only once in a while: this scans all entities, and its exact time does not change verdicts.
        self._due = self._clock + (self._pace.lateness or self._pace.idle) // 16
        return due

    def _has_come(self, newest: Ints, reach: Ints) -> Bools:
        """Mask of entities whose records dated after receipt have all been reached by receive time."""
        come: Bools = (newest > reach) & (self._clock - (self._pace.lateness or 0) >= newest)
        return come

    def _settle(
        self, table: pa.RecordBatch, tags: Ints, at: int, arrived: Arrived, silent: Ints, *, ends: bool
    ) -> list[View]:
        """Views of the rows that are due now; the rest is kept."""
        touched = np.flatnonzero(arrived.codes >= 0)
        owners = np.concatenate([touched, arrived.entities + np.arange(len(silent))])
        codes = np.concatenate([arrived.codes, silent])  # of every entity in this pass; -1: new, or alone
        before = self._rows.gather(codes[owners])
        rows = OrderedRows.of(arrived, before, owners[before.owner], entities=len(codes), silent=len(silent))
        entity = rows.entity
        last = np.concatenate([arrived.last, self._known.last[silent]])
        newest = np.concatenate([arrived.newest, self._known.newest[silent]])
        reach = np.concatenate([arrived.reach, self._known.reach[silent]])
        floor = np.concatenate([arrived.floor, self._known.floor[silent]])
        ended = (self._clock - last >= self._pace.idle) | ends
        ended[arrived.named : arrived.entities] = True  # alone
        passed = np.full(len(codes), NEVER)
        if self._pace.lateness is not None:
            passed = np.maximum(reach - self._pace.lateness, floor)
            passed = np.where(self._has_come(newest, reach), newest, passed)
        if self._pace.lateness:
            passed = np.where(self._clock - last >= self._pace.lateness, np.maximum(reach, passed), passed)
        finished = (rows.key != rows.final[entity]) | ended[entity]
        released = finished | (rows.ts <= passed[entity])
        is_new = released & ~rows.was_released
        both = concat([*before.tables, self._with_insides(table, tags)])
        views, judged = [], None
        shown = any_in_run(is_new | finished, rows.key) & released
        if shown.any():
            index = np.flatnonzero(shown)
            if isinstance(self.window, Group):
                names = dict(enumerate(arrived.values))
                names |= {
                    arrived.entities + place: self._known.name(code)
                    for place, code in enumerate(silent.tolist())
                }
                index = rows.by_name(index, names)
            judged = take(both, rows.source[index])
            views = self._views(judged, rows, index, is_new, finished & ends_of_runs(rows.key), at)
        if not ended.all():
            held = np.bincount(entity[~released], minlength=len(codes))
            self._name(arrived, codes, ended)
            since = None if self._span is None else passed - self._span
            kept = ~released | rows.context(released & ~finished, self._context, since)
            in_order = judged is not None and bool(shown.all()) and not isinstance(self.window, Group)
            self._keep(judged if in_order else None, both, rows, kept, released, codes)
            gone = ~kept & (rows.ts >= passed[entity]) & ~finished
            self._remember(both, rows, gone, codes, ended, passed)
            stays = np.flatnonzero(~ended)
            known = self._known
            for values, now in (
                (known.last, last),
                (known.newest, newest),
                (known.reach, reach),
                (known.floor, floor),
                (known.held, held),
            ):
                values[codes[stays]] = now[stays]
        self._end(codes[ended & (codes >= 0)])
        return views

    def _with_insides(self, table: pa.RecordBatch, tags: Ints) -> pa.RecordBatch:
        schema = self._inside
        columns = list(widened(table, self._schema).columns)
        columns.append(pa.array(np.zeros(table.num_rows, dtype=np.int8)))
        columns += [pa.array(np.ascontiguousarray(column)) for column in tags.T]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _views(
        self, table: pa.RecordBatch, rows: OrderedRows, index: Ints, is_new: Bools, is_last: Bools, at: int
    ) -> list[View]:
        source = rows.source[index]
        width = self._width
        shown = pa.RecordBatch.from_arrays(table.columns[:width], schema=self._schema)
        tags = (
            np.stack([numbers(column) for column in table.columns[width + 1 :]], axis=1)
            if self._tags
            else None
        )
        positions = np.where(source >= rows.before, at + source - rows.before, -1)
        key, is_new, is_last = rows.key[index], is_new[index], is_last[index]
        rounds = key // len(rows.final)
        edges = [0, *(np.flatnonzero(np.diff(rounds)) + 1).tolist(), len(index)]
        views = []
        for start, stop in pairwise(edges):
            cut = slice(start, stop)
            batch = Batch(shown.slice(start, stop - start), model=self._model).with_marks(
                is_new[cut], is_last[cut], window=self.window, runs=key[cut]
            )
            own = np.zeros((stop - start, 0), dtype=np.int64) if tags is None else tags[cut]
            views.append(View(batch, own, positions[cut]))
        return views

    def _name(self, arrived: Arrived, codes: Ints, ended: Bools) -> None:
        """Assign a code to each new entity that continues."""
        fresh = np.flatnonzero((codes[: arrived.named] < 0) & ~ended[: arrived.named])
        codes[fresh] = self._known.add(arrived.values[place] for place in fresh.tolist())
        self._rows.grow(self._known.size)
        self._hashes.grow(self._known.size)

    def _keep(
        self,
        judged: pa.RecordBatch | None,
        both: pa.RecordBatch,
        rows: OrderedRows,
        kept: Bools,
        released: Bools,
        codes: Ints,
    ) -> None:
        """Store the kept rows; ``judged`` holds all rows in order if a view was just made of them."""
        index = np.flatnonzero(kept)
        key = rows.key[index]
        runs = starts_of_runs(key)
        counts = np.diff(np.append(runs, len(index)))
        if judged is not None:
            table, starts, flags = judged, index[runs], released
        else:
            table, starts, flags = take(both, rows.source[index]), runs, released[index]
        marks = pa.array(flags.astype(np.int8))
        table = table.set_column(self._width, table.schema.field(self._width), marks)
        self._rows.replace(codes[rows.entity[index[runs]]], starts, counts, table)

    def _remember(
        self, both: pa.RecordBatch, rows: OrderedRows, gone: Bools, codes: Ints, ended: Bools, passed: Ints
    ) -> None:
        """Keep hashes of the dropped rows ``gone`` that could still be repeated."""
        stays = np.flatnonzero(~ended)
        if not self._hashes.rows and not gone.any():
            return
        # An entity that began again knows nothing of what it sent before.
        goes_on = stays[(rows.final[stays] < len(rows.final)) & (codes[stays] >= 0)]
        old = self._hashes.gather(codes[goes_on])
        owner, old_ts = goes_on[old.owner], old.numbers("ts")
        still = old_ts >= passed[owner]
        fresh = np.flatnonzero(gone)
        owners_of_hashes = np.concatenate([owner[still], rows.entity[fresh]])
        ts = np.concatenate([old_ts[still], rows.ts[fresh]])
        hashes = old.numbers("hash").astype(np.uint64)[still]
        hashes = np.concatenate([hashes, record_hashes(both, rows.source[fresh], rows.ts[fresh])])
        order = stable_order(owners_of_hashes, max(len(codes), 1))
        counts = np.bincount(owners_of_hashes, minlength=len(codes))[stays]
        columns = [pa.array(ts[order]), pa.array(hashes[order])]
        table = pa.RecordBatch.from_arrays(columns, schema=_SEEN)
        self._hashes.replace(codes[stays], np.cumsum(counts) - counts, counts, table)

    def _end(self, codes: Ints) -> None:
        self._rows.drop(codes)
        self._hashes.drop(codes)
        self._known.end(codes)

    # ---- saving ----------------------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """State as Arrow IPC, for :meth:`restore`."""
        facts = {
            "window": repr(self.window),
            "model": self._model,
            "clock": self._clock,
            "tags": self._tags,
            "late": self.late,
            "duplicates": self.duplicates,
            "evicted": self.evicted,
            "empty": self._schema is None,
        }
        codes, state = self._known.codes, self._known
        kept = (state.last, state.newest, state.reach, state.floor, state.held)
        entities = [values[codes] for values in kept]
        tables = []
        for rows, schema in ((self._rows, self._inside if self._schema else _SEEN), (self._hashes, _SEEN)):
            found = rows.gather(codes)
            order = found.index[stable_order(found.owner, max(len(codes), 1))]
            none = pa.RecordBatch.from_arrays([null_column(0, f.type) for f in schema], schema=schema)
            tables.append(take(concat([none, *found.tables]), order))
            entities.append(np.bincount(found.owner, minlength=len(codes)))
        names = ["last", "newest", "reach", "floor", "held", "rows", "hashes"]
        known = pa.RecordBatch.from_arrays([pa.array(values) for values in entities], names=names)
        known = known.replace_schema_metadata({_STATE: json.dumps(facts).encode()})
        sink = pa.BufferOutputStream()
        for table in (known, *tables):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_batch(table)
        payload: bytes = sink.getvalue().to_pybytes()
        return payload

    @classmethod
    def restore(cls, window: Window | Group, payload: bytes | memoryview) -> "WindowState":
        """State from the payload of :meth:`checkpoint`.

        Raises
        ------
        ValueError
            If the state was saved with other settings.
        """
        source = pa.BufferReader(payload)
        known, rows, hashes = (pa.ipc.open_stream(source).read_all().combine_chunks() for _ in range(3))
        facts = json.loads(known.schema.metadata[_STATE])
        if facts["window"] != repr(window):
            raise ValueError(f"state of {facts['window']} cannot continue as {window}; begin a new one")
        state = cls(window)
        state._model, state._clock, state._tags = facts["model"], facts["clock"], facts["tags"]
        state.late, state.duplicates, state.evicted = facts["late"], facts["duplicates"], facts["evicted"]
        if facts["empty"]:
            return state
        fields = [field for field in rows.schema if not field.name.startswith("~")]
        state._schema = pa.schema(fields, metadata=rows.schema.metadata)
        if not known.num_rows:
            return state
        table = rows.to_batches()[0]
        values = {name: numbers(known.column(name).chunk(0)) for name in known.column_names}
        firsts = np.cumsum(values["rows"]) - values["rows"]
        _, names = entity_codes(table.column(window.by).take(pa.array(firsts)))
        codes = state._known.add(names)
        for name in ("last", "newest", "reach", "floor", "held"):
            getattr(state._known, name)[codes] = values[name]
        state._rows.grow(len(codes))
        state._hashes.grow(len(codes))
        state._rows.replace(codes, firsts, values["rows"], table)
        for batch in hashes.to_batches():
            state._hashes.replace(
                codes, np.cumsum(values["hashes"]) - values["hashes"], values["hashes"], batch
            )
        return state


def holds(payload: bytes | memoryview, ids: Collection[str], times_us: Collection[int]) -> bool:
    """True if a checkpoint may contain records with these ids.

    Besides rows it keeps hashes of dropped records, which are matched by event time (``times_us``, in µs)
    alone.
    """
    source = pa.BufferReader(payload)
    _, rows, hashes = (pa.ipc.open_stream(source).read_all() for _ in range(3))
    if "id" in rows.column_names:
        named = pc.is_in(rows.column("id").cast(pa.string()), pa.array(sorted(ids), pa.string()))
        if pc.any(named).as_py():
            return True
    times = pa.array(sorted(times_us), pa.int64())
    return bool(pc.any(pc.is_in(hashes.column("ts"), times)).as_py())


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
