"""Fleet: a line per model with its verdict, worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select
from typing_extensions import TypedDict

from outrider.assertions.times import utc_text
from outrider.dataops.alarms.incident_row import IncidentRow, for_whom
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.models import registry
from outrider.dataops.state.clock import HOUR_US
from outrider.monitor.views.series.counts import last_minute

from .sight import Sight, read_sight

Verdict: TypeAlias = Literal[
    "critical", "warning", "ticket", "known", "unjudged", "learning", "well", "waiting"
]
ORDER: tuple[Verdict, ...] = get_args(Verdict)
HOURS = 24
MOST_INCIDENTS = 1_000
LEVELS: Mapping[str, Verdict] = {"critical": "critical", "warning": "warning", "info": "ticket"}
"""Verdict of an open incident by its level, worst first."""


@dataclass(frozen=True, slots=True)
class FleetLine:
    """One model's line.

    Attributes
    ----------
    verdict
        ``critical``, ``warning`` or ``ticket`` (of level ``info``): the worst open incident; ``known``: all
        incidents are acknowledged or muted; ``unjudged``, ``learning``, ``well``: none is open, see
        :class:`Sight`; ``waiting``: no record yet.
    incident
        The one behind the verdict, the oldest of the worst; None where all is well.
    current
        Incidents that are not resolved.
    records, flagged
        Records of each of the last 24 hours, and flags for each record in them (nan without records), shape
        (24,), the hour that runs last.
    """

    model: str
    champion: str | None
    verdict: Verdict
    incident: IncidentRow | None
    current: int
    last_record_us: int | None
    records: NDArray[np.float64]
    flagged: NDArray[np.float64]
    sight: Sight | None = None
    """What could be found; None where an incident is current or no record came."""

    @property
    def next_step(self) -> str:
        """Proposed step in words; empty where there is nothing to do."""
        if self.incident is None:
            return "send records" if self.sight is None else self.sight.step
        return self.incident.next_step or "look at the incident"

    @property
    def whom(self) -> str:
        """Slices of the incident or of its causes; empty for all records."""
        return "" if self.incident is None else for_whom(self.incident)


class FleetFacts(TypedDict):
    """Line of one model.

    ``since``, ``incident``, ``about`` and ``slice`` are those of the worst incident; ``sees`` says what could
    be found where there is none.
    """

    model: str
    champion: str | None
    verdict: Verdict
    since: str | None
    incident: str | None
    about: str
    slice: str
    sentence: str
    sees: str
    next_step: str
    incidents: int
    last_record: str | None
    records: list[int]
    flags_per_record: list[float | None]


def read_fleet(
    connection: Connection, models: Sequence[str], rule: AlarmRule, *, now_us: int
) -> list[FleetLine]:
    """Lines of all models, worst first; of equal ones the oldest incident."""
    incidents: dict[str, list[IncidentRow]] = {name: [] for name in models}
    for row in list_incidents(connection, now_us=now_us, status="current", limit=MOST_INCIDENTS):
        if row.model in incidents:
            incidents[row.model].append(row)
    start_us = (now_us // HOUR_US - HOURS + 1) * HOUR_US
    lines = []
    for name in models:
        last = last_minute(connection, name, now_us=now_us)
        until_us, hour = start_us + HOURS * HOUR_US, RECORDS.step(HOUR_US)
        records = RECORDS.query(name, hour, sums=("records",), since_us=start_us, until_us=until_us)
        seen = _by_hour(connection, records, start_us)
        is_quiet = last is not None and not incidents[name]
        champion = registry.champion(connection, name)
        version = None if champion is None else champion.version
        sight = read_sight(connection, name, version, rule, now_us=now_us) if is_quiet else None
        verdict, worst = _verdict(incidents[name], sight)
        flags = FLAGS.query(
            name, FLAGS.step(HOUR_US),
            sums=("flags",), since_us=start_us, until_us=until_us, of=flags_of(None),
        )  # fmt: skip
        flagged = _by_hour(connection, flags, start_us)
        share = np.divide(flagged, seen, out=np.full(HOURS, np.nan), where=seen > 0)
        current = len(incidents[name])
        lines.append(FleetLine(name, version, verdict, worst, current, last, seen, share, sight))
    return sorted(lines, key=_order)


def fleet_json(lines: Sequence[FleetLine]) -> list[FleetFacts]:
    """Lines as JSON."""
    return [
        {
            "model": line.model,
            "champion": line.champion,
            "verdict": line.verdict,
            "since": None if line.incident is None else utc_text(line.incident.opened_us),
            "incident": None if line.incident is None else line.incident.id,
            "about": "" if line.incident is None else line.incident.assertion,
            "slice": line.whom,
            "sentence": "" if line.incident is None else line.incident.sentence,
            "sees": line.sight.sees if line.sight else "",
            "next_step": line.next_step,
            "incidents": line.current,
            "last_record": None if line.last_record_us is None else utc_text(line.last_record_us),
            "records": [int(value) for value in line.records],
            "flags_per_record": [None if np.isnan(value) else float(value) for value in line.flagged],
        }
        for line in lines
    ]


def _verdict(rows: Sequence[IncidentRow], sight: Sight | None) -> tuple[Verdict, IncidentRow | None]:
    alive = [row for row in rows if row.status == "open"]
    if alive:
        worst = min(alive, key=_rank)
        return LEVELS[worst.level], worst
    if rows:
        return "known", min(rows, key=_rank)
    return ("waiting" if sight is None else sight.verdict), None


def _rank(row: IncidentRow) -> tuple[int, int]:
    """Tickets, of level ``info``, behind what pages."""
    return ORDER.index(LEVELS[row.level]), row.opened_us


def _order(line: FleetLine) -> tuple[int, int, str]:
    since = line.incident.opened_us if line.incident is not None else 0
    return ORDER.index(line.verdict), since, line.model


def _by_hour(connection: Connection, query: Select[*tuple[Any, ...]], start_us: int) -> NDArray[np.float64]:
    """Sums by hour, shape (24,)."""
    found = np.zeros(HOURS)
    for at, number in connection.execute(query):
        found[int(at) - start_us // HOUR_US] = number
    return found
