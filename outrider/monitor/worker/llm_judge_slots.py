"""Slots of judges, each with a cursor behind the champion's and asking threads.

A judge takes seconds where a block takes milliseconds, so the worker proceeds meanwhile; answers, flags and
cursor commit together. A crash costs no answer twice: each is cached as it comes.
"""

import logging
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.behavioral_tests.sampling import sample_rows
from outrider.dataops.flags.stored_flags import flagged_records
from outrider.dataops.judges import PREFIX, Reply, known_replies, spent_today, store_replies
from outrider.dataops.ledger.champions import champion_borders, version_at
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cursors import open_cursor
from outrider.dataops.ledger.rotations import until_rotation
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import now_us, write
from outrider.errors import ConfigError
from outrider.monitor.stream.stored_answers import judge_answers, outputs_of, registered, stored
from outrider.monitor.stream.units import Unit, read_unit

from .backfill import Backfills
from .commits import Commits
from .context import WorkerContext
from .judged import JudgedRecords
from .ledger_rows import RecordLocations
from .llm_judges import Judge, Question, open_judge
from .pipeline import CHAMPION
from .stages.work import Timings

log = logging.getLogger("outrider.worker")

UNIT_ROWS = 256
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class PendingQuestions:
    unit: Unit
    kept: NDArray[np.intp]
    judged: JudgedRecords
    champion: str | None
    questions: list[Question | None]
    is_due: NDArray[np.bool_]
    replies: dict[str, Reply] = field(default_factory=dict)
    new: dict[str, Reply] = field(default_factory=dict)
    may_ask: bool = True
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


def questions(judge: Judge, judged: JudgedRecords) -> list[Question | None]:
    """Question per record about the judged answer, in the columns of the side that gave it."""
    found: list[Question | None] = [None] * judged.rows
    for part in judged.parts:
        rows = range(judged.rows) if part.rows is None else part.rows.tolist()
        for row, question in zip(rows, judge.questions(part.batch), strict=True):
            found[row] = None if question is None else replace(question, row=row)
    return found


class JudgeSlot:
    def __init__(self, judge: Judge, engine: Engine, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.judge = judge
        self.pending: PendingQuestions | None = None
        self._engine = engine
        self._pause = pause
        self._down_since: float | None = None

    def begin(self, pending: PendingQuestions) -> None:
        """Answer from the cache and ask the rest in a daemon thread."""
        self.pending = pending
        wanted = {question.digest for question in self._wanted(pending)}
        with self._engine.connect() as connection:
            pending.replies |= known_replies(connection, self.judge.digest, sorted(wanted))
        if not pending.may_ask or wanted <= pending.replies.keys():
            pending.done.set()
            return
        threading.Thread(target=self._run, args=(pending,), daemon=True, name=self.judge.slot).start()

    def _wanted(self, pending: PendingQuestions) -> list[Question]:
        due = zip(pending.questions, pending.is_due.tolist(), strict=True)
        return [question for question, is_due in due if is_due and question is not None]

    def _run(self, pending: PendingQuestions) -> None:
        try:
            self._ask(pending)
        except BaseException as error:  # noqa: BLE001 - told to the worker, which ends as for any other failure
            pending.error = error
        finally:
            pending.done.set()

    def _ask(self, pending: PendingQuestions) -> None:
        """Ask each question once, in the order of its first record, within the day's budget."""
        first: dict[str, Question] = {}
        for question in self._wanted(pending):
            if question.digest not in pending.replies:
                first.setdefault(question.digest, question)
        left = list(first.values())
        while left and (allowed := self._allowed()):
            chunk = left[: min(allowed, self.judge.chunk)]
            replies = self.judge.ask(pending.judged.batch, chunk)
            found = {question.digest: reply for question, reply in zip(chunk, replies, strict=True)}
            with write(self._engine) as connection:
                judge = self.judge
                store_replies(
                    connection, model=judge.model, judge=judge.name, digest=judge.digest, replies=found,
                    at_us=now_us(),
                )  # fmt: skip
            pending.replies |= found
            pending.new |= found
            if not self._must_wait(replies):
                left = left[len(chunk) :]

    def _allowed(self) -> int:
        settings = self.judge.settings
        with self._engine.connect() as connection:
            asked, tokens = spent_today(connection, self.judge.model, self.judge.name, now_us())
        if settings.tokens_per_day is not None and tokens >= settings.tokens_per_day:
            return 0
        return max(0, settings.budget_per_day - asked)

    def _must_wait(self, replies: list[Reply]) -> bool:
        """True while the server does not answer and patience is left."""
        if any(reply.outcome != "unavailable" for reply in replies):
            self._down_since = None
            return False
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
            log.warning("judge %s gives no answer: %s", self.judge.slot, replies[0].detail)
        waited = now - self._down_since
        if waited >= self.judge.settings.patience_s:
            return False
        self._pause(min(max(FIRST_PAUSE_S, waited), LONGEST_PAUSE_S, self.judge.settings.patience_s - waited))
        return True

    def outcomes(self, pending: PendingQuestions) -> list[str | None]:
        seen: set[str] = set()
        found: list[str | None] = []
        for question, is_due in zip(pending.questions, pending.is_due.tolist(), strict=True):
            if not is_due:
                found.append(None)
            elif question is None:
                found.append("not_applicable")
            elif (reply := pending.replies.get(question.digest)) is None:
                found.append("over_budget" if pending.may_ask else "shed")
            else:
                is_new = question.digest in pending.new and question.digest not in seen
                seen.add(question.digest)
                found.append("cached" if reply.outcome == "answered" and not is_new else reply.outcome)
        return found


class JudgeSlots:
    def __init__(self, context: WorkerContext, commits: Commits, backfills: Backfills) -> None:
        self._context = context
        self._commits = commits
        self._backfills = backfills
        self._slots: dict[tuple[str, str], JudgeSlot] = {}

    def start(self) -> None:
        """Load the judges; one that cannot be loaded is logged, and its assertions wait."""
        for model, own in self._context.settings.models.items():
            for name in own.judges:
                self._context.metrics.declare_judge(model, name)
                try:
                    judge = open_judge(self._context.settings, model, name)
                except ConfigError as error:
                    log.error("judge %s of model %s cannot be loaded: %s", name, model, error)
                    continue
                self._slots[model, judge.slot] = JudgeSlot(judge, self._context.engine)
                self._context.cursors[model, judge.slot] = self._open_cursor(model, judge.slot)
            known = {f"{PREFIX}{name}" for name in own.judges}
            for offered in self._context.pipelines[model].offered:
                for name in sorted(set(offered.needs) - known):
                    log.error(
                        "assertion %s of model %s needs %s, which is not configured",
                        offered.name,
                        model,
                        name,
                    )

    def _open_cursor(self, model: str, slot: str) -> int:
        """Committed cursor; a new judge starts at the champion's, stored at once."""
        begin = self._context.cursors.get((model, CHAMPION), 0)
        with write(self._context.engine) as connection:
            return open_cursor(connection, model, slot, begin=begin)

    def step(self, *, resting: Collection[str] = ()) -> bool:
        """Begin or finish each judge's work without waiting; returns any commit.

        Nothing begins for ``resting`` models.
        """
        busy = False
        for (model, slot), own in self._slots.items():
            if (model, CHAMPION) not in self._context.cursors:
                continue
            if own.pending is None and model not in resting:
                self._begin(model, slot, own)
            if own.pending is not None and own.pending.done.is_set():
                self._finish(model, slot, own)
                busy = True
        return busy

    def _begin(self, model: str, slot: str, own: JudgeSlot) -> None:
        until = min(
            self._context.cursors[model, CHAMPION],
            *(self._context.cursors[model, other] for other in self._before(model, slot)),
        )
        at = self._context.cursors[model, slot]
        if until > at and (end := self._backfills.end(model, at)) is not None and end <= until:
            self._backfills.pass_gap(model, slot, end)
            return
        until = self._backfills.before(model, at, until)
        if until <= at:
            self._context.metrics.judge_lag(model, own.judge.name, 0.0)
            return
        borders = champion_borders(self._context.engine, model)
        # A unit never spans a change of the champion: its stored answers are one version's.
        until = min([until, *(seq for seq, _ in borders if seq > at)])
        until = until_rotation(self._context.pipelines[model].rotations, at, until)
        most = min(UNIT_ROWS, self._context.pipelines[model].unit_rows)
        unit = read_unit(self._context.journal, model, at, max_rows=most, until=until)
        if unit is not None and unit.step_us:
            self._cross(model, slot, unit)
            return
        if unit is None or unit.batch is None:
            self._context.cursors[model, slot] = max(at, until if unit is None else unit.last_seq)
            self._context.metrics.judge_lag(model, own.judge.name, 0.0)
            return
        newest = self._context.journal.read(self._context.journal.last_seq() - 1, limit=1)
        received_us = present_us(self._context.journal.steps(), unit.last_seq, unit.received_us)
        lag_s = (newest[0].received_us - received_us) / 1e6 if newest else 0.0
        self._context.metrics.judge_lag(model, own.judge.name, max(0.0, time.time() - received_us / 1e6))
        batch, kept = self._context.pipelines[model].payloads.opened(*registered(self._context.engine, unit))
        champion = version_at(borders, unit.last_seq)
        judged = self._judged(model, slot, unit, batch, champion)
        pending = PendingQuestions(
            unit, kept, judged, champion, questions(own.judge, judged),
            self._is_due(own.judge, unit, judged.batch),
            may_ask=lag_s <= own.judge.settings.max_lag_s,
        )  # fmt: skip
        own.begin(pending)

    def _cross(self, model: str, slot: str, unit: Unit) -> None:
        """Restart at a step of the clock."""
        pipeline = self._context.pipelines[model]
        effects = pipeline.pass_time(slot, unit, Timings())
        assert effects is not None  # a border always is
        self._commits.commit(effects, at_us=unit.received_us)

    def _before(self, model: str, slot: str) -> list[str]:
        """Judges whose answers this slot's assertions need too: it follows them."""
        needed = {name for offered in self._context.pipelines[model].due_at(slot) for name in offered.needs}
        order = [name for of, name in self._slots if of == model]
        return [CHAMPION, *(name for name in order[: order.index(slot)] if name in needed)]

    def _judged(self, model: str, slot: str, unit: Unit, batch: Batch, champion: str | None) -> JudgedRecords:
        """Records as the champion's slot judged them, with the answers of earlier judges."""
        answer = stored(self._context.engine, champion, unit, batch)
        outputs = None if answer is None else outputs_of(answer)
        judged = self._context.pipelines[model].judged(CHAMPION, batch, outputs, {})
        assert judged is not None  # of the champion's slot there always is something to judge
        before = self._before(model, slot)
        if len(before) == 1:
            return judged
        others = judge_answers(self._context.engine, unit, judged.batch)
        return judged.with_answers({name: others[name] for name in before if name in others})

    def _is_due(self, judge: Judge, unit: Unit, judged: Batch) -> NDArray[np.bool_]:
        """Records that the judge is asked about: a sample by key and, if wanted, flagged ones."""
        settings = judge.settings
        seed = self._context.settings.worker.seed
        due = sample_rows(judge.slot, judged.keys, rate=settings.rate, seed=seed)
        if settings.when_flagged:
            with self._context.engine.connect() as connection:
                flagged = flagged_records(connection, judge.model, first=unit.first_seq, last=unit.last_seq)
            due = due | np.array([key in flagged for key in judged.keys.tolist()], dtype=np.bool_)
        return due

    def _finish(self, model: str, slot: str, own: JudgeSlot) -> None:
        pending = own.pending
        assert pending is not None
        if pending.error is not None:
            raise pending.error
        unit, judge, timings = pending.unit, own.judge, Timings()
        outcomes = own.outcomes(pending)
        replies = [
            pending.replies.get(question.digest) if question is not None and outcome is not None else None
            for question, outcome in zip(pending.questions, outcomes, strict=True)
        ]
        answers = judge.columns(replies, outcomes)
        pipeline = self._context.pipelines[model]
        batch = pending.judged.batch.with_outputs(answers)
        judged = pending.judged.with_answers({slot: batch})
        effects = Effects(model, slot, unit.last_seq, owner=CHAMPION)
        versions = pipeline.versions(CHAMPION, judged.batch, pending.champion)
        locations = RecordLocations.of(unit, judged.batch, pending.kept, versions)
        pipeline.check(effects, judged, locations, pending.champion, timings=timings)
        effects.answers += locations.answers(judge.version, batch)
        effects.received, effects.received_us = unit.received, unit.received_us
        tally = Tally(outcome for outcome in outcomes if outcome is not None)
        effects.counts.update(tally)
        self._commits.commit(effects, timings, at_us=unit.received_us)
        own.pending = None
        self._context.metrics.judge(model, judge.name, tally)
        self._context.metrics.judge_replies(model, judge.name, pending.new.values())
