"""Page of an assertion: figures, rate, severities, revisions, strikes, incidents."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, func, select

from outrider.assertions.flags.quality import Overlap, SuspensionRule
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.flags.quality import CHAMPION, AssertionQuality, read_overlaps, read_quality
from outrider.dataops.ledger.counters import counts_by_slot
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.state.tables import AssertionRow, Flag, Strike, table_of

SPAN_US = 7 * 86_400_000_000
"""The fire rate is shown over the last week of traffic at most."""
BINS = 90
LEAST_BINS = 10
"""Intervals before the newest that are shown even when there was no traffic yet."""
SEVERITY_BINS = 24
RECENT_SEVERITIES = 20_000
MOST_SLICES = 6
"""Slices with a line of their own, those with the most flags."""
_WIDTHS_S = (60, 120, 300, 600, 1800, 3600, 7200, 21_600)
_ASSERTION, _FLAG, _STRIKE = (table_of(t) for t in (AssertionRow, Flag, Strike))


@dataclass(frozen=True, slots=True)
class FireRate:
    """Flags per 1,000 records over time, exact, all revisions."""

    start_us: tuple[int, ...]
    width_s: int
    records: tuple[int, ...]
    per_1000: Mapping[str, tuple[float | None, ...]]
    """``all`` and slices; None where there were no records."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Severities of newest flags, geometric edges beyond two decades."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RevisionView:
    """Revision with its flags."""

    revision: str
    active: bool
    first_seen_us: int
    flags: int
    last_minute_us: int | None


@dataclass(frozen=True, slots=True)
class StrikeView:
    """A time when the assertion gave no verdict."""

    at_us: int
    slot: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class AssertionPage:
    """Everything the page of an assertion shows, but its flags."""

    quality: AssertionQuality
    fire_rate: FireRate
    severities: Histogram
    overlaps: tuple[Overlap, ...]
    """Seen from this assertion, most alike first."""
    revisions: tuple[RevisionView, ...]
    strikes: tuple[StrikeView, ...]
    incidents: tuple[IncidentRow, ...]
    slots: Mapping[str, float]
    """Flags per 1,000 records of each slot, all revisions."""
    thinned: int
    """Flags that storms left counted without their evidence."""


def read_assertion(
    engine: Engine, model: str, name: str, *, now_us: int, rule: SuspensionRule
) -> AssertionPage:
    """Read the page of an active assertion or live test.

    Raises
    ------
    NotFound
        If none of that name is active.
    """
    with engine.connect() as connection:
        figures = read_quality(connection, model, name, now_us=now_us, rule=rule)
        pairs = read_overlaps(connection, model)
        return AssertionPage(
            quality=figures,
            fire_rate=_fire_rate(connection, model, name),
            severities=_severities(connection, model, figures),
            overlaps=tuple(
                pair if pair.a == name else pair.reversed() for pair in pairs if name in (pair.a, pair.b)
            ),
            revisions=_revisions(connection, model, name),
            strikes=_strikes(connection, model, name),
            incidents=tuple(list_incidents(connection, now_us=now_us, model=model, assertion=name, limit=20)),
            slots=_slots(connection, model, name),
            thinned=_thinned(connection, model, name),
        )


def histogram(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Histogram:
    """Histogram of severities > 0.

    Examples
    --------
    >>> histogram(np.array([1.0, 1.0])).counts
    (2,)
    """
    if not len(values):
        return Histogram((), ())
    low, high = float(values.min()), float(values.max())
    if low == high:
        return Histogram((low, high), (len(values),))
    if high / low > 100:
        edges = np.geomspace(low, high, SEVERITY_BINS + 1)
        edges[0], edges[-1] = low, high  # rounding must lose neither end
    else:
        edges = np.linspace(low, high, SEVERITY_BINS + 1)
    counts, _ = np.histogram(values, edges)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def _fire_rate(connection: Connection, model: str, name: str) -> FireRate:
    newest = RECORDS.last(connection, model)
    if newest is None:
        return FireRate((), 60, (), {})
    since = newest - SPAN_US
    first = RECORDS.first(connection, model, since_us=since) or newest
    needed_s = (newest - first) / 1e6 / BINS
    width_s = next((width for width in _WIDTHS_S if width >= needed_s), _WIDTHS_S[-1])
    width = width_s * 1_000_000
    stop = newest // width
    bins = range(min(first // width, stop - LEAST_BINS), stop + 1)
    records: dict[str, dict[int, int]] = {}
    flags: dict[str, dict[int, int]] = {}
    for cube, counted, found, of in (
        (RECORDS, "records", records, {}), (FLAGS, "flags", flags, flags_of(name)),
    ):  # fmt: skip
        query = cube.query(model, "slice", cube.step(width), sums=(counted,), since_us=since, of=of)
        for part, at, count in connection.execute(query):
            found.setdefault(part, {})[at] = count
    judged = {bin_: sum(part.get(bin_, 0) for part in records.values()) for bin_ in bins}
    fired = {bin_: sum(part.get(bin_, 0) for part in flags.values()) for bin_ in bins}
    shown = sorted((part for part in flags if part), key=lambda part: -sum(flags[part].values()))
    lines = {"all": (fired, judged)} | {
        part: (flags[part], records.get(part, {})) for part in sorted(shown[:MOST_SLICES])
    }
    return FireRate(
        start_us=tuple(bin_ * width for bin_ in bins),
        width_s=width_s,
        records=tuple(judged.values()),
        per_1000={
            title: tuple(
                1000 * hits.get(bin_, 0) / trials[bin_] if trials.get(bin_) else None for bin_ in bins
            )
            for title, (hits, trials) in lines.items()
        },
    )


def _severities(connection: Connection, model: str, figures: AssertionQuality) -> Histogram:
    newest = (
        select(_FLAG.c.severity, _FLAG.c.slot, _FLAG.c.revision)
        .where(_FLAG.c.model == model, _FLAG.c.assertion == figures.name)
        .order_by(_FLAG.c.seq.desc())
        .limit(RECENT_SEVERITIES)
        .subquery()
    )
    query = select(newest.c.severity).where(newest.c.slot == CHAMPION, newest.c.revision == figures.revision)
    return histogram(np.array(connection.scalars(query).all(), dtype=np.float64))


def _revisions(connection: Connection, model: str, name: str) -> tuple[RevisionView, ...]:
    counted = {
        row.revision: row
        for row in connection.execute(
            FLAGS.query(model, "revision", sums=("flags",), of=flags_of(name)).add_columns(
                func.max(FLAGS.table.c.minute_us).label("last")
            )
        )
    }
    rows = connection.execute(
        select(_ASSERTION)
        .where(_ASSERTION.c.model == model, _ASSERTION.c.name == name)
        .order_by(_ASSERTION.c.first_seen_us.desc())
        .limit(20)
    )
    return tuple(
        RevisionView(
            row.revision,
            row.active,
            row.first_seen_us,
            counted[row.revision].flags if row.revision in counted else 0,
            counted[row.revision].last if row.revision in counted else None,
        )
        for row in rows
    )


def _strikes(connection: Connection, model: str, name: str) -> tuple[StrikeView, ...]:
    newest = select(_STRIKE).order_by(_STRIKE.c.id.desc()).limit(1000).subquery()
    rows = connection.execute(
        select(newest)
        .where(newest.c.model == model, newest.c.assertion == name)
        .order_by(newest.c.id.desc())
        .limit(10)
    )
    return tuple(StrikeView(row.at_us, row.slot, row.reason, row.detail) for row in rows)


def _slots(connection: Connection, model: str, name: str) -> dict[str, float]:
    counts = counts_by_slot(connection, model)
    return {
        slot: 1000 * found.get(f"flags:{name}", 0) / found["records"]
        for slot, found in sorted(counts.items(), key=lambda item: (item[0] != CHAMPION, item[0]))
        if found.get("records")
    }


def _thinned(connection: Connection, model: str, name: str) -> int:
    flags = connection.execute(FLAGS.query(model, sums=("flags", "kept"), of=flags_of(name))).one()
    return int((flags.flags or 0) - (flags.kept or 0))
