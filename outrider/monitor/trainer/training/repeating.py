"""Repetition of a training from its record, the digests compared."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from outrider.dataops.datasets.references import open_version
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.training.run_record import changes, run_record
from outrider.dataops.training.trainer import Report, TrainingTask
from outrider.errors import NotFound
from outrider.monitor.trainer.context import JobContext

from .stage import LearnedVersions, forget, train, training_task


def repeat(context: JobContext, job: JobRow, report: Report) -> None:
    """Repeat the training of job ``params["repeat"]`` and compare digests; registers nothing, asks no gate.

    NotFound where its data are gone.
    """
    with context.engine.connect() as connection:
        of = jobs.get(connection, str(job.params["repeat"]))
        run = recorded_run(of)
        task = _task(context, connection, job, run)
    changed = changes(run, run_record(task))
    made = train(task, report, is_leak_refused=False)
    is_equal = made.run["digest"] == run["digest"]
    result: dict[str, Any] = {
        "repeat_of": of.id,
        "digest": made.run["digest"],
        "equal": is_equal,
        "changed": changed,
        "reasons": [] if is_equal else _reasons(run, made.run["digest"], changed),
    }
    with write(context.engine) as connection:
        seconds = {"seconds": {"train": made.run["figures"]["seconds"]}}
        jobs.finish(connection, job.id, "done" if is_equal else "refused", result | seconds, now_us=now_us())
    forget(context, job.id)


def recorded_run(job: JobRow) -> dict[str, Any]:
    """Record of a job's training; NotFound where it did not finish."""
    run: dict[str, Any] | None = job.result.get("run")
    if not run or "digest" not in run:
        raise NotFound(f"{job.id} has no record of a training that ended; name one that trained a version")
    return run


def _task(context: JobContext, connection: Connection, job: JobRow, run: Mapping[str, Any]) -> TrainingTask:
    champion = None
    if run["champion"]:
        model, _, version = str(run["champion"]).rpartition("@")
        champion = models.get(connection, model, version)
    of_rows = {name: _version(connection, told) for name, told in run["datasets"].items()}
    learned = LearnedVersions(of_rows["fresh"], of_rows["replay"], champion)
    task = training_task(
        context,
        connection,
        learned,
        job=job.id,
        source=Source.from_json(run["source"]),
        settings=context.model(job.model),
        model=job.model,
        options=dict(run["settings"]),
    )
    return dataclasses.replace(task, judging=(), target=str(run["target"]))


def _version(connection: Connection, told: Mapping[str, Any] | None) -> Version | None:
    return None if told is None else open_version(connection, str(told["id"]).partition(" ")[0])


def _reasons(run: Mapping[str, Any], digest: str, changed: list[str]) -> list[str]:
    found = [f"the weights are others: {digest[:12]}, {str(run['digest'])[:12]} before"]
    if changed:
        return [*found, f"changed since: {'; '.join(changed)}"]
    on_cpu = str(run["device"]) == "cpu"
    return [*found, "nothing recorded has changed" if on_cpu else f"a {run['device']} need not repeat itself"]
