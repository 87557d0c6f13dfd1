"""Trainer process: processes of jobs, webhooks, and followers of commits.

``python -m outrider.monitor.trainer --config PATH``. Torch and Great Expectations are loaded by the jobs'
processes alone.
"""

import argparse
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import OperationalError

from outrider.dataops.datasets.erased import delete_unneeded
from outrider.dataops.state.database import REST_S, DatabaseChanges
from outrider.errors import ConfigError, JournalUnreadable
from outrider.monitor.metrics.channel import new_metrics, start_sender
from outrider.monitor.process.child import die_with_parent
from outrider.monitor.process.logs import set_up
from outrider.monitor.settings.config import find_config, load_settings
from outrider.monitor.settings.gate_sections import FrozenPolicy

from .champion_suites_job import ChampionSuites
from .compaction import Compactor
from .context import JobContext
from .followers import start_followers
from .job_process import open_context
from .job_processes import JobProcesses
from .metrics import LoopMetrics
from .rolling_looks import RollingLooks
from .shadow_tests import ShadowTests
from .triggers import Triggers
from .waiting_jobs import WaitingJobs
from .watches import Watches
from .webhooks import deliver_until, endpoints

log = logging.getLogger(__name__)


def supervise(
    context: JobContext, processes: JobProcesses, between: Callable[[], None] = lambda: None
) -> None:
    changes = DatabaseChanges.of(context.engine)
    while not context.stop.is_set():
        try:
            processes.look()
            if processes.is_idle:
                between()
        except OperationalError as error:
            log.warning("the database cannot be used right now: %s", error)
        except OSError as error:  # no room for a process: the job is tried again
            log.warning("a job cannot be started right now: %s", error)
        changes.wait(context.stop, every_s=context.poll_s, at_most_s=REST_S if processes.is_idle else 0.0)


def main(arguments: list[str] | None = None) -> int:
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
        delete_unneeded(context.engine, context.objects)
    except (ConfigError, JournalUnreadable) as error:
        log.error("%s", error)
        return 0 if stop.is_set() else 3
    delivery = threading.Thread(target=deliver_until, args=(context.engine, hooks, stop), name="webhooks")
    delivery.start()
    metrics = new_metrics(models=tuple(settings.models), process="trainer")
    looks = {
        "metrics of the loop": LoopMetrics(metrics, context.engine).observe,
        "shadow tests": ShadowTests(context).look,
        "watches": Watches(context).look,
        "triggers": Triggers(context).look,
        "waiting jobs": WaitingJobs(context).look,
    }
    followers = start_followers(context.engine, stop, looks)
    sender = start_sender(metrics, process="trainer")
    champions = ChampionSuites(context, path)
    compactor = Compactor(context.engine, context.objects)
    rolling = RollingLooks(context)
    processes = JobProcesses(context, path, {"dataset": 2, "gate": 2, "training": settings.trainer.trainings})

    def between() -> None:
        champions.look()
        compactor.look()
        rolling.look()

    try:
        supervise(context, processes, between)
    finally:
        stop.set()
        processes.close()
        champions.close()
        for thread in (delivery, *followers):
            thread.join(timeout=5.0)
        if sender is not None:
            sender.close()
        context.engine.dispose()
    return 0
