"""Requests for labels, chosen and queued at once."""

from typing import Any

from sqlalchemy import Connection

from outrider.dataops.labels import queue


def request_labels(connection: Connection, **wanted: Any) -> list[queue.RequestedLabel]:
    """Choose records and queue them in the caller's write transaction."""
    found = queue.choose_labels(connection, **wanted)
    queue.queue_labels(connection, found)
    return found.requests
