"""Failure rates by live test and model version, as confidence sequences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from outrider.behavioral_tests.statistics import RateSequence
from outrider.dataops.ledger.commit import Effects, LiveVerdicts
from outrider.dataops.state.tables import LiveRate, table_of

_RATE = table_of(LiveRate)
TOGETHER_US = 3_600_000_000
"""Versions of a production-only model asked within this time count together."""


@dataclass(frozen=True, slots=True)
class LiveRateView:
    """Failure rate of a live test's revision for one model version.

    ``rate`` is weighted by 1 / probability of having been captured and asked; ``low`` and ``high`` hold at
    all times together. ``alarm_us`` is the receive time of the block at which ``low`` first passed
    ``tolerance``.
    """

    model: str
    test: str
    revision: str
    version: str
    asked: int
    failed: int
    rate: float
    low: float
    high: float
    tolerance: float
    alarm_us: int | None
    updated_us: int


@dataclass(frozen=True, slots=True)
class Alarm:
    view: LiveRateView
    level: str
    record: str
    failures: int


def follow(connection: Connection, effects: Effects) -> tuple[list[LiveRateView], list[Alarm]]:
    """Add a unit's verdicts in the caller's transaction; returns views and new alarms.

    Blocks are added one by one, so that an alarm does not depend on how the worker joined them; each
    revision and version alarms once.
    """
    views, alarms = [], []
    for verdicts in effects.live_verdicts:
        key = (effects.model, verdicts.test, verdicts.revision, verdicts.version)
        row = connection.execute(select(_RATE).where(*_is(key))).first()
        sequence = RateSequence.from_dict({} if row is None else row.state)
        alarm_us = None if row is None else row.alarm_us
        alarm: tuple[LiveRateView, str] | None = None
        at_us = 0
        for at_us, block, first in _blocks(effects, verdicts):
            sequence += block
            # without a new failure the evidence only falls
            is_open = alarm_us is None and first is not None
            if is_open and sequence.exceeds(verdicts.tolerance, verdicts.confidence):
                alarm_us = at_us
                alarm = _of(key, verdicts, sequence, alarm_us, at_us), str(first)
        view = _of(key, verdicts, sequence, alarm_us, at_us)
        _write(connection, view, sequence, is_new=row is None)
        views.append(view)
        if alarm is not None:
            alarms.append(Alarm(alarm[0], verdicts.level, alarm[1], sequence.failed))
    return views, alarms


def list_rates(connection: Connection, model: str, *, test: str | None = None) -> list[LiveRateView]:
    query = select(_RATE).where(_RATE.c.model == model).order_by(_RATE.c.updated_us.desc(), _RATE.c.test)
    if test is not None:
        query = query.where(_RATE.c.test == test)
    return [_view(row) for row in connection.execute(query)]


def current_rates(
    connection: Connection, model: str, revisions: Mapping[str, str], version: str | None
) -> list[LiveRateView]:
    """Rate of each test's current revision for a version; None takes the version asked last, or one
    beside it that is proven to fail (:func:`proof`)."""
    found: dict[str, LiveRateView] = {}
    for view in list_rates(connection, model):
        if revisions.get(view.test) == view.revision and version in (None, view.version):
            found.setdefault(view.test, view)
    if version is None:
        for test, view in found.items():
            found[test] = proof(connection, model, test, view.revision, None) or view
    return [found[test] for test in sorted(found)]


def proof(
    connection: Connection, model: str, test: str, revision: str, version: str | None
) -> LiveRateView | None:
    """Proof of one revision's failure beyond tolerance, or None.

    With ``version`` None all versions asked within an hour of the newest answer count.
    """
    query = select(_RATE).where(_RATE.c.model == model, _RATE.c.test == test, _RATE.c.revision == revision)
    if version is not None:
        query = query.where(_RATE.c.version == version)
    views = [_view(row) for row in connection.execute(query.order_by(_RATE.c.updated_us.desc()))]
    recent = [view for view in views if view.updated_us >= views[0].updated_us - TOGETHER_US]
    return next((view for view in recent if view.alarm_us is not None), None)


def _blocks(effects: Effects, verdicts: LiveVerdicts) -> Iterator[tuple[int, RateSequence, str | None]]:
    for seq in np.unique(verdicts.seq).tolist():
        here = verdicts.seq == seq
        failed = verdicts.failed[here]
        keys = verdicts.keys[here][failed]
        yield (
            effects.received.get(seq, effects.received_us),
            RateSequence.of(failed, verdicts.weight[here]),
            str(keys[0]) if len(keys) else None,
        )


def _of(
    key: tuple[str, str, str, str],
    verdicts: LiveVerdicts,
    sequence: RateSequence,
    alarm_us: int | None,
    at_us: int,
) -> LiveRateView:
    low, high = sequence.interval(verdicts.confidence)
    return LiveRateView(
        *key,
        asked=sequence.asked,
        failed=sequence.failed,
        rate=sequence.rate,
        low=low,
        high=high,
        tolerance=verdicts.tolerance,
        alarm_us=alarm_us,
        updated_us=at_us,
    )


def _write(connection: Connection, view: LiveRateView, sequence: RateSequence, *, is_new: bool) -> None:
    key = (view.model, view.test, view.revision, view.version)
    values: dict[str, Any] = {
        name: getattr(view, name)
        for name in ("asked", "failed", "rate", "low", "high", "tolerance", "alarm_us", "updated_us")
    }
    values["state"] = sequence.to_dict()
    if is_new:
        names = ("model", "test", "revision", "version")
        connection.execute(_RATE.insert().values(values | dict(zip(names, key, strict=True))))
    else:
        connection.execute(_RATE.update().where(*_is(key)).values(values))


def _is(key: tuple[str, str, str, str]) -> list[Any]:
    columns = (_RATE.c.model, _RATE.c.test, _RATE.c.revision, _RATE.c.version)
    return [column == value for column, value in zip(columns, key, strict=True)]


def _view(row: Any) -> LiveRateView:
    return LiveRateView(**{name: value for name, value in row._mapping.items() if name != "state"})
