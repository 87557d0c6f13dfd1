"""Jobs run in the process of a test, one after another, as the trainer's processes run them."""

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.state.database import now_us, write
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.job_process import run_job


def run_next(context: JobContext) -> JobRow | None:
    """Run the next job, if any, and return its state; one that is to be tried again stays running."""
    with context.engine.connect() as connection:
        if jobs.due(connection) is None:
            return None
    with write(context.engine) as connection:
        job = jobs.claim(connection, now_us=now_us(), targets=context.targets)
    if job is None:
        return None
    try:
        reason = run_job(context, job)
    except (OperationalError, StaleParent):
        reason = None
    with write(context.engine) as connection:
        if reason is not None:
            jobs.fail(connection, job.id, reason, targets=context.targets, now_us=now_us())
        return jobs.get(connection, job.id)


def run_until(context: JobContext) -> None:
    """Run jobs until the context is asked to stop."""
    while not context.stop.is_set():
        if run_next(context) is None:
            context.stop.wait(context.poll_s)


def begun(connection: Connection, job: str) -> str:
    """Let a job run, whichever is due, without a process."""
    connection.execute(text("UPDATE job SET status = 'running' WHERE id = :job"), {"job": job})
    return job
