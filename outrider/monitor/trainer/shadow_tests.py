"""One shadow test per challenger: begun, followed, ended, with a recommendation.

A thread of the trainer. What it knows is saved in one row per test, so it goes on where it was.
"""

import logging
import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.ledger.answers import first_answered
from outrider.dataops.ledger.cursors import cursors_of
from outrider.dataops.models.registry import versions_in_service
from outrider.dataops.outbox import enqueue
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import left_out

from .agreement import ComparisonProgress, Follower
from .context import JobContext
from .shadow_findings import gather
from .weights_size import bytes_share

log = logging.getLogger(__name__)
GROWTH = 1.1
"""Growth of records after which findings are renewed."""
REFRESH_S = 60.0
"""Or after this time, because labels and flags come without records."""


class ShadowTests:
    def __init__(self, context: JobContext, *, now: Callable[[], int] = now_us) -> None:
        self._context = context
        self._now = now
        self._progress: dict[tuple[str, str, int], ComparisonProgress] = {}
        self._made: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._smaller: dict[tuple[str, str, int], float | None] = {}
        """Ratio of the weights' bytes, challenger to champion."""

    def look(self) -> None:
        for trial in self._running():
            if trial.model not in self._context.settings.models:
                continue
            try:
                self._follow(trial)
            except OperationalError:
                raise
            except Exception:  # what one pair of models answers must not hold up the other tests
                log.exception("%s: the shadow test of version %s", trial.model, trial.version)
                self._progress.pop(_key(trial), None)  # half of a step may be in it: on from what was saved

    def _follow(self, trial: Trial) -> None:
        progress = self._progress.setdefault(_key(trial), ComparisonProgress.of(trial))
        follower = Follower(self._context.engine, self._context.model(trial.model))
        while follower.advance(trial, progress):
            self._note(trial, progress)
            if self._context.stop.is_set() or self._is_due(trial, progress):
                break
        self._note(trial, progress)
        if self._is_due(trial, progress):
            self._end(trial, progress)

    def _running(self) -> list[Trial]:
        """Open tests, after beginning and ending those that versions ask for."""
        with self._context.engine.connect() as connection:
            pairs = _pairs(connection)
            running = shadow_tests.running(connection)
            resting = shadow_tests.over(connection)
        over = [trial for trial in running if pairs.get((trial.model, trial.version)) != trial.champion]
        there = {(trial.model, trial.version) for trial in running if trial not in over}
        for trial in over:
            self._leave(trial, pairs)
        for (model, version), champion in pairs.items():
            if (model, version) not in there | resting and model in self._context.settings.models:
                self._begin(model, version, champion)
        with self._context.engine.connect() as connection:
            return shadow_tests.running(connection)

    def _begin(self, model: str, version: str, champion: str) -> None:
        given = self._context.model(model).challengers.get(version)
        with write(self._context.engine) as connection:
            after_seq = _begins_after(connection, model, version)
            if after_seq is None:
                return
            shadow_tests.begin(
                connection,
                model=model,
                version=version,
                champion=champion,
                after_seq=after_seq,
                now_us=self._now(),
                shadow_s=None if given is None else given.shadow_s,
                shadow_rows=None if given is None else given.shadow_rows,
            )
        log.info("%s: version %s is tested beside %s", model, version, champion)

    def _leave(self, trial: Trial, pairs: Mapping[tuple[str, str], str]) -> None:
        """End a test whose challenger is gone or whose champion changed, without a recommendation."""
        champion = pairs.get((trial.model, trial.version))
        why = (
            f"version {trial.version} is no challenger any more"
            if champion is None
            else f"version {champion} is champion now: a new test began"
        )
        findings = dict(trial.findings) | {"ended_because": why}
        with write(self._context.engine) as connection:
            shadow_tests.end(
                connection, trial, recommendation="undecided", findings=findings, now_us=self._now()
            )
        self._forget(trial)

    def _note(self, trial: Trial, progress: ComparisonProgress) -> None:
        rows, at = self._made.get(_key(trial), (0, 0.0))
        grown = progress.rows > rows and progress.rows >= GROWTH * rows
        if not grown and time.monotonic() - at <= REFRESH_S:
            return
        if not progress.blocks:
            with self._context.engine.connect() as connection:
                if trial.version not in left_out(connection, trial.model):
                    return  # nothing is known, and nothing wrong
        self._made[_key(trial)] = progress.rows, time.monotonic()
        findings = self._findings(trial, progress)
        with write(self._context.engine) as connection:
            shadow_tests.save(connection, trial, findings)

    def _findings(self, trial: Trial, progress: ComparisonProgress) -> dict[str, object]:
        if _key(trial) not in self._smaller:
            share = bytes_share(self._context, trial.model, trial.version, trial.champion)
            self._smaller[_key(trial)] = share
        with self._context.engine.connect() as connection:
            smaller = self._smaller[_key(trial)]
            return gather(connection, trial, progress, self._context.model(trial.model), smaller=smaller)

    def _is_due(self, trial: Trial, progress: ComparisonProgress) -> bool:
        is_over = trial.ends_us is not None and self._now() >= trial.ends_us
        return is_over or (trial.ends_rows is not None and progress.rows >= trial.ends_rows)

    def _end(self, trial: Trial, progress: ComparisonProgress) -> None:
        findings = self._findings(trial, progress)
        advice, reasons = str(findings["advice"]), findings["reasons"]
        data = {
            "model": trial.model,
            "version": trial.version,
            "champion": trial.champion,
            "recommendation": advice,
            "reasons": reasons,
            "records": progress.rows,
        }
        with write(self._context.engine) as connection:
            if shadow_tests.end(
                connection, trial, recommendation=advice, findings=findings, now_us=self._now()
            ):
                enqueue(connection, "shadow.ended", data, targets=self._context.targets, now_us=self._now())
        self._forget(trial)
        log.info("%s: the shadow test of version %s ended: %s", trial.model, trial.version, advice)

    def _forget(self, trial: Trial) -> None:
        self._progress.pop(_key(trial), None)
        self._made.pop(_key(trial), None)
        self._smaller.pop(_key(trial), None)


def _begins_after(connection: Connection, model: str, version: str) -> int | None:
    """Journal block after which a test begins; None while nothing was answered.

    The first test of a version begins with its first answer.
    """
    cursors = cursors_of(connection, model, ("champion", version))
    if not cursors:
        return None
    first = first_answered(connection, model, version)
    if first is not None and not shadow_tests.was_tested(connection, model, version):
        return first - 1
    return min(cursors)


def _pairs(connection: Connection) -> dict[tuple[str, str], str]:
    found = versions_in_service(connection)
    champions = {one.model: one.version for one in found if one.status == "champion"}
    return {
        (one.model, one.version): champions[one.model]
        for one in found
        if one.status == "challenger" and one.model in champions
    }


def _key(trial: Trial) -> tuple[str, str, int]:
    return trial.model, trial.version, trial.began_us
