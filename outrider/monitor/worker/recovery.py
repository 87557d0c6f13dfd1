import logging
from collections.abc import Sequence

from outrider.dataops.flags.registered_assertions import register_offered, suspensions
from outrider.dataops.flags.strikes import newest_strikes, note_load_errors, strike_for_death
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.champions import champion_borders
from outrider.dataops.ledger.checkpoints import keep_windows
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.first_seen import SeenNames
from outrider.dataops.ledger.rotations import rotation_before, rotations, standing
from outrider.dataops.ledger.stated_values import StatedValues
from outrider.dataops.ledger.stored_profiles import newest_layout
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import take_back
from outrider.monitor.host.progress import InterruptedTasks

from .admission import SamplingState
from .backfill import Backfills
from .commits import Commits
from .context import WorkerContext
from .live_budget import LiveBudget
from .pipeline import CHAMPION, Pipeline
from .slot_restore import restore_slot
from .slot_state import SUSPENSION_S, window_digest

log = logging.getLogger("outrider.worker")
RESTORED_STRIKES = 1000
"""Latest failures read after a restart: more than suspensions allow in one strike window."""


class Recovery:
    def __init__(self, context: WorkerContext, commits: Commits, backfills: Backfills) -> None:
        self._context = context
        self._commits = commits
        self._backfills = backfills

    def blame(self, found: InterruptedTasks) -> None:
        if found.model not in self._context.pipelines:
            return
        if (name := found.culprit) is None:
            log.error(
                "model %s: the worker ended while assertions ran (%s): each runs alone for a while",
                found.model, ", ".join(found.names),
            )  # fmt: skip
            return
        limits, now = self._context.settings.host, now_us()
        with write(self._context.engine) as connection:
            is_suspended = strike_for_death(
                connection, found.model, name, seq=cursor(connection, found.model, CHAMPION), now_us=now,
                since_us=now - int(limits.strike_window_s * 1e6), until_us=now + int(SUSPENSION_S * 1e6),
                most=limits.strikes,
            )  # fmt: skip
        verdict = "it is suspended for an hour" if is_suspended else "it is asked again"
        log.error("model %s: the worker ended during assertion %s: %s", found.model, name, verdict)

    def register(self, name: str, errors: Sequence[str]) -> None:
        offered = self._context.pipelines[name].offered
        with write(self._context.engine) as connection:
            take_back(connection, name)
            at = cursor(connection, name, CHAMPION)
            register_offered(connection, name, offered, first_seq=at, now_us=now_us())
            note_load_errors(connection, name, errors, now_us=now_us())
        self._context.metrics.declare(name, offered, self._context.settings.models[name].slices)
        self._context.incidents[name].live = {o.name: o.revision for o in offered if o.kind == "live_test"}

    def restore(self, name: str) -> None:
        """Restore strikes, sampling and budgets at the champion's cursor."""
        pipeline, engine = self._context.pipelines[name], self._context.engine
        self._restore_strikes(pipeline)
        with engine.connect() as connection:
            pipeline.rotations = rotations(connection, name)
            found = standing(connection, name)
            state = ledger.live_budget(connection, name, CHAMPION)
            pipeline.layouts.current = newest_layout(connection, name)
            pipeline.remember(StatedValues.stored(connection, name))
            pipeline.seen = SeenNames.stored(connection, name)
        pipeline.standing = SamplingState() if found is None else SamplingState(*found)
        own = self._context.settings.models[name].live
        if own.endpoint is None:  # or its slot has the budget
            pipeline.live_budget = LiveBudget.of(pipeline.offered, own.rows_per_s)
            if state is not None:
                pipeline.live_budget.restore(state)

    def rebuild_windows(self, name: str, slot: str) -> None:
        engine, pipeline = self._context.engine, self._context.pipelines[name]
        borders = champion_borders(engine, name)
        if borders and slot == CHAMPION:
            self._commits.champions[name] = borders[-1][1]
        at = self._context.cursors[name, slot]
        begin, restarted_us = self._backfills.restarted(name, at)
        last = rotation_before(pipeline.rotations, at)
        if last is not None and last.seq >= begin:
            begin, restarted_us = last.seq, last.at_us
        windows = {judge.window for judge in pipeline.due_at(slot) if judge.window is not None}
        with write(engine) as connection:
            keep_windows(connection, name, slot, windows=[window_digest(window) for window in windows])
        restore_slot(engine, self._context.journal, pipeline, slot, at, borders, begin=begin)
        state = pipeline.slots[slot]
        state.restarted_us, state.rotated_seq = restarted_us, 0 if last is None else last.seq

    def _restore_strikes(self, pipeline: Pipeline) -> None:
        steps = self._context.journal.steps()
        since = steps[-1].seq if steps else -1  # times before a step say nothing behind it
        with self._context.engine.connect() as connection:
            strikes = newest_strikes(connection, pipeline.name, after_seq=since, limit=RESTORED_STRIKES)
            suspended = {one.assertion: one.until_us for one in suspensions(connection, pipeline.name)}
        pipeline.slots[CHAMPION].restore_strikes(strikes, suspended)
