"""Sight of a model: the smallest faults that its judges could find."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from outrider.assertions.detection import smallest_rise
from outrider.assertions.detection.loss_rises import dispersion_of_days
from outrider.dataops.alarms.minute_counts import ALL
from outrider.dataops.alarms.rate_alarms import AlarmRule, likely_shares
from outrider.dataops.alarms.version_losses import BlockLosses, judged_version, read_losses
from outrider.dataops.flags.live_rates import current_rates
from outrider.dataops.flags.registered_assertions import suspensions
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.state.tables import AssertionRow, table_of

SightVerdict: TypeAlias = Literal["unjudged", "learning", "well"]
Floats: TypeAlias = NDArray[np.float64]
MOST_SHARE = 0.5
"""Share of the entities of a day beyond which the flags of an assertion tell nothing of a record."""
TIMES = 5.0
"""Odds, times the usual ones, that are to be found within a day where a model is well."""
_LEAST_SHARE = 0.02
"""Share that a rarer one counts as: five times nothing is nothing."""
_ASSERTION = table_of(AssertionRow)


@dataclass(frozen=True, slots=True)
class Sight:
    """Verdict on a model without incidents.

    Attributes
    ----------
    verdict
        ``unjudged``: nothing looks at it; ``learning``: what looks could not find a fault of ``TIMES`` the
        usual odds within a day; ``well``: it could.
    sees
        Smallest fault that a day like the last one shows, in words.
    step
        Proposed step; empty for ``well``.
    """

    verdict: SightVerdict
    sees: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class _View:
    """Smallest share that a judge could find; nan for none."""

    usual: float
    found: float
    text: str

    @property
    def is_sharp(self) -> bool:
        usual = min(max(self.usual, _LEAST_SHARE), MOST_SHARE)
        odds = TIMES * usual / (1.0 - usual)
        return self.found <= odds / (1.0 + odds)


def read_sight(
    connection: Connection, model: str, champion: str | None, rule: AlarmRule, *, now_us: int
) -> Sight:
    """Verdict on a model whose incidents are none."""
    rows = _judges(connection, model)
    resting = {one.assertion for one in suspensions(connection, model) if one.until_us > now_us}
    awake = [row for row in rows if row.name not in resting]
    labels = _labels_view(connection, model, champion, rule, now_us)
    if not awake and labels is None:
        if rows:
            return Sight("unjudged", step=f"resume {rows[0].name}: it is suspended")
        return Sight("unjudged", step="name assertions or live tests that judge it")
    seen, flagged = _entities(connection, model, now_us)
    warnings = [row.name for row in awake if row.kind == "assertion" and row.level == "warning"]
    loudest = max((row.name for row in awake), key=lambda name: (flagged.get(name, 0.0), name), default="")
    share = flagged.get(loudest, 0.0) / seen if seen else 0.0
    if share > MOST_SHARE:
        step = f"look at {loudest}: it fires on {min(share, 1.0):.0%} of the entities of a day"
        return Sight("unjudged", step=step)
    judged = {row.name for row in awake if row.judged_us}
    critical = [row for row in awake if (row.kind, row.level) == ("assertion", "critical") and row.judged_us]
    views = [
        *_flag_views([name for name in warnings if name in judged], flagged, seen, len(warnings), rule),
        *_live_views(connection, model, champion, awake, now_us),
        *_critical_views([row.name for row in critical if seen]),
        *([] if labels is None else [labels]),
    ]
    if not views:
        return Sight("learning", step=f"send records for {awake[0].name} to judge: it has not judged yet")
    best = min(views, key=lambda view: (not view.is_sharp, np.nan_to_num(view.found, nan=2.0)))
    if best.is_sharp:
        return Sight("well", best.text)
    what = "label more records" if not awake else f"send more records: {seen:,.0f} entities came in a day"
    return Sight("learning", best.text, what)


def _judges(connection: Connection, model: str) -> list[Row[Any]]:
    """Active assertions and live tests whose flags may open an incident."""
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.level != "info"
    columns = (_ASSERTION.c[name] for name in ("name", "revision", "kind", "level", "judged_us"))
    return list(connection.execute(select(*columns).where(*own).order_by(_ASSERTION.c.name)))


def _entities(connection: Connection, model: str, now_us: int) -> tuple[float, dict[str, float]]:
    """Entities of each minute of the last day, and those with flags by assertion."""
    since_us, until_us = now_us - DAY_US + 1, now_us + 1
    records = RECORDS.query(model, sums=("entities",), since_us=since_us, until_us=until_us)
    flags = FLAGS.query(
        model, "assertion", sums=("entities",), since_us=since_us, until_us=until_us, of=flags_of(None)
    )
    flagged = {name: float(count) for name, count in connection.execute(flags)}
    return float(connection.scalar(records) or 0), flagged


def _flag_views(
    names: Sequence[str], flagged: dict[str, float], seen: float, of: int, rule: AlarmRule
) -> Iterator[_View]:
    hits = np.minimum([flagged.get(name, 0.0) for name in names], seen)
    every = np.full(len(names), seen)
    alpha = np.full(len(names), 0.5 * rule.alpha / max(of, 1))  # half is for slices
    for name, few, share in zip(names, hits, likely_shares(hits, every, every, alpha, rule), strict=True):
        yield _rise(f"{name} on", float(few / seen) if seen else 0.0, float(share), "entities")


def _live_views(
    connection: Connection, model: str, champion: str | None, awake: Sequence[Row[Any]], now_us: int
) -> Iterator[_View]:
    """Live tests that the version in production was asked within a day: at most so many answers fail."""
    tests = {row.name: row.revision for row in awake if row.kind == "live_test"}
    for view in current_rates(connection, model, tests, champion):
        text = f"{view.test}: at most {view.high:.1%} of answers fail, by {view.asked:,} of them"
        is_known = view.asked and view.updated_us > now_us - DAY_US
        if not is_known:
            text = f"{view.test} was asked nothing within a day"
        yield _View(max(view.rate, view.tolerance), view.high if is_known else np.nan, text)


def _critical_views(names: Sequence[str]) -> list[_View]:
    return [_View(0.0, 0.0, f"{name}: its first flag opens an incident") for name in names[:1]]


def _rise(what: str, usual: float, found: float, unit: str) -> _View:
    text = f"even {what} all {unit} would not be proven within a day"
    if not np.isnan(found):
        text = f"{what} {found:.1%} of {unit} would be found within a day; {usual:.1%} is usual"
    return _View(usual, found, text)


def _labels_view(
    connection: Connection, model: str, champion: str | None, rule: AlarmRule, now_us: int
) -> _View | None:
    """Smallest loss that labels of the version in production show; None without those of a day."""
    version = champion or judged_version(connection, model, None)
    losses = None if version is None else read_losses(connection, model, version)
    if losses is None or losses.ended_us.max() <= now_us - DAY_US:
        return None
    return _loss_view(losses, rule, now_us)


def _loss_view(losses: BlockLosses, rule: AlarmRule, now_us: int) -> _View:
    lost, seen = losses.of(ALL).effective
    newest = np.flatnonzero(losses.ended_us > now_us - DAY_US)
    factor = dispersion_of_days(lost, seen, losses.day, newest[:1])
    day, hits, every = float(seen[newest].sum()), float(lost.sum()), float(seen.sum())
    onset = len(losses.number) + 1.0
    needed = np.array([np.log(2.0 / rule.alpha) + np.log(2.2 * onset * np.log(onset + 1.0) ** 2)])
    share = smallest_rise(hits / factor, every / factor, day / factor, needed=needed)
    return _rise("errors in", hits / every if every else 0.0, float(share[0]), "labelled records")
