"""Gauges of the worker: versions, suspensions, pauses, windows, backlogs."""

import time
from collections.abc import Mapping

from outrider.dataops.flags import live_rates
from outrider.dataops.state.pauses import WHAT, Paused

from .backfill import Backfills
from .context import WorkerContext
from .cursors.challenger_cursors import ChallengerCursors
from .metrics import role_of
from .pipeline import CHAMPION

ROLES = (CHAMPION, "challenger")
"""Both are always set, because a removed challenger leaves nothing to reset."""


class Gauges:
    def __init__(
        self, context: WorkerContext, backfills: Backfills, challengers: Mapping[str, ChallengerCursors]
    ) -> None:
        self._context = context
        self._backfills = backfills
        self._challengers = challengers

    def publish(self, paused: Paused) -> None:
        """Set every gauge except those of live tests, which change with commits."""
        context, metrics = self._context, self._context.metrics
        metrics.versions(
            {name: (own.champion, context.challengers[name]) for name, own in context.versions.items()}
        )
        for name, pipeline in context.pipelines.items():
            metrics.suspended(name, pipeline.offered, pipeline.suspended)
            for what in WHAT:
                metrics.paused(name, what, is_paused=paused.holds(name, what))
            self._disabled(name)
            self._lag(name)
            self._latency(name)
            self._windows(name)

    def live_rates(self, name: str) -> None:
        book = self._context.incidents[name]
        with self._context.engine.connect() as connection:
            rates = live_rates.current_rates(connection, name, book.live, book.version)
        tests = [o for o in self._context.pipelines[name].offered if o.kind == "live_test"]
        self._context.metrics.no_live_rates(name, tests)
        self._context.metrics.live_rates(name, rates)

    def _disabled(self, name: str) -> None:
        versions = self._context.versions[name]
        champion = int(versions.champion in versions.failures)
        self._context.metrics.left_out(name, CHAMPION, champion)
        self._context.metrics.left_out(name, "challenger", len(versions.failures) - champion)
        self._context.metrics.owed(name, CHAMPION, self._backfills.owed_records(name))
        self._context.metrics.owed(name, "challenger", self._challengers[name].owed_records)

    def _lag(self, name: str) -> None:
        context = self._context
        behind = dict.fromkeys(ROLES, (0, 0, 0.0))
        for slot in (CHAMPION, *context.challengers[name]):
            cursor = context.cursors[name, slot]
            waiting = context.journal.read(cursor, limit=1, model=name)
            since = [context.present_us(block.seq, block.received_us) for block in waiting]
            age = time.time() - since[0] / 1e6 if since else 0.0
            blocks = context.journal.last_seq() - cursor if waiting else 0
            lag = blocks, context.waiting_records(name, slot), max(0.0, age)
            behind[role_of(slot)] = max(behind[role_of(slot)], lag)
        for role, (blocks, records, age) in behind.items():
            context.metrics.lag(name, role, records=records, blocks=blocks, seconds=age)

    def _latency(self, name: str) -> None:
        objectives = self._context.objectives
        decision = objectives.decision(name)
        self._context.metrics.latency(
            name,
            slo_s=objectives.slo_s(name),
            share=decision.share,
            measure=decision.measure,
            backfill_records=self._backfills.waiting_records(name),
        )

    def _windows(self, name: str) -> None:
        held = dict.fromkeys(ROLES, (0, 0, 0))
        for slot, state in self._context.pipelines[name].slots.items():
            held[role_of(slot)] = max(held[role_of(slot)], state.held())
        for role, (entities, rows, nbytes) in held.items():
            self._context.metrics.windows(name, role, entities=entities, rows=rows, nbytes=nbytes)
