"""Rollback that a person asks for, for API and page."""

from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.dataops.improvement import watches
from outrider.dataops.improvement.promotion import ASKED_FOR
from outrider.dataops.models import registry
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import now_us, write


def roll_back(
    engine: Engine, model: str, *, to: str | None, reason: str, by: str, targets: Sequence[WebhookTarget]
) -> registry.Model:
    """Make a former champion, by default the replaced one, champion again, and end its watches.

    NotFound or NotPromotable otherwise.
    """
    with write(engine) as connection:
        now, why = now_us(), reason.strip() or ASKED_FOR
        found = registry.rollback(connection, model, now_us=now, reason=why, by=by, to=to, targets=targets)
        for watch in watches.running(connection, model):
            watches.close(connection, watch, champion=found.version, now_us=now)
        return found
