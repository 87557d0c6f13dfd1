from sqlalchemy import Connection

from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import FORMER, IN_SERVICE, Model
from outrider.errors import GateRefused

from . import jobs, watches


class NotRetirable(GateRefused): ...


def retire(connection: Connection, model: str, version: str, *, why: str, now_us: int) -> Model:
    """Take a version out of the shadow; jobs that wait for it go on, and end."""
    found = models.get(connection, model, version)
    if found.status == "champion":
        raise NotRetirable(
            f"{found.id} is champion, which cannot be retired: promote another version, or roll back"
        )
    if found.status not in IN_SERVICE:
        raise NotRetirable(f"{found.id} is {found.status} ({found.note}): it is not in the shadow")
    if found.status == FORMER:
        champion = models.champion(connection, model)
        for watch in watches.running(connection, model):
            if watch.former == version and champion is not None:
                watches.close(connection, watch, champion=champion.version, now_us=now_us)
    models.set_status(connection, model, version, "retired", now_us=now_us, note=why)
    for job in jobs.waiting(connection):
        if job.model == model and version == job.candidate:
            jobs.resume(connection, job.id)
    return models.get(connection, model, version)
