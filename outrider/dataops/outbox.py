"""Outbox of webhook events, written in the transaction that causes each.

A row is one event for one address. Its id is the ``webhook-id`` of every attempt, so a receiver that keeps
the ids it has seen gets each event exactly once although delivery is at least once.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, case, func, insert, select, update

from .state.tables import Outbox, table_of

EVENTS = (
    "dataset.committed",
    "retrain.requested",
    "retrain.suggested",
    "retrain.failed",
    "gate.refused",
    "gate.undecided",
    "gate.waiting",
    "model.promoted",
    "model.rolled_back",
    "rollback.proposed",
    "incident.opened",
    "incident.resolved",
    "shadow.ended",
)
BACKOFF_S = (1, 5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000)
"""Wait after the first, second … failed attempt; the last one repeats until the address answers."""
_OUTBOX = table_of(Outbox)


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Address of a webhook, with its events."""

    url: str
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class Message:
    """Message to deliver."""

    id: str
    event: str
    url: str
    payload: str
    attempts: int


def enqueue(
    connection: Connection,
    event: str,
    data: Mapping[str, object],
    *,
    targets: Sequence[WebhookTarget],
    now_us: int,
) -> list[str]:
    """Enqueue an event for each subscribing target, in the caller's transaction.

    Returns
    -------
    list of str
        Ids of the messages; empty when nobody wants the event.
    """
    if event not in EVENTS:
        raise ValueError(f"event must be one of {', '.join(EVENTS)}, got {event!r}")
    timestamp = datetime.fromtimestamp(now_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
    payload = json.dumps({"type": event, "timestamp": timestamp, "data": dict(data)}, sort_keys=True)
    rows = [
        {
            "id": f"msg_{uuid.uuid4().hex}",
            "event": event,
            "url": target.url,
            "payload": payload,
            "attempts": 0,
            "created_us": now_us,
            "next_attempt_us": now_us,
            "last_error": "",
        }
        for target in targets
        if event in target.events
    ]
    if rows:
        connection.execute(insert(_OUTBOX), rows)
    return [str(row["id"]) for row in rows]


def backoff_s(attempts: int) -> int:
    """Seconds to wait after that many failed attempts, >= 1 attempt."""
    return BACKOFF_S[min(attempts, len(BACKOFF_S)) - 1]


def claim(connection: Connection, url: str, *, now_us: int) -> Message | None:
    """Claim an address's oldest due message, as attempted.

    The next attempt is already scheduled when the request goes out: a crash in between delivers twice,
    never not at all.
    """
    row = connection.execute(
        select(_OUTBOX)
        .where(_OUTBOX.c.delivered_us.is_(None), _OUTBOX.c.next_attempt_us <= now_us, _OUTBOX.c.url == url)
        .order_by(_OUTBOX.c.next_attempt_us, _OUTBOX.c.id)
        .limit(1)
    ).first()
    if row is None:
        return None
    attempts = row.attempts + 1
    connection.execute(
        update(_OUTBOX)
        .where(_OUTBOX.c.id == row.id)
        .values(attempts=attempts, next_attempt_us=now_us + backoff_s(attempts) * 1_000_000)
    )
    return Message(row.id, row.event, row.url, row.payload, attempts)


def delivered(connection: Connection, message_id: str, *, now_us: int) -> None:
    """Note that the address took the message."""
    connection.execute(
        update(_OUTBOX).where(_OUTBOX.c.id == message_id).values(delivered_us=now_us, last_error="")
    )


def failed(connection: Connection, message_id: str, error: str) -> None:
    """Note why an attempt failed; the next one is already scheduled."""
    connection.execute(update(_OUTBOX).where(_OUTBOX.c.id == message_id).values(last_error=error[:500]))


def due_urls(connection: Connection, *, now_us: int) -> list[str]:
    """Addresses with due messages, the longest wait first."""
    due = (_OUTBOX.c.delivered_us.is_(None), _OUTBOX.c.next_attempt_us <= now_us)
    found = select(_OUTBOX.c.url).where(*due).group_by(_OUTBOX.c.url)
    return list(connection.scalars(found.order_by(func.min(_OUTBOX.c.next_attempt_us))))


def count_events(connection: Connection) -> tuple[int, int, int]:
    """Number of events, of deliveries, and of attempts beyond the first."""
    again = case((_OUTBOX.c.attempts > 1, _OUTBOX.c.attempts - 1), else_=0)
    row = connection.execute(
        select(func.count(), func.count(_OUTBOX.c.delivered_us), func.coalesce(func.sum(again), 0))
    ).one()
    return row[0], row[1], row[2]
