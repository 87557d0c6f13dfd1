"""Actions of a person on an incident, for API and page."""

from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import now_us, write

from .problem import ProblemError, problem

ACTIONS = ("acknowledge", "mute", "resolve")


def act(
    engine: Engine,
    incident: str,
    action: str,
    *,
    until_us: int | None,
    note: str,
    who: str,
    targets: Sequence[WebhookTarget],
) -> IncidentRow:
    """Act on an incident for the person named by ``who``; ProblemError where it is resolved, the
    action is unknown, or the mute's end is missing or past."""
    now = now_us()
    if action not in ACTIONS:
        detail = f"action: one of {', '.join(ACTIONS)} expected, got {action!r}"
        raise ProblemError(problem(422, detail, field="action"))
    if action == "mute" and (until_us is None or until_us <= now):
        raise ProblemError(problem(422, "mute needs a time to come: until or for_s", field="until"))
    with write(engine) as connection:
        found = stored_incidents.get(connection, incident)
        if found.status == "resolved":
            detail = f"incident {incident} is resolved; a recurrence opens another incident"
            raise ProblemError(problem(409, detail))
        if action == "acknowledge":
            stored_incidents.acknowledge(connection, incident, now_us=now, note=note, who=who)
        elif action == "mute":
            stored_incidents.mute(
                connection, incident, until_us=until_us or 0, now_us=now, note=note, who=who
            )
        else:
            why = note or "by a person"
            stored_incidents.resolve(connection, incident, now_us=now, why=why, targets=targets, who=who)
        return stored_incidents.read_incident(connection, incident, now_us=now)
