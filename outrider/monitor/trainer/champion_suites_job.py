"""Short-lived process for a new champion's tests without outcome.

The gate writes those of every candidate; the first version of a model has none, nor has a champion whose
suites were edited since. ``python -m outrider.monitor.trainer.champion_suites_job`` is started by the
trainer, so that neither it nor its jobs wait for a user's tests or hold the memory of torch.
"""

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, Engine

from outrider.behavioral_tests import Suite
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_if_any
from outrider.dataops.improvement import suite_outcomes
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects, ObjectStore
from outrider.dataops.state.database import now_us, open_database, write
from outrider.errors import OutriderError, ServerError
from outrider.monitor.process.child import CONTROL_FD, die_with_parent
from outrider.monitor.process.logs import set_up
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.reload import read_serving, read_state

from .context import JobContext
from .job_process import AGAIN
from .suites import model_suites, on_held_out, without_rows

log = logging.getLogger(__name__)
LOOK_S = 5.0
MOST_WAIT_S = 600.0
"""Most time for the worker to load the models and judge its backlog, which goes first."""
FIRST_REST_S, LONGEST_REST_S = 60.0, 3600.0
"""Pause before an unanswering champion is asked again, and its limit."""
NICENESS = 10


def complete(settings: Settings, engine: Engine, objects: ObjectStore, model: str) -> int:
    """Run the champion's tests without outcome for this revision; returns their number.

    ConfigError where suite or model cannot be loaded, ServerError where the model left some unanswered.
    """
    own = settings.models[model]
    with engine.connect() as connection:
        champion = models.champion(connection, model)
        if champion is None:
            return 0
        known = suite_outcomes.revisions(connection, model, champion.version)
        dataset = open_if_any(connection, own.gate.held_out)
        found = model_suites(settings, model)
        suites = [_missing(suite, known, has_cases=dataset is not None) for suite in found]
        tests = [test for suite in suites for test in suite.tests]
        if not tests:
            return 0
        cases = None
        if dataset is not None and any(test.cases is None for test in tests):
            cases = datasets.read(connection, objects, dataset)
        (predictor,) = version_predictors(settings, connection, model, champion.version)
    if "torch" in sys.modules:
        from .retraining import set_threads

        set_threads(settings.worker.threads)
    seed = own.retrain.seed
    hidden = on_held_out(suites)
    ran = [outcome for suite in suites for outcome in suite.run(predictor, cases=cases, seed=seed)]
    outcomes = [without_rows(outcome, hidden) for outcome in ran]
    with write(engine) as connection:
        known = suite_outcomes.revisions(connection, model, champion.version)  # the gate may have been faster
        outcomes = [each for each in outcomes if known.get((each.suite, each.name)) != each.revision]
        suite_outcomes.keep(
            connection, model, champion.version, outcomes, source="registered", now_us=now_us()
        )
    if unanswered := [outcome for outcome in ran if outcome.is_unanswered]:
        raise ServerError(f"{len(unanswered)} of {len(ran)} were not run: {unanswered[0].error}")
    return len(outcomes)


def _missing(suite: Suite, known: dict[tuple[str, str], str], *, has_cases: bool) -> Suite:
    return replace(
        suite,
        tests=tuple(
            test
            for test in suite.tests
            if (has_cases or test.cases is not None) and known.get((test.suite, test.name)) != test.revision
        ),
    )


class ChampionSuites:
    """Starter of one process per new champion; failures are logged, and retried only where the
    champion gave no answer."""

    def __init__(self, context: JobContext, config: Path, *, look_s: float = LOOK_S) -> None:
        self._context = context
        self._config = config
        self._look_s = look_s
        self._seen: dict[str, str] = {}
        self._next = time.monotonic() + look_s
        self._patient_until = time.monotonic() + MOST_WAIT_S
        self._waits_for: int | None = None
        """Block that the worker is to judge first; None until its models are loaded."""
        self._rests: dict[str, tuple[float, float]] = {}
        """End and length of the pause of champions without an answer."""
        self._model = ""
        self._running: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        if time.monotonic() < self._next or self.is_running:
            return
        now = time.monotonic()
        self._next = now + self._look_s
        self._ended(now)
        for name in self._context.settings.models:
            if not self._context.settings.behavior_files(name) or now < self._rests.get(name, (0.0, 0.0))[0]:
                continue
            with self._context.engine.connect() as connection:
                champion = models.champion(connection, name)
                is_due = champion is not None and self._is_judged(connection, name, now)
            if champion is not None and is_due and self._seen.get(name) != champion.version:
                self._seen[name] = champion.version
                self._start(name)
                return

    def _ended(self, now: float) -> None:
        if self._running is not None and self._running.returncode == AGAIN:
            pause_s = min(2 * self._rests.get(self._model, (0.0, FIRST_REST_S / 2))[1], LONGEST_REST_S)
            self._rests[self._model] = now + pause_s, pause_s
            self._seen.pop(self._model, None)
        elif self._running is not None:
            self._rests.pop(self._model, None)
        self._running = None

    def _is_judged(self, connection: Connection, model: str, now: float) -> bool:
        """True once the worker has judged its backlog, or takes too long."""
        folder = self._context.settings.data_folder
        if self._waits_for is None and read_serving(folder).loaded_s == read_state(folder).loaded_s:
            self._waits_for = self._context.newest()
        if now >= self._patient_until:
            return True
        if self._waits_for is None:
            return False
        return not self._context.holds(model, cursor(connection, model, CHAMPION), self._waits_for)

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def _start(self, model: str) -> None:
        self._model = model
        command = [sys.executable, "-m", "outrider.monitor.trainer.champion_suites_job", "--model", model]
        command += ["--config", str(self._config), "--parent", str(os.getpid())]
        inherited = [int(os.environ[CONTROL_FD])] if CONTROL_FD in os.environ else []
        try:
            self._running = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL)
        except OSError as error:
            log.error("%s: its behavioral tests cannot be run: %s", model, error)

    def close(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="outrider.monitor.trainer.champion_suites_job")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(parent=options.parent)
    set_up("trainer")
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    begun = time.monotonic()
    try:
        settings = load_settings(options.config)
        if str(settings.base) not in sys.path:  # what the project's files import
            sys.path.append(str(settings.base))
        set_up("trainer", settings.server.log_format)
        engine = open_database(settings.database_url)
        objects = LocalObjects(settings.data_folder / "objects")
        ran = complete(settings, engine, objects, options.model)
    except ServerError as error:
        log.warning("%s: its behavioral tests are run again later: %s", options.model, error)
        return AGAIN
    except OutriderError as error:
        log.error("%s: its behavioral tests cannot be run: %s", options.model, error)
        return 1
    if ran:
        spent = time.monotonic() - begun
        log.info("%s: %d behavioral tests of the champion in %.1f s", options.model, ran, spent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
