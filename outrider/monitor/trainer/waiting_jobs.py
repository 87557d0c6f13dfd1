"""Jobs that wait for something from outside."""

import time

from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.errors import OutriderError
from outrider.monitor.settings.gate_sections import FrozenPolicy

from .context import JobContext
from .evidence import shadow_evidence

LIVE_RECORDS = "live records"
LOOK_SHARE = 0.1
"""Largest share of the waited time spent looking."""


class JobWaits(OutriderError):  # noqa: N818 - reads as the state it is
    ...


class WaitingJobs:
    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._next: dict[str, float] = {}

    def look(self) -> None:
        with self._context.engine.connect() as connection:
            found = jobs.waiting(connection)
        self._next = {job.id: self._next.get(job.id, 0.0) for job in found}
        for job in found:
            if now_us() >= int(job.result["waits"]["until_us"]) or self._is_there(job):
                with write(self._context.engine) as connection:
                    jobs.resume(connection, job.id)

    def _is_there(self, job: JobRow) -> bool:
        began = time.monotonic()
        if job.result["waits"]["for"] != LIVE_RECORDS or began < self._next[job.id]:
            return False
        policy = FrozenPolicy.model_validate(job.result["policy"])
        is_there = has_live_records(self._context, job.model, str(job.result["candidate"]), policy)
        ended = time.monotonic()
        self._next[job.id] = ended + (ended - began) / LOOK_SHARE
        return is_there


def has_live_records(context: JobContext, model: str, candidate: str, policy: FrozenPolicy) -> bool:
    """True where live records are enough, or the wait ends."""
    with context.engine.connect() as connection:
        champion = models.champion(connection, model)
        if models.get(connection, model, candidate).status != "challenger":
            return True  # somebody has decided meanwhile: the gate says so
        if champion is None:
            return False
        seen = shadow_evidence(connection, model, champion.version, candidate)
    return seen.rows >= policy.shadow_rows
