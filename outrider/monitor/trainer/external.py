"""Jobs that somebody outside trains: asked for, waited for, and given up at their deadline."""

from collections.abc import Mapping
from typing import Any, NoReturn

from sqlalchemy import Connection

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_if_any, open_version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import enqueue
from outrider.dataops.state.database import now_us, write
from outrider.dataops.uploads import job_tokens
from outrider.errors import OutriderError
from outrider.monitor.settings.model_sections import RetrainSettings

from .context import JobContext
from .waiting_jobs import Waiting

VERSION = "version"
"""Thing that such a job waits for."""
_UNSENT = ("enabled", "mode", "triggers", "cooldown_s", "daily_budget", "failures", "labelled_flags")
"""Settings that are about when to train, not how."""


def wait_for_version(
    context: JobContext, job: JobRow, options: RetrainSettings, result: dict[str, Any]
) -> NoReturn:
    """Ask for a version and let the job wait for it, in one transaction.

    Raises
    ------
    Waiting
        Once it waits.
    OutriderError
        If it has waited until its deadline.
    """
    now = now_us()
    if is_late(job, now):
        raise OutriderError(no_version(job))
    result.pop("waits", None)
    until = now + int(options.deadline_s * 1e6)
    with write(context.engine) as connection:
        replayed = open_if_any(connection, options.replay)
        result["replayed"] = None if replayed is None else replayed.id
        result["settings"] = options.model_dump(mode="json", exclude=set(_UNSENT))
        jobs.note(connection, job.id, stage="train", result=result)
        jobs.wait(connection, job.id, VERSION, until_us=until, result=result)
        job_tokens.issue(connection, job=job.id, model=job.model, now_us=now, until_us=until)
        data = request_of(connection, context, job, result, until_us=until)
        enqueue(connection, "retrain.requested", data, targets=context.targets, now_us=now + 1)
    raise Waiting(f"{job.id} waits for a version until {job_tokens.time_of(until)}")


def request_of(
    connection: Connection, context: JobContext, job: JobRow, result: Mapping[str, Any], *, until_us: int
) -> dict[str, Any]:
    """Body of ``retrain.requested``, but for the token, which is added when it is sent."""
    here = f"{context.service}/v1/retrains/{job.id}"
    champion = models.champion(connection, job.model)

    def told(key: str, which: str) -> dict[str, object] | None:
        reference = result.get(key)
        if not reference:
            return None
        version = open_version(connection, str(reference))
        return {**datasets.told(version, context.service), "parquet": f"{here}/datasets/{which}"}

    return {
        "job": job.id,
        "model": job.model,
        "params": job.params,
        "dataset": told("dataset", "fresh"),
        "replay": told("replayed", "replay"),
        "champion": None
        if champion is None
        else {"version": champion.version, "digest": champion.digest, "files": f"{here}/task"},
        "budget": {"deadline": job_tokens.time_of(until_us), "settings": result["settings"]},
        "task": f"{here}/task",
        "upload": f"{context.service}/v1/models/{job.model}/versions",
    }


def is_late(job: JobRow, now: int) -> bool:
    """True for a job that waited for a version until its deadline."""
    waits = job.result.get("waits", {})
    return waits.get("for") == VERSION and int(waits.get("until_us", now)) <= now


def no_version(job: JobRow) -> str:
    """Sentence on a job without its version."""
    until = job_tokens.time_of(job.result["waits"]["until_us"])
    return f"no version came until its deadline, {until} (retrain.deadline_s): nobody outside has trained one"
