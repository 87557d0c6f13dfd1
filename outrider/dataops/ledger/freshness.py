"""Age of records at their verdict, for the page and ``doctor``."""

from dataclasses import astuple, dataclass

from sqlalchemy import Connection, select

from outrider.dataops.state.rows import replace_rows
from outrider.dataops.state.tables import Counter, Freshness, table_of

from .backfill import CHAMPION, OWED, SLOW, gaps


@dataclass(frozen=True, slots=True)
class FreshnessView:
    """Figures of the last minute that had records.

    Attributes
    ----------
    slo_s
        Objective; None where the model has none.
    p50_s, p99_s
        Quantiles of the age at verdict in seconds.
    share
        Of the records that are admitted, in (0, 1].
    measure
        What is shed now: ``none``, ``live_tests``, ``challengers``, ``judges``, ``sampling`` or ``skip``.
    """

    model: str
    slo_s: float | None
    records: int
    p50_s: float
    p99_s: float
    share: float
    measure: str
    at_us: int


def note(connection: Connection, view: FreshnessView) -> None:
    replace_rows(connection, Freshness, [astuple(view)])


def read(connection: Connection, model: str) -> FreshnessView | None:
    table = table_of(Freshness)
    row = connection.execute(select(table).where(table.c.model == model)).first()
    return None if row is None else FreshnessView(**row._mapping)


@dataclass(frozen=True, slots=True)
class ObjectiveStanding:
    """Cost of a model's objective so far.

    Attributes
    ----------
    latest
        None before the first record.
    backfilled, shed
        Skipped records that were judged later, and records that were not judged.
    waiting
        Skipped records that are not judged yet.
    owed
        Records that the champion has not answered, and is asked about again.
    skipped_us
        When a backlog was skipped last: windows began anew then; None if never.
    """

    latest: FreshnessView | None
    backfilled: int
    shed: int
    waiting: int
    owed: int
    skipped_us: int | None


def standing(connection: Connection, model: str) -> ObjectiveStanding:
    table = table_of(Counter)
    query = select(table.c.name, table.c.value).where(
        table.c.model == model,
        table.c.slot == CHAMPION,
        table.c.name.in_(("backfilled", "shed:sampled", "shed:expired")),
    )
    counts = {row.name: row.value for row in connection.execute(query)}
    known = gaps(connection, model)
    waits = {
        reason: sum(gap.records - gap.passed for gap in known if (gap.reason, gap.done_us) == (reason, None))
        for reason in (SLOW, OWED)
    }
    return ObjectiveStanding(
        read(connection, model),
        counts.pop("backfilled", 0),
        sum(counts.values()),
        waits[SLOW],
        waits[OWED],
        known[-1].created_us if known else None,
    )


def seconds(value: float) -> str:
    """A duration in two digits, or in whole seconds.

    Examples
    --------
    >>> seconds(0.0123), seconds(2.64), seconds(412.3)
    ('0.012', '2.6', '412')
    """
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def told(known: ObjectiveStanding) -> str:
    """The standing of a model in one line.

    Examples
    --------
    >>> latest = FreshnessView("m", 1.0, 900, 0.512, 0.86, 0.5, "sampling", 0)
    >>> told(ObjectiveStanding(latest, 0, 420, 30, 7, 1)).split("; ")[1:]
    ['now: sampling, 50 % admitted', '420 shed, 30 skipped wait, 7 not answered, asked again']
    """
    if known.latest is None:
        return f"no record judged yet{f', {known.owed} not answered, asked again' if known.owed else ''}"
    latest = known.latest
    wanted = "no objective" if latest.slo_s is None else f"objective {latest.slo_s:g} s"
    parts = [f"p50 {seconds(latest.p50_s)} s, p99 {seconds(latest.p99_s)} s at verdict ({wanted})"]
    if latest.measure != "none":
        parts.append(
            f"now: {latest.measure.replace('_', ' ')}, {latest.share:.0%} admitted".replace("%", " %")
        )
    sums = {"shed": known.shed, "judged later": known.backfilled, "skipped wait": known.waiting}
    sums["not answered, asked again"] = known.owed
    if any(sums.values()):
        parts.append(", ".join(f"{count} {what}" for what, count in sums.items() if count))
    return "; ".join(parts)
