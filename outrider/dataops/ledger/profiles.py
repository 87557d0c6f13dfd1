"""Profiles of minutes: records gathered in memory, counted and written once; a restart reads the blocks
after the last written window again."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.assertions.profiling.features import PARTS, WIDE_BYTES, batch_columns, narrowed
from outrider.assertions.profiling.layout import batch_entities, first_of_entities
from outrider.assertions.profiling.points import LEAST_ENTITIES

from .stated_values import OTHERS, PLACES

MINUTE_US = 60_000_000
BUFFER_ROWS = 65_536
BUFFER_BYTES = 16 << 20
"""Gathered bytes from which a part of a minute is written before it ends."""
FIRST_ROWS = 1000
"""Records that a layout is fitted on without a dataset version."""
LATER_ROWS = 200
"""Records that later columns are fitted on."""
_WEIGHED = 4096
"""Rows after which the next are measured in bytes."""
SLICES = 2 * PLACES
"""Slices known to have had ten entities, those met last."""
_CANDIDATES = 1000

_KEPT = ("entity", "version", "weight")
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Stored profile of one version and slice in a window.

    Or in a part of the window.
    """

    span_s: int
    start_us: int
    slot: str
    version: str
    slice: str
    seq: int
    layout: str
    rows: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LayoutRow:
    digest: str
    at_us: int
    source: str
    rows: int
    layout: str


@dataclass(slots=True)
class LayoutBook:
    """Layout of one model's profiles; ``reference`` gives the rows to fit on, such as those of the
    champion's dataset version."""

    current: ProfileLayout | None = None
    reference: Callable[[], tuple[str, Batch] | None] = lambda: None
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fitted: list[LayoutRow] = field(default_factory=list)
    _asked: int = -1
    _found: tuple[str, Batch] | None = None

    def fit(self, batch: Batch, *, at_us: int) -> ProfileLayout:
        if self.current is None:
            found = self.rows_to_fit(at_us // MINUTE_US)
            if found is not None:
                self._note(ProfileLayout.fit(found[1], classes=self.classes), found[0], found[1].rows, at_us)
        layout = self.current
        lacking = set(batch_columns(batch)) - (set() if layout is None else set(layout.sources))
        if layout is None or (lacking and batch.rows >= LATER_ROWS):
            wider = (layout or ProfileLayout(())).extended(batch, classes=self.classes)
            if layout is None or wider.digest != layout.digest:
                self._note(wider, f"the first {batch.rows:,} records of traffic", batch.rows, at_us)
        assert self.current is not None
        return self.current

    def rows_to_fit(self, minute: int) -> tuple[str, Batch] | None:
        """Reference rows with their name, or None; looked for once a minute, because finding none
        may take a scan."""
        if minute != self._asked:
            self._asked, self._found = minute, self.reference()
        return self._found

    def _note(self, layout: ProfileLayout, source: str, rows: int, at_us: int) -> None:
        self.current, self._found = layout, None
        self.fitted.append(LayoutRow(layout.digest, at_us, source, rows, layout.to_json()))

    def new_rows(self) -> list[LayoutRow]:
        found, self.fitted = self.fitted, []
        return found


@dataclass(slots=True)
class _Gathered:
    batch: Batch
    seq: Ints
    minute: Ints | int
    slices: pa.Array | None = None


@dataclass(slots=True)
class ProfileBuffer:
    rows: int = 0
    _parts: list[_Gathered] = field(default_factory=list)
    _row_bytes: float = 0.0
    _weigh_at: int = 0
    _is_wide: bool = False
    """True once records seem to have tensors, which their features stand for."""
    slices: dict[str, None] = field(default_factory=dict)
    """Slices with profiles of their own, the one met last at the end."""
    _met: dict[str, set[tuple[int, str]]] = field(default_factory=dict)

    def add(
        self,
        batch: Batch,
        seq: Ints,
        received: Mapping[int, int],
        slices: Sequence[str | None] | None = None,
    ) -> None:
        """Gather judged records, with version and slice as counts name them."""
        if not batch.rows:
            return
        minutes: Ints | int = received[int(seq[0])] // MINUTE_US
        if received[int(seq[-1])] // MINUTE_US != minutes:  # blocks come in order
            blocks, at = np.unique(seq, return_inverse=True)
            each = np.array([received[block] // MINUTE_US for block in blocks.tolist()], dtype=np.int64)
            minutes = each[at]
        if self.rows >= self._weigh_at:
            self._weigh_at = self.rows + _WEIGHED
            own = batch.to_arrow().nbytes / batch.rows
            self._is_wide = own >= WIDE_BYTES
            if self._is_wide:
                batch = narrowed(batch)
                own = batch.to_arrow().nbytes / batch.rows
            self._row_bytes = max(self._row_bytes, own)
        elif self._is_wide:
            batch = narrowed(batch)
        parts = None if slices is None else pa.array(slices, pa.string())
        self._parts.append(_Gathered(batch, seq, minutes, parts))
        self.rows += batch.rows

    def drain(
        self,
        slot: str,
        book: LayoutBook,
        *,
        now_us: int,
        is_last: bool = False,
    ) -> list[ProfileRow]:
        """Profiles of the minutes finished at ``now_us``, or of all where much is gathered.

        A later minute is finished too: the clock was set back.
        """
        if not self._parts:
            return []
        now = now_us // MINUTE_US
        is_full = self.rows >= BUFFER_ROWS or self.rows * self._row_bytes >= BUFFER_BYTES
        if not (is_last or is_full) and self._begin() == now:
            return []
        if book.current is None and not is_full and not self._may_fit(book, now):
            return []
        due, self._parts = self._parts, []
        if not (is_last or is_full):
            due, self._parts = _split(due, now)
        self.rows, self._row_bytes, self._weigh_at = sum(len(part.seq) for part in self._parts), 0.0, 0
        found: dict[tuple[int, str, str], tuple[int, Profile]] = {}
        for batch, seq, minute, slices in _joined(due):
            layout = book.fit(batch, at_us=now_us)
            for key, last, profile in self._profiles(layout, batch, seq, minute, slices):
                if key in found:  # of another schema
                    before, own = found[key]
                    last, profile = max(last, before), own.merged(profile)
                found[key] = last, profile
        return list(_written(slot, found))

    def _begin(self) -> int:
        first = self._parts[0].minute
        return first if isinstance(first, int) else int(first[0])

    def _may_fit(self, book: LayoutBook, now: int) -> bool:
        """True with a reference, or enough traffic to fit on; after an hour less is enough."""
        least = FIRST_ROWS if now - self._begin() < 60 else LATER_ROWS
        return self.rows >= least or book.rows_to_fit(now) is not None

    def _profiles(
        self,
        layout: ProfileLayout,
        batch: Batch,
        seq: Ints,
        minute: Ints,
        parts: pa.Array | None,
    ) -> Iterator[tuple[tuple[int, str, str], int, Profile]]:
        versions = _texts(batch.arrow("version"), batch.rows)
        slices = self._bounded(batch, _texts(parts, batch.rows))
        minutes, at = np.unique(minute, return_inverse=True)  # years may lie between two of them
        shape = (len(minutes), len(versions[1]), len(slices[1]))
        group = np.zeros(1, dtype=np.int64)  # one for all
        if np.prod(shape) > 1:
            group = np.ravel_multi_index((at, versions[0], slices[0]), shape)
        keys = np.flatnonzero(np.bincount(group))
        for key in keys.tolist():
            rows = slice(None) if len(keys) == 1 else np.flatnonzero(group == key)
            own = batch if len(keys) == 1 else batch.take(rows)
            when, version, part = np.unravel_index(key, shape)
            start = int(minutes[when]) * MINUTE_US
            yield (
                (start, versions[1][version], slices[1][part]),
                int(seq[rows].max()),
                Profile.of(own, layout),
            )

    def _bounded(self, batch: Batch, slices: tuple[Ints, list[str]]) -> tuple[Ints, list[str]]:
        codes, names = slices
        if names == [""]:
            return slices
        self._meet(batch, codes, names)
        for name in sorted(self.slices.keys() & set(names)):
            self.slices[name] = self.slices.pop(name)
        own = _folded(codes, names, {"", *self.slices})
        while len(self.slices) > SLICES:
            del self.slices[next(iter(self.slices))]
        return own

    def _meet(self, batch: Batch, codes: Ints, names: Sequence[str]) -> None:
        entities = batch_entities(batch)
        first = first_of_entities(entities)
        number = np.bincount(codes[first], minlength=len(names))
        for at in np.argsort(-number, kind="stable").tolist():
            name = names[at]
            if name in self.slices or name in ("", OTHERS) or not number[at]:
                continue
            met = self._met.get(name)
            if met is None:
                if len(self._met) >= _CANDIDATES:
                    self._met.pop(next(iter(self._met)))
                met = self._met[name] = set()
            rows = np.flatnonzero(first & (codes == at))[:LEAST_ENTITIES]
            for row, entity in zip(rows.tolist(), entities.take(pa.array(rows)).to_pylist(), strict=True):
                met.add((0, entity) if entity is not None else (len(met) + 1, str(row)))
            if len(met) >= LEAST_ENTITIES:
                self.slices[name] = None
                del self._met[name]


def _folded(codes: Ints, names: Sequence[str], known: Container[str]) -> tuple[Ints, list[str]]:
    own = [name for name in names if name in known and name != OTHERS]
    kept = {name: at for at, name in enumerate(own)}
    places = np.array([kept.get(name, len(kept)) for name in names], dtype=np.int64)
    return places[codes], [*own, OTHERS]


def _written(slot: str, found: Mapping[tuple[int, str, str], tuple[int, Profile]]) -> Iterator[ProfileRow]:
    for (start, version, part), (last, profile) in found.items():
        digest, payload = profile.layout.digest, profile.to_bytes()
        yield ProfileRow(60, start, slot, version, part, last, digest, profile.rows, payload)


def _texts(given: pa.Array | None, rows: int) -> tuple[Ints, list[str]]:
    if given is None or given.null_count == len(given):
        return np.zeros(rows, dtype=np.int64), [""]
    column = pc.fill_null(given, "").dictionary_encode()
    return column.indices.to_numpy().astype(np.int64), column.dictionary.to_pylist()


def _split(parts: list[_Gathered], now: int) -> tuple[list[_Gathered], list[_Gathered]]:
    over: list[_Gathered] = []
    left: list[_Gathered] = []
    for part in parts:
        if isinstance(part.minute, int):
            (left if part.minute == now else over).append(part)
            continue
        is_over = part.minute != now
        for mask, side in ((is_over, over), (~is_over, left)):
            if mask.all():
                side.append(part)
            elif mask.any():
                slices = None if part.slices is None else part.slices.filter(pa.array(mask))
                side.append(_Gathered(part.batch.take(mask), part.seq[mask], part.minute[mask], slices))
    return over, left


def _joined(parts: Sequence[_Gathered]) -> Iterator[tuple[Batch, Ints, Ints, pa.Array | None]]:
    groups: list[tuple[pa.Schema, list[_Gathered]]] = []
    for part in parts:
        schema = part.batch.to_arrow().schema
        own = next((same for known, same in reversed(groups) if known.equals(schema)), None)
        if own is None:
            groups.append((schema, own := []))
        own.append(part)
    for schema, same in groups:
        names = [name for name in schema.names if name in _KEPT or name.startswith(PARTS)]
        slices = [part.slices for part in same if part.slices is not None]
        table = pa.Table.from_batches([part.batch.to_arrow() for part in same]).select(names)
        yield (
            Batch(table.combine_chunks().to_batches()[0], model=same[0].batch.model),
            np.concatenate([part.seq for part in same]),
            _concatenated([part.minute for part in same], [len(part.seq) for part in same]),
            None if not slices else pa.concat_arrays(slices),
        )


def _concatenated(minutes: Sequence[Ints | int], rows: Sequence[int]) -> Ints:
    if all(isinstance(one, int) for one in minutes):
        return np.repeat(np.array(minutes, dtype=np.int64), rows)
    return np.concatenate([np.broadcast_to(one, n) for one, n in zip(minutes, rows, strict=True)])
