"""Profiles of a model's columns, for pages and API."""

from dataclasses import dataclass

from sqlalchemy import Connection
from typing_extensions import TypedDict

from outrider.assertions.profiling import RANKS, ColumnSummary, Profile, summaries
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.stored_profiles import FoundProfile, ProfileRange, newest_range, read_profile

HOUR_US = 3_600_000_000


class CategoryReport(TypedDict):
    """Category with its share of the records that have the column."""

    name: str
    weight: float
    share: float
    is_new: bool


class BinsReport(TypedDict):
    """Fixed bins with their weights.

    ``edges`` are the least values of all bins but the first.
    """

    edges: list[float]
    weights: list[float]


class ColumnReport(TypedDict):
    """Figures of one column; null for fewer than ten entities."""

    name: str
    kind: str
    records: int
    weight: float
    nulls: float
    non_finite: float
    mistyped: float
    absent: float
    distinct: float | None
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None
    quantiles: dict[str, float] | None
    bins: BinsReport | None
    categories: list[CategoryReport]
    other: float


class ProfileReport(TypedDict):
    """Profile of the windows of a range."""

    records: int
    weight: float
    since_us: int | None
    until_us: int | None
    versions: list[str]
    slices: list[str]
    bins_from: str
    layout: str | None
    columns: list[ColumnReport]


@dataclass(frozen=True, slots=True)
class ColumnsView:
    """Columns of the champion in the newest hour with records."""

    columns: tuple[ColumnSummary, ...] = ()
    since_us: int = 0
    until_us: int = 0
    records: int = 0
    versions: tuple[str, ...] = ()


def read_columns(connection: Connection, model: str) -> ColumnsView:
    """Columns of the champion over the newest hour of profiles."""
    slots = slots_of(None)
    wanted = newest_range(connection, model, slots=slots, span_us=HOUR_US)
    found = read_profile(connection, model, wanted)
    if found is None:
        return ColumnsView()
    columns = summaries(found.profile)
    return ColumnsView(columns, found.since_us, found.until_us, found.profile.rows, found.versions)


def slots_of(slot: str | None) -> tuple[str, ...]:
    """Slots with the profiles of one.

    The champion's late records are profiled apart.
    """
    return (CHAMPION, BACKFILL) if slot in (None, CHAMPION) else (str(slot),)


def stored_report(connection: Connection, model: str, wanted: ProfileRange) -> ProfileReport:
    """Profile of stored windows as JSON; empty where there are none."""
    return report_of(read_profile(connection, model, wanted))


def report_of(found: FoundProfile | None) -> ProfileReport:
    """Report of a found profile; empty without one."""
    if found is None:
        return {
            "records": 0, "weight": 0.0, "since_us": None, "until_us": None, "versions": [], "slices": [],
            "bins_from": "", "layout": None, "columns": [],
        }  # fmt: skip
    return {
        "records": found.profile.rows,
        "weight": found.profile.weight,
        "since_us": found.since_us,
        "until_us": found.until_us,
        "versions": list(found.versions),
        "slices": [one for one in found.slices if one],
        "bins_from": found.source,
        "layout": found.profile.layout.digest,
        "columns": column_reports(found.profile),
    }


def column_reports(profile: Profile) -> list[ColumnReport]:
    """Figures of every column as JSON."""
    return [column_report(one) for one in summaries(profile)]


def column_report(one: ColumnSummary) -> ColumnReport:
    """Figures of a column as JSON."""
    names = [f"{rank:g}" for rank in RANKS]
    return {
        "name": one.name,
        "kind": one.kind,
        "records": one.rows,
        "weight": one.weight,
        "nulls": one.nulls,
        "non_finite": one.non_finite,
        "mistyped": one.mistyped,
        "absent": one.absent,
        "distinct": one.distinct,
        "mean": one.mean,
        "deviation": one.deviation,
        "low": one.low,
        "high": one.high,
        "quantiles": None if one.quantiles is None else dict(zip(names, one.quantiles, strict=True)),
        "bins": {"edges": list(one.edges), "weights": list(one.counts)} if one.kind == "numeric" else None,
        "categories": [
            {
                "name": each.name,
                "weight": each.weight,
                "share": each.weight / one.weight if one.weight else 0.0,
                "is_new": each.is_new,
            }
            for each in one.categories
        ],
        "other": one.other,
    }
