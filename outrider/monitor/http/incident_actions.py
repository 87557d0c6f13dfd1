"""Actions of a person on an incident, for API and page."""

from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.dataops.flags import incidents
from outrider.dataops.flags.incidents import IncidentRow
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
    targets: Sequence[WebhookTarget],
) -> IncidentRow:
    """Act on an incident as a person asks.

    Raises
    ------
    ProblemError
        If it is resolved already, the action is unknown, or the time to mute until has passed or is missing.
    """
    now = now_us()
    if action not in ACTIONS:
        detail = f"action: one of {', '.join(ACTIONS)} expected, got {action!r}"
        raise ProblemError(problem(422, detail, field="action"))
    if action == "mute" and (until_us is None or until_us <= now):
        raise ProblemError(problem(422, "mute needs a time to come: until or for_s", field="until"))
    with write(engine) as connection:
        found = incidents.get(connection, incident)
        if found.status == "resolved":
            detail = f"incident {incident} is resolved; if it comes again it is another one"
            raise ProblemError(problem(409, detail))
        if action == "acknowledge":
            incidents.acknowledge(connection, incident, note=note)
        elif action == "mute":
            incidents.mute(connection, incident, until_us=until_us or 0, now_us=now, note=note)
        else:
            why = note or "by a person"
            incidents.resolve(connection, incident, now_us=now, why=why, targets=targets)
        return incidents.get(connection, incident)
