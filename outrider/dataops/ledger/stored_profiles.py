"""Stored profiles: written, rolled up, read for a range."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, delete, func, select

from outrider.assertions.drift.windows import same_times
from outrider.assertions.profiling import Profile, ProfileLayout, merged
from outrider.assertions.profiling.profile import stored_weights
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import ProfileLayoutRow, ProfileWindow, table_of

from .profiles import SLICES, LayoutRow, ProfileRow
from .stated_values import OTHERS

_PROFILE, _LAYOUT = table_of(ProfileWindow), table_of(ProfileLayoutRow)
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class KeptProfiles:
    minutes_s: float = 3 * HOUR_S
    hours_s: float = 14 * DAY_S
    days_s: float = 730 * DAY_S


@dataclass(frozen=True, slots=True)
class ProfileRange:
    """Windows to read.

    Attributes
    ----------
    since_us, until_us
        Windows that begin before ``until_us`` and end behind ``since_us``.
    version, slice
        None for all.
    """

    slots: tuple[str, ...] = ("champion", "backfill")
    since_us: int = 0
    until_us: int = 2**62
    version: str | None = None
    slice: str | None = None


@dataclass(frozen=True, slots=True)
class FoundProfile:
    profile: Profile
    since_us: int
    until_us: int
    versions: tuple[str, ...]
    slices: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class WindowWeights:
    start_us: int
    version: str
    slice: str
    rows: int
    layout: ProfileLayout
    weights: NDArray[np.float64]


def insert_profiles(connection: Connection, model: str, rows: Iterable[ProfileRow]) -> None:
    insert_rows(connection, ProfileWindow, [(model, *astuple(row)) for row in rows])


def insert_layouts(connection: Connection, model: str, rows: Iterable[LayoutRow]) -> None:
    insert_rows(connection, ProfileLayoutRow, [(model, *astuple(row)) for row in rows])


def newest_layout(connection: Connection, model: str) -> ProfileLayout | None:
    query = select(_LAYOUT.c.layout).where(_LAYOUT.c.model == model).order_by(_LAYOUT.c.at_us.desc())
    text = connection.scalar(query.limit(1))
    return None if text is None else ProfileLayout.from_json(text)


def last_profiled(connection: Connection, model: str, slot: str) -> int | None:
    query = select(func.max(_PROFILE.c.seq)).where(_PROFILE.c.model == model, _PROFILE.c.slot == slot)
    found: int | None = connection.scalar(query)
    return found


def slices_of_slot(connection: Connection, model: str, slot: str) -> list[str]:
    is_own = _PROFILE.c.slice.not_in(("", OTHERS))
    query = (
        select(_PROFILE.c.slice)
        .where(_PROFILE.c.model == model, _PROFILE.c.slot == slot, is_own)
        .group_by(_PROFILE.c.slice)
        .order_by(func.max(_PROFILE.c.start_us).desc(), _PROFILE.c.slice)
    )
    return list(connection.scalars(query.limit(SLICES)))


def read_profile(connection: Connection, model: str, wanted: ProfileRange) -> FoundProfile | None:
    layouts = _layouts(connection, model)
    profile, spans, versions, slices, layout = None, [], set(), set(), ""
    stored = _rows(connection, model, wanted)
    while rows := list(islice(stored, _AT_ONCE)):
        parts = [Profile.from_bytes(row.payload, layouts[row.layout]) for row in rows]
        profile = merged(parts if profile is None else [profile, *parts])
        spans += [(row.start_us, row.start_us + row.span_s * 1_000_000) for row in rows]
        versions |= {row.version for row in rows}
        slices |= {row.slice for row in rows}
        layout = rows[-1].layout
    if profile is None:
        return None
    source = connection.scalar(
        select(_LAYOUT.c.source).where(_LAYOUT.c.model == model, _LAYOUT.c.digest == layout)
    )
    since, until = spans[0][0], max(end for _, end in spans)
    return FoundProfile(
        profile, since, until, tuple(sorted(versions)), tuple(sorted(slices)), source or ""
    )  # fmt: skip


def newest_range(connection: Connection, model: str, *, slots: tuple[str, ...], span_us: int) -> ProfileRange:
    """Range of ``span_us`` up to the newest blocks, by their order, whatever the clock was."""
    query = (
        select(_PROFILE.c.start_us, _PROFILE.c.span_s)
        .where(_PROFILE.c.model == model, _PROFILE.c.slot.in_(slots))
        .order_by(_PROFILE.c.seq.desc(), _PROFILE.c.start_us.desc())
    )
    last = connection.execute(query.limit(1)).first()
    if last is None:
        return ProfileRange(slots)
    return ProfileRange(slots, last.start_us - span_us, last.start_us + last.span_s * 1_000_000)


def _found(rows: Sequence[ProfileRow], layouts: Mapping[str, ProfileLayout], source: str) -> FoundProfile:
    return FoundProfile(
        merged([Profile.from_bytes(row.payload, layouts[row.layout]) for row in rows]),
        rows[0].start_us,
        max(map(_end_us, rows)),
        tuple(sorted({row.version for row in rows})),
        tuple(sorted({row.slice for row in rows})),
        source,
    )


def _end_us(row: ProfileRow) -> int:
    return row.start_us + row.span_s * 1_000_000


def read_blocks(
    connection: Connection, model: str, wanted: ProfileRange, *, fewest: int, like: ProfileRange
) -> tuple[list[FoundProfile], str]:
    """Profiles of the stored windows within a range, in order of time.

    Those of an hour are joined, or by minute below ``fewest``; at the hours of ``like`` alone where there
    are enough.
    """
    layouts = _layouts(connection, model)
    rows = [
        row
        for row in _rows(connection, model, wanted)
        if row.start_us >= wanted.since_us and _end_us(row) <= wanted.until_us
    ]
    starts, ends = (
        np.array(each, dtype=np.int64) for each in ([row.start_us for row in rows], [*map(_end_us, rows)])
    )
    found = same_times(starts, ends, like.since_us, like.until_us)
    if found is not None and len(np.unique(starts[found[0]])) >= fewest:
        rows, matched = [row for row, is_kept in zip(rows, found[0], strict=True) if is_kept], found[1]
    else:
        matched = ""
    width = HOUR_S * 1_000_000
    if len({row.start_us // width for row in rows}) < fewest:
        width = MINUTE_S * 1_000_000
    groups: dict[int, list[ProfileRow]] = {}
    for row in rows:
        groups.setdefault(row.start_us // width, []).append(row)
    return [_found(group, layouts, "") for group in groups.values()], matched


def read_weights(
    connection: Connection, model: str, wanted: ProfileRange, *, width_s: int
) -> Iterator[WindowWeights]:
    """Weights of stored windows of at most ``width_s`` that begin within a range, in order."""
    layouts = _layouts(connection, model)
    for row in _rows(connection, model, wanted):
        if row.span_s <= width_s and row.start_us >= wanted.since_us:
            layout = layouts[row.layout]
            weights = stored_weights(row.payload, layout)
            yield WindowWeights(row.start_us, row.version, row.slice, row.rows, layout, weights)


def oldest_begin(connection: Connection, model: str, *, width_s: int) -> int | None:
    own = _PROFILE.c.model == model, _PROFILE.c.span_s <= width_s, _PROFILE.c.slot.in_(ProfileRange().slots)
    oldest: int | None = connection.scalar(select(func.min(_PROFILE.c.start_us)).where(*own))
    return oldest


def count_windows(connection: Connection, model: str, wanted: ProfileRange) -> int:
    query = select(func.count()).select_from(_PROFILE).where(*_touching(model, wanted))
    return int(connection.execute(query).scalar_one())


def newest_end(connection: Connection, model: str) -> int | None:
    wanted = newest_range(connection, model, slots=ProfileRange().slots, span_us=0)
    return None if wanted == ProfileRange() else wanted.until_us


def profiled_slices(connection: Connection, model: str) -> list[str]:
    query = select(_PROFILE.c.slice).where(_PROFILE.c.model == model, _PROFILE.c.slice != "").distinct()
    return list(connection.scalars(query.order_by(_PROFILE.c.slice)))


def roll_up(connection: Connection, model: str, *, now_us: int, kept: KeptProfiles) -> int:
    """Join old minutes to hours, hours to days; drop old days. Returns the number of windows that went."""
    steps = ((MINUTE_S, HOUR_S, kept.minutes_s), (HOUR_S, DAY_S, kept.hours_s))
    gone = sum(_join(connection, model, *step, now_us=now_us) for step in steps)
    old = now_us - int(kept.days_s * 1e6)
    query = delete(_PROFILE).where(
        _PROFILE.c.model == model, _PROFILE.c.span_s == DAY_S, _PROFILE.c.start_us < old
    )
    return gone + connection.execute(query).rowcount


def _join(connection: Connection, model: str, span_s: int, into_s: int, keep_s: float, *, now_us: int) -> int:
    width = into_s * 1_000_000
    end = int(now_us - keep_s * 1e6) // width * width
    here = _PROFILE.c.model == model, _PROFILE.c.span_s == span_s, _PROFILE.c.start_us < end
    key = [_PROFILE.c[name] for name in ("start_us", "slot", "version", "slice")]
    places = connection.execute(select(*key).where(*here).distinct()).all()
    groups = sorted({(row.start_us // width * width, *row[1:]) for row in places})
    layouts = _layouts(connection, model) if groups else {}
    gone = 0
    for start, slot, version, part in groups:
        own = (
            *here, _PROFILE.c.start_us >= start, _PROFILE.c.start_us < start + width,
            _PROFILE.c.slot == slot, _PROFILE.c.version == version, _PROFILE.c.slice == part,
        )  # fmt: skip
        rows = connection.execute(select(_PROFILE).where(*own).order_by(_PROFILE.c.start_us)).all()
        whole = merged([Profile.from_bytes(row.payload, layouts[row.layout]) for row in rows])
        seq, digest = max(row.seq for row in rows), whole.layout.digest
        if digest not in layouts:
            layouts[digest] = whole.layout
            _keep_joined_layout(connection, model, whole.layout)
        joined = ProfileRow(
            into_s, start, slot, version, part, seq, digest, whole.rows, whole.to_bytes()
        )  # fmt: skip
        gone += connection.execute(delete(_PROFILE).where(*own)).rowcount
        insert_profiles(connection, model, [joined])
    return gone


def _keep_joined_layout(connection: Connection, model: str, layout: ProfileLayout) -> None:
    """Store the layout of windows that were written under two; it is older than those in use."""
    row = LayoutRow(layout.digest, 0, "joined from two layouts", 0, layout.to_json())
    insert_layouts(connection, model, [row])


def _layouts(connection: Connection, model: str) -> dict[str, ProfileLayout]:
    """Layouts by stored digest and by their own, which differ where erasure took a category."""
    query = select(_LAYOUT.c.digest, _LAYOUT.c.layout).where(_LAYOUT.c.model == model)
    found = {row.digest: ProfileLayout.from_json(row.layout) for row in connection.execute(query)}
    return {layout.digest: layout for layout in found.values()} | found


def _rows(connection: Connection, model: str, wanted: ProfileRange) -> Iterator[ProfileRow]:
    columns = [_PROFILE.c[field.name] for field in fields(ProfileRow)]
    query = select(*columns).where(*_touching(model, wanted))
    for row in connection.execute(query.order_by(_PROFILE.c.start_us, _PROFILE.c.seq)):
        yield ProfileRow(*row)


def _touching(model: str, wanted: ProfileRange) -> list[ColumnElement[bool]]:
    found = [
        _PROFILE.c.model == model,
        _PROFILE.c.slot.in_(wanted.slots),
        _PROFILE.c.start_us < wanted.until_us,
        _PROFILE.c.start_us + _PROFILE.c.span_s * 1_000_000 > wanted.since_us,
    ]
    if wanted.version is not None:
        found.append(_PROFILE.c.version == wanted.version)
    if wanted.slice is not None:
        found.append(_PROFILE.c.slice == wanted.slice)
    return found
