"""Trainer process: jobs in sequence, and a webhook thread.

``python -m outrider.monitor.trainer --config PATH``. Torch and Great Expectations are loaded by the first
job that needs them.
"""

import argparse
import logging
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.erased import delete_unneeded
from outrider.dataops.datasets.label_account import LabelAccount
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import REST_S, DatabaseChanges, now_us, write
from outrider.errors import ConfigError, JournalUnreadable, OutriderError
from outrider.monitor.http.common import targets_of
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.logs import set_up
from outrider.monitor.process.stores import open_stores
from outrider.monitor.settings.config import Settings, find_config, load_settings
from outrider.monitor.settings.gate_sections import FrozenPolicy
from outrider.monitor.settings.sources import stored_source, why_trained_elsewhere

from .champion_suites_job import ChampionSuites
from .compaction import Compactor
from .context import JobContext, Stopping
from .followers import start_followers
from .metrics import LoopMetrics
from .rolling_looks import RollingLooks
from .shadow_tests import ShadowTests
from .triggers import Triggers
from .watches import Watches
from .webhooks import deliver_until, endpoints

log = logging.getLogger(__name__)


def run_next(context: JobContext) -> JobRow | None:
    """Run the next job, if any, and return its final state.

    A job that fails for a reason that can pass (a busy database, another commit in between) or because the
    process ends stays in the queue; any other failure closes it with the reason.
    """
    with context.engine.connect() as connection:
        if not jobs.is_waiting(connection):
            return None  # without taking the write lock: this is asked often
    with write(context.engine) as connection:
        job = jobs.claim(connection, now_us=now_us(), targets=context.targets)
    if job is None:
        return None
    log.info("%s: %s of %s, attempt %d", job.id, job.kind, job.model, job.attempts)
    try:
        _run(context, job)
    except Stopping:
        with write(context.engine) as connection:
            jobs.requeue(connection, job.id)
        log.info("%s goes back into the queue", job.id)
    except (OperationalError, StaleParent) as error:
        log.warning("%s is tried again: %s", job.id, error)
    except Exception as error:
        log.exception("%s failed", job.id)
        reason = str(error) if isinstance(error, OutriderError) else f"{type(error).__name__}: {error}"
        with write(context.engine) as connection:
            jobs.fail(connection, job.id, reason, targets=context.targets, now_us=now_us())
    with context.engine.connect() as connection:
        return jobs.get(connection, job.id)


def _run(context: JobContext, job: JobRow) -> None:
    """Retrain, or make a dataset version alone: also for a model that is trained elsewhere."""
    # What is there already is only put before the gate.
    is_registered = "candidate" in job.params or job.params.get("trigger") == jobs.ROLLING
    if job.kind == "retrain" and (is_registered or _is_trained_here(context, job.model)):
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
    """True where the champion can be fine-tuned: a challenger of another kind may have been promoted."""
    with context.engine.connect() as connection:
        champion = models.champion(connection, model)
    if champion is None:
        return context.model(model).is_trained_here
    why = why_trained_elsewhere(stored_source(context.settings, champion), context.model(model).retrain)
    if why and context.model(model).is_trained_here:
        log.warning("%s is not fine-tuned, only its dataset is made: %s", champion.id, why)
    return not why


def run_until(context: JobContext, between: Callable[[], None] = lambda: None) -> None:
    """Run jobs until asked to stop, ``between`` where none waits."""
    changes = DatabaseChanges.of(context.engine)
    while not context.stop.is_set():
        try:
            job = run_next(context)
            if job is None:
                between()
        except OperationalError as error:
            log.warning("the database cannot be used right now: %s", error)
            job = None
        if job is None or job.status == "running":
            changes.wait(context.stop, every_s=context.poll_s, at_most_s=REST_S)


def open_context(settings: Settings, stop: threading.Event) -> JobContext:
    """Open the stores; waits for intake to make the journal.

    Raises
    ------
    ConfigError
        If database and journal do not belong together.
    JournalUnreadable
        If there is no readable journal after 30 seconds.
    """
    journal, engine = open_stores(settings, stop)
    objects = LocalObjects(settings.data_folder / "objects")
    delete_unneeded(engine, objects)
    return JobContext(settings, engine, objects, journal, targets_of(settings), stop)


def main(arguments: list[str] | None = None) -> int:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="outrider.monitor.trainer", description=__doc__)
    parser.add_argument("--config", type=Path)
    path = find_config(parser.parse_args(arguments).config)
    set_up("trainer")
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    die_with_parent()
    try:
        settings = load_settings(path)
        set_up("trainer", settings.server.log_format)
        for name, own in settings.models.items():
            if isinstance(own.gate, FrozenPolicy) and own.gate.fault:
                log.warning("%s: no candidate passes until its policy is mended: %s", name, own.gate.fault)
        hooks = endpoints(settings)
        context = open_context(settings, stop)
    except (ConfigError, JournalUnreadable) as error:
        log.error("%s", error)
        return 0 if stop.is_set() else 3
    delivery = threading.Thread(target=deliver_until, args=(context.engine, hooks, stop), name="webhooks")
    delivery.start()
    metrics = new_metrics(models=tuple(settings.models))
    looks = {
        "metrics of the loop": LoopMetrics(metrics, context.engine).observe,
        "shadow tests": ShadowTests(context).look,
        "watches": Watches(context).look,
        "triggers": Triggers(context).look,
    }
    followers = start_followers(context.engine, stop, looks)
    sender = start_sender(metrics, process="trainer")
    champions = ChampionSuites(context, path)
    compactor = Compactor(context.engine, context.objects)
    rolling = RollingLooks(context)

    def between() -> None:
        champions.look()
        compactor.look()
        rolling.look()

    try:
        run_until(context, between)
    finally:
        stop.set()
        champions.close()
        for thread in (delivery, *followers):
            thread.join(timeout=5.0)
        if sender is not None:
            sender.close()
        context.engine.dispose()
    return 0
