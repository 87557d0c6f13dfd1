"""Request for a version from outside, and its deadline."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_if_any, open_version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.job_progress import VERSION
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.database import now_us, write
from outrider.errors import OutriderError

from . import job_tokens

_NOT_SENT = ("enabled", "mode", "triggers", "cooldown_s", "daily_budget", "failures", "labelled_flags")
"""Settings on when to train, not how."""


def ask_for_version(
    engine: Engine,
    job: JobRow,
    settings: Mapping[str, Any],
    result: dict[str, Any],
    *,
    service: str,
    targets: Sequence[WebhookTarget],
) -> str:
    now = now_us()
    if is_late(job, now):
        raise OutriderError(no_version(job))
    until = now + int(settings["deadline_s"] * 1e6)
    result.pop("waits", None)
    with write(engine) as connection:
        replayed = open_if_any(connection, settings["replay"])
        result["replayed"] = None if replayed is None else replayed.id
        result["settings"] = {name: settings[name] for name in settings if name not in _NOT_SENT}
        jobs.note(connection, job.id, stage="train", result=result)
        jobs.wait(connection, job.id, VERSION, until_us=until, result=result)
        job_tokens.issue(connection, job=job.id, model=job.model, now_us=now, until_us=until)
        data = request_of(connection, job, result, service=service, until_us=until)
        enqueue(connection, "retrain.requested", data, targets=targets, now_us=now + 1)
    return f"{job.id} waits for a version until {job_tokens.time_of(until)}"


def request_of(
    connection: Connection, job: JobRow, result: Mapping[str, Any], *, service: str, until_us: int
) -> dict[str, Any]:
    """Body of ``retrain.requested`` without the token, which sending adds."""
    here = f"{service}/v1/retrains/{job.id}"
    champion = models.champion(connection, job.model)

    def dataset(key: str, which: str) -> dict[str, object] | None:
        reference = result.get(key)
        if not reference:
            return None
        version = open_version(connection, str(reference))
        return {**datasets.event_facts(version, service), "parquet": f"{here}/datasets/{which}"}

    return {
        "job": job.id,
        "model": job.model,
        "params": job.params,
        "dataset": dataset("dataset", "fresh"),
        "replay": dataset("replayed", "replay"),
        "champion": None
        if champion is None
        else {"version": champion.version, "digest": champion.digest, "files": f"{here}/task"},
        "budget": {"deadline": job_tokens.time_of(until_us), "settings": result["settings"]},
        "task": f"{here}/task",
        "upload": f"{service}/v1/models/{job.model}/versions",
    }


def is_late(job: JobRow, now: int) -> bool:
    waits = job.result.get("waits", {})
    return waits.get("for") == VERSION and int(waits.get("until_us", now)) <= now


def no_version(job: JobRow) -> str:
    until = job_tokens.time_of(job.result["waits"]["until_us"])
    return f"no version came until its deadline, {until} (retrain.deadline_s): nobody outside has trained one"
