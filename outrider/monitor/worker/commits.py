"""Commits of the worker: one transaction per unit and slot."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from outrider.dataops.alarms.assertion_silence import JudgedNotes
from outrider.dataops.alarms.version_mismatch import count_versions
from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.flags import live_rates
from outrider.dataops.flags.rate_limit import FlagBudget, MinuteEntities, NewFlags, count_flags
from outrider.dataops.flags.registered_assertions import note_reads, shift_suspensions
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.aging import age
from outrider.dataops.ledger.class_words import declared_words
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.stated_values import LONGEST, OTHERS, PLACES
from outrider.dataops.ledger.targets import declare_target
from outrider.dataops.state.clock import HOUR_US
from outrider.dataops.state.database import now_us, write
from outrider.dataops.triggers.evaluation_log import RepeatedEvaluations
from outrider.dataops.triggers.firing import settle_labels
from outrider.monitor.process.logs import RecordLog
from outrider.monitor.settings.config import Settings
from outrider.monitor.stream.kept_profiles import kept_profiles
from outrider.monitor.stream.units import Unit

from .context import WorkerContext
from .pin_payloads import keep_flagged
from .pipeline import CHAMPION, Pipeline
from .stages.work import Timings

log = logging.getLogger("outrider.worker")
TOLD_AGAIN_S = 10.0
"""An evaluation of labels with an unchanged answer is logged this often."""
CHECKPOINT_S = 10.0
"""After a restart at most the blocks of this time are fed to the windows again."""


class Commits:
    def __init__(self, context: WorkerContext, record_log: RecordLog) -> None:
        self._context = context
        self._record_log = record_log
        self.champions: dict[str, str] = {}
        settings = context.settings
        self._budget = FlagBudget(settings.flags.per_minute, settings.worker.seed)
        self._labels = LabelTrigger(settings)
        self._checkpointed: dict[tuple[str, str], float] = {}
        self._aged_us: dict[str, int] = {}
        self._entities: dict[tuple[str, str], MinuteEntities] = {}
        self._judged: dict[str, JudgedNotes] = {}

    @contextmanager
    def transaction(
        self, effects: Effects, timings: Timings | None = None, *, at_us: int
    ) -> Iterator[Connection]:
        """Commit effects with the caller's writes, move the cursor, count; ``at_us`` is the unit's
        receive time."""
        context, model = self._context, effects.model
        pipeline = context.pipelines[model]
        keep_flagged(context.journal, pipeline.payloads, effects)
        with write(context.engine) as connection:
            found = self._write(connection, effects, now_us=at_us)
            yield connection
        context.cursors[model, effects.slot] = effects.seq
        if timings is not None:
            timings.stage("commit")
        context.metrics.committed(effects, timings or Timings(), pipeline.offered)
        context.metrics.slices(effects, found, context.settings.models[model].slices)
        self._tell_folded(pipeline)
        self._record_log.dead_letters(effects.dead_letters.select("model", "record_id", "reason"))

    def _tell_folded(self, pipeline: Pipeline) -> None:
        """Count values folded into ``__other__``, and log each dimension once."""
        records, filled = pipeline.stated.take_folded()
        self._context.metrics.folded(pipeline.name, records)
        for dimension in filled:
            log.warning(
                "model %s: some values of %s are counted under %s: at most %d, of up to %d letters, have a "
                "name in counts, the heaviest (docs/series.md)",
                pipeline.name, dimension, OTHERS, PLACES, LONGEST,
            )  # fmt: skip

    def commit(self, effects: Effects, timings: Timings | None = None, *, at_us: int) -> None:
        with self.transaction(effects, timings, at_us=at_us):
            pass

    def commit_unit(self, unit: Unit, effects: Effects, timings: Timings, *, began: float) -> None:
        add_costs(effects, timings)
        effects.received, effects.received_us = unit.received, unit.received_us
        self.commit(effects, timings, at_us=unit.received_us)
        if unit.batch is not None:
            # Repeats too: they take their time, and rows that are not counted would look like slow ones.
            looked_at = unit.batch.rows - effects.counts["shed:sampled"]
            self._context.objectives.worked(unit.model, effects.slot, began, rows=looked_at)
        self._context.metrics.live_rates(unit.model, effects.live_rates)

    def settle_incidents(self, unit: Unit) -> None:
        book, now_us, seq = self._context.incidents[unit.model], unit.received_us, unit.last_seq
        with self._context.engine.connect() as connection:
            due = book.is_due(connection, now_us=now_us, seq=seq)
        if due or self._aged_us.get(unit.model, 0) // HOUR_US != now_us // HOUR_US:
            with write(self._context.engine) as connection:
                self._age(connection, unit.model, now_us=now_us)
                book.settle(connection, now_us=now_us, seq=seq)

    def _write(self, connection: Connection, effects: Effects, *, now_us: int) -> list[NewFlags]:
        model = effects.model
        self._keep_windows(effects)
        entities = self._entities.setdefault((model, effects.owner), MinuteEntities())
        found = count_flags(connection, effects, self._budget, entities)
        if not self._context.challengers[model]:
            effects.marks.clear()  # with nobody to compare with
        declared = self._context.settings.models[model]
        effects.classes = declared_words(declared.classes)
        declare_target(connection, model, declared.is_number)
        ledger.count_groups(connection, effects, entities.add)
        ledger.apply(connection, effects)
        if effects.owner == CHAMPION:
            self._context.pipelines[model].stated.store(connection)
        effects.live_rates, alarms = live_rates.follow(connection, effects)
        if effects.reads:
            note_reads(connection, model, effects.reads)
        if effects.owner == CHAMPION:
            book = self._context.incidents[model]
            if effects.step_us and effects.slot == CHAMPION:
                book.step(connection, by_us=effects.step_us, seq=effects.seq)
                shift_suspensions(connection, model, by_us=effects.step_us)
            if effects.slot == CHAMPION:
                count_versions(connection, effects)
                self._age(connection, model, now_us=now_us)
            self._judged.setdefault(model, JudgedNotes()).note(connection, effects, now_us=now_us)
            ahead = effects.counts["ahead"]
            book.follow(connection, found, now_us=now_us, alarms=alarms, ahead=ahead, seq=effects.seq)
        if effects.labels or effects.flags:
            self._labels.follow(connection, model)
        return found

    def _age(self, connection: Connection, model: str, *, now_us: int) -> None:
        kept = kept_profiles(self._context.settings.storage)
        age(connection, model, before_us=self._aged_us.get(model, 0), now_us=now_us, kept=kept)
        self._aged_us[model] = now_us

    def _keep_windows(self, effects: Effects) -> None:
        model, slot = effects.model, effects.slot
        champion = self._context.versions[model].champion
        is_swapped = slot == CHAMPION and champion is not None and champion != self.champions.get(model)
        if is_swapped and champion is not None:
            effects.border = self._context.cursors[model, slot], champion
            self.champions[model] = champion
        last, now = self._checkpointed.get((model, slot), 0.0), time.monotonic()
        if is_swapped or now - last >= CHECKPOINT_S:
            if (state := self._context.pipelines[model].slots.get(slot)) is not None:
                effects.checkpoints += state.checkpoints(model, slot, effects.seq)
            self._checkpointed[model, slot] = now


def add_costs(effects: Effects, timings: Timings) -> None:
    """Count each assertion's time and records, for its cost per record."""
    for name, seconds in timings.tasks.items():
        effects.counts[f"cost_ns:{name}"] += int(seconds * 1e9)
        effects.counts[f"judged:{name}"] += effects.counts["records"]


class LabelTrigger:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._repeated = RepeatedEvaluations(again_s=TOLD_AGAIN_S, scored_again_s=0.0)

    def follow(self, connection: Connection, model: str) -> None:
        """Start a retraining where enough labels wait, in the transaction of the labels."""
        own = self._settings.models[model]
        if not own.retrain.enabled or not own.retrain.guards.is_automatic:
            return  # suggestions are the trainer's, where nothing waits for the count
        settle_labels(
            connection,
            LabelScope(model, dataset_of(model), own.retrain.rows, rules=own.rules_digest),
            own.retrain.guards,
            threshold=own.retrain.labelled_flags,
            now_us=now_us(),
            repeated=self._repeated,
        )
