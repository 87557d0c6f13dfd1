"""Looks of the rolling comparison, queued as labels come."""

import time

from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.rolling import least_rows
from outrider.dataops.labels.estimates import count_labels
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write

from .context import JobContext

LOOK_S = 2.0


class RollingLooks:
    """Looks of the rolling comparison; one is due once as many rows were labelled since the last as a
    comparison needs."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._next = 0.0

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_S
        for name, settings in self._context.settings.models.items():
            if settings.gate.rolling is not None:
                self._queue(name, least_rows(settings.gate.rolling.rows))

    def _queue(self, model: str, rows: int) -> None:
        with self._context.engine.connect() as connection:
            after = jobs.last_look(connection, model)
            count, newest = count_labels(connection, model, after=after)
            if count < rows or len(models.all_versions(connection, model)) < 2:
                return
        with write(self._context.engine) as connection:
            if not jobs.is_busy(connection, model) and jobs.last_look(connection, model) == after:
                params: dict[str, object] = {"trigger": jobs.ROLLING, "label_seq": newest}
                jobs.add(connection, model=model, kind="retrain", params=params, now_us=now_us())
