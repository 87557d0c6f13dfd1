"""Process of one job.

``python -m outrider.monitor.trainer.job_process --config PATH --parent PID --report-fd N``. Started by the
trainer, which writes the job's id to its stdin, at once or later. What the job makes is committed here, stage
by stage; why it fails is reported, and closed by the trainer.
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.label_account import LabelAccount
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobClosed, JobRow
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.errors import ConfigError, JournalUnreadable, OutriderError
from outrider.monitor.http.common import targets_of
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.logs import set_up
from outrider.monitor.process.stores import open_stores
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.sources import why_trained_elsewhere
from outrider.parts import install_hint
from outrider.user_code import innermost_line

from .context import JobContext, Stopping
from .waiting_jobs import JobWaits

log = logging.getLogger(__name__)
LAG_S = 5.0
_LOOK_S = 0.05
AGAIN = 75
IMPORTED = ("torch", "great_expectations", "outrider.monitor.trainer.retraining")
REASON_LETTERS = 8000
"""Limit of a reason: more than a pipe holds would block the process."""
EATEN_FIRST = 500
"""Of 1000: the kernel ends a job before the service where memory is short."""


def run_job(context: JobContext, job: JobRow) -> str | None:
    """Run a claimed job; returns the reason of a failure.

    An interrupted job is queued again; OperationalError and StaleParent mean a retry.
    """
    try:
        _run(context, _on_newest(context, job))
    except Stopping:
        with write(context.engine) as connection:
            jobs.requeue(connection, job.id)
        log.info("%s goes back into the queue", job.id)
    except (JobClosed, JobWaits) as error:
        log.info("%s", error)
    except (OperationalError, StaleParent):
        raise
    except (Exception, SystemExit) as error:
        told = isinstance(error, OutriderError)
        is_refusal = told and error.__cause__ is None  # its words say all; others need their lines
        log.error("%s failed: %s", job.id, error, exc_info=not is_refusal)
        reason = str(error) if told else f"{type(error).__name__}: {error}{install_hint(error)}"
        return reason if told else f"{reason}{innermost_line(error, context.settings.base)}"
    return None


def _on_newest(context: JobContext, job: JobRow) -> JobRow:
    """Wait, within ``LAG_S``, until the worker has judged what was sent before the job."""
    is_of_labels = not {"object", "candidate", "repeat"} & job.params.keys()
    if not is_of_labels or job.params.get("trigger") == jobs.ROLLING or "dataset" in job.result:
        return job
    until = time.monotonic() + LAG_S
    while True:
        with context.engine.connect() as connection:
            judged = jobs.champion_cursor(connection, job.model)
        if judged is None or not context.has_unread(job.model, judged) or time.monotonic() >= until:
            break
        context.check_stop()
        time.sleep(_LOOK_S)
    with write(context.engine) as connection:
        return jobs.take_newest(connection, job.id)


def _run(context: JobContext, job: JobRow) -> None:
    """Retrain, or only make a dataset version, also for a model trained elsewhere."""
    # What is there already is only put before the gate; what was trained here can be trained again.
    is_known = bool({"candidate", "repeat"} & job.params.keys()) or job.params.get("trigger") == jobs.ROLLING
    is_external = context.model(job.model).retrain.trainer == "external"
    if job.kind == "retrain" and (is_known or is_external or _is_trained_here(context, job.model)):
        from .retraining import Retraining, set_threads

        set_threads(context.settings.worker.threads)
        Retraining(context, job).run()
        return
    from .dataset_jobs import commit_flagged, import_table

    started = time.perf_counter()

    def finish(connection: Connection, version: Version | None, account: LabelAccount | None = None) -> None:
        result: dict[str, object] = {} if account is None else {"labels": account}
        result |= {"seconds": {"dataset": round(time.perf_counter() - started, 3)}}
        if version is not None:
            result |= {"dataset": version.dataset, "number": version.number}
            result |= {"digest": version.digest, "rows": version.rows}
        jobs.request_training(
            connection, job, version, service=context.service, targets=context.targets, now_us=now_us()
        )
        jobs.finish(connection, job.id, "done", result, now_us=now_us())

    if "object" not in job.params:
        commit_flagged(context, job, finish)
        return
    version = import_table(context, job)
    with write(context.engine) as connection:
        finish(connection, version)


def _is_trained_here(context: JobContext, model: str) -> bool:
    """False where a challenger of an untrainable kind was promoted."""
    with context.engine.connect() as connection:
        champion = models.champion(connection, model)
    if champion is None:
        return context.model(model).is_trained_here
    why = why_trained_elsewhere(Source.from_json(champion.source), context.model(model).retrain)
    if why and context.model(model).is_trained_here:
        log.warning("%s is not fine-tuned, only its dataset is made: %s", champion.id, why)
    return not why


def open_context(settings: Settings, stop: threading.Event) -> JobContext:
    """Open the stores; waits up to 30 seconds for intake to make the journal."""
    journal, engine = open_stores(settings, stop)
    objects = LocalObjects(settings.data_folder / "objects")

    newest = journal.last_seq()  # what comes later is the next job's: a stream never ends

    def holds(model: str, after: int, until: int) -> bool:
        return any(block.seq <= until for block in journal.read(after, limit=1, model=model))

    return JobContext(
        settings, engine, objects, journal, targets_of(settings), stop,
        has_unread=lambda model, seq: holds(model, seq, newest), newest=journal.last_seq, holds=holds,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="outrider.monitor.trainer.job_process", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    die_with_parent(parent=options.parent)
    set_up("trainer")
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    _be_eaten_first()
    name = _told_job()
    if not name:
        return 0
    try:
        settings = load_settings(options.config)
        if str(settings.base) not in sys.path:  # what the project's files import
            sys.path.append(str(settings.base))
        set_up("trainer", settings.server.log_format)
        context = open_context(settings, stop)
        with context.engine.connect() as connection:
            job = jobs.get(connection, name)
        failed = run_job(context, job)
    except (OperationalError, StaleParent) as error:
        log.warning("%s is tried again: %s", name, error)
        return AGAIN
    except (ConfigError, JournalUnreadable) as error:
        failed = str(error)
    except Exception as error:
        log.exception("%s cannot be run", name)
        failed = f"{type(error).__name__}: {error}"
    if failed is not None:
        with os.fdopen(options.report_fd, "w", encoding="utf-8") as report:
            json.dump({"failed": failed[:REASON_LETTERS]}, report)
    return 0


def _told_job() -> str:
    """Id of the job, empty where none comes; meanwhile imports what jobs need."""
    if not select.select([sys.stdin], [], [], 0.0)[0]:
        for module in IMPORTED:
            with contextlib.suppress(ModuleNotFoundError):  # reported by the job that needs it
                importlib.import_module(module)
    return sys.stdin.readline().strip()


def _be_eaten_first() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(f"{EATEN_FIRST}\n", encoding="ascii")
    except OSError:
        log.debug("the kernel's order of processes to end stays as it is")


if __name__ == "__main__":
    sys.exit(main())
