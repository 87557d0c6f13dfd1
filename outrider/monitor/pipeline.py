"""What happens to one unit of records: answer, judge, ask, count. Returns effects; commits nothing."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings, Group, WeakLabels, Window
from outrider.assertions.columns import row_hashes
from outrider.assertions.window_state import View, WindowState
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger import Effects, flag_id, weak_label_id
from outrider.dataops.sketches import HourlySketches

from .config import HostSettings, ModelSettings
from .host_client import Failure, Judgement, Offered
from .shadow import Outputs, ShadowModels
from .units import Unit

CHAMPION = "champion"
Views = list[View]
"""What one window gives to judge, in order: no view holds an entity that ended and began again."""
SUSPENSION_S = 3600.0


@dataclass(slots=True)
class Timings:
    """Seconds of one unit per stage."""

    stages: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    """Seconds per assertion and live test."""
    _last: float = field(default_factory=time.perf_counter)

    def stage(self, name: str) -> None:
        """End the current stage under ``name``."""
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + now - self._last
        self._last = now


class SlotState:
    """What one slot carries from unit to unit; rebuilt from the journal after a restart."""

    def __init__(self) -> None:
        self.windows: dict[Window | Group, WindowState] = {}
        self.sketches = HourlySketches()
        # A challenger whose answers break an assertion must not silence it for the champion.
        self.strikes: dict[str, deque[int]] = {}
        self.suspended: dict[str, int] = {}
        self._late = 0

    def views(
        self, offered: Sequence[Offered], batch: Batch, tags: NDArray[np.int64]
    ) -> dict[str, Views | Failure]:
        """Views of the new records per windowed assertion, or why there are none; equal windows share them.

        Parameters
        ----------
        tags
            Journal block and row in it of every record, shape (rows, 2): kept with what is held back.
        """
        return self._views(offered, lambda state: state.update(batch, tags))

    def views_at(self, offered: Sequence[Offered], received_us: int) -> dict[str, Views | Failure]:
        """What the passing of time alone gives to judge: records no longer held back, entities that ended."""
        return self._views(offered, lambda state: state.advance(received_us))

    def new_late(self) -> int:
        """Records that windows left out as late since this was last asked."""
        late = sum(state.late for state in self.windows.values())
        self._late, before = late, self._late
        return max(0, late - before)

    def held(self) -> tuple[int, int, int]:
        """Entities, rows and bytes that the windows keep."""
        states = self.windows.values()
        return (
            sum(state.entities for state in states),
            sum(state.rows for state in states),
            sum(state.nbytes for state in states),
        )

    def checkpoints(self, model: str, slot: str, seq: int) -> list[tuple[Any, ...]]:
        """Tuples that keep the state of every window behind block ``seq``."""
        return [
            (model, slot, window_digest(window), seq, state.checkpoint())
            for window, state in self.windows.items()
        ]

    def _views(
        self, offered: Sequence[Offered], step: Callable[[WindowState], Views]
    ) -> dict[str, Views | Failure]:
        made: dict[Window | Group, Views | str] = {}
        for window in dict.fromkeys(judge.window for judge in offered if judge.window is not None):
            state = self.windows.setdefault(window, WindowState(window))
            try:
                made[window] = step(state)
            except Exception as error:  # noqa: BLE001 - a user's window costs its own verdicts only
                made[window] = f"{type(error).__name__}: {error}"
        return {
            judge.name: Failure(judge.name, "raised", views) if isinstance(views, str) else views
            for judge in offered
            if judge.window is not None and (views := made[judge.window])
        }


class Judges(Protocol):
    """Where assertions and live tests run: the assertion host, or this process in a replay."""

    offered: dict[str, list[Offered]]

    def judge(
        self,
        batch: Batch,
        *,
        assertions: Sequence[str],
        live: Sequence[str] = (),
        seq: NDArray[np.int64] | None = None,
        views: Mapping[str, Sequence[View]] | None = None,
    ) -> Judgement:
        """Verdicts and questions over one block."""

    def judge_answers(
        self, model: str, answered: Mapping[str, tuple[Batch, Batch]]
    ) -> tuple[dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]], list[Failure]]:
        """Verdicts on the answers to questions."""


class Pipeline:
    """Judges units of one model."""

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        limits: HostSettings,
        *,
        shadows: ShadowModels,
        host: Judges,
    ) -> None:
        self.name = name
        self.shadows = shadows
        self._settings = settings
        self._limits = limits
        self._host = host
        self.slots: dict[str, SlotState] = {CHAMPION: SlotState()}

    @property
    def offered(self) -> list[Offered]:
        """Assertions and live tests of this model."""
        return self._host.offered.get(self.name, [])

    @property
    def suspended(self) -> dict[str, int]:
        """When the champion's suspended assertions run again, by name; µs of receive time."""
        return self.slots[CHAMPION].suspended

    def judge(
        self,
        slot: str,
        unit: Unit,
        batch: Batch,
        kept: NDArray[np.intp],
        *,
        timings: Timings,
        digests: NDArray[np.uint64] | None = None,
        ask_live: bool = True,
        stored: Mapping[str, Batch] | None = None,
    ) -> Effects:
        """Everything that the records of a unit (``batch``: its rows ``kept``) change for one slot.

        Parameters
        ----------
        digests
            Content digests of ``batch``; given for the champion, whose slot registers the records.
        ask_live
            False sheds live tests (backlog); their sampled questions are counted as shed.
        stored
            Answers of other slots to the same records, by slot.
        """
        effects = Effects(self.name, slot, unit.last_seq)
        place = Place.of(unit, batch, kept)
        version = self.shadows.champion if slot == CHAMPION else slot
        outputs, poison = self.shadows.answer(version, batch) if version else (None, [])
        timings.stage("shadow")
        if poison:
            rows = np.array([p.row for p in poison], dtype=np.intp)
            effects.counts["poison"] += len(poison)
            for record in poison:
                effects.dead_letters.append(place.dead_letter(record.row, "poison", record.detail))
            well = np.setdiff1d(np.arange(batch.rows), rows)
            batch, kept = batch.take(well), kept[well]
            digests = None if digests is None else digests[well]
            outputs = None if outputs is None else {name: values[well] for name, values in outputs.items()}
            place = Place.of(unit, batch, kept)
        judged = self.judged(slot, batch, outputs, stored or {})
        if slot != CHAMPION and judged is None:
            effects.counts["unanswered"] += batch.rows
            return effects
        assert judged is not None
        if outputs is not None and version is not None:
            effects.answers += place.answers(self.name, version, batch.with_outputs(outputs))
        place.versions = self.versions(slot, judged, version)
        self.assess(effects, judged, place, version, outputs, ask_live=ask_live, timings=timings)
        if digests is not None:
            effects.records += place.records(judged, digests, self._settings)
        state = self.slots.setdefault(slot, SlotState())
        effects.sketches = state.sketches.update(judged, unit.received_us)
        effects.counts["records"] += judged.rows
        timings.stage("sketch")
        return effects

    def versions(self, slot: str, judged: Batch, version: str | None) -> list[str | None]:
        """Judged version of every record."""
        return _versions(judged, version, recorded=owner_of(slot) == CHAMPION)

    def stamped(self, slot: str, judged: Batch, version: str | None) -> Batch:
        """The records with the version that is judged, as windows keep them."""
        return _stamped(judged, self.versions(slot, judged, version))

    def tick(self, slot: str, unit: Unit, timings: Timings) -> Effects | None:
        """What a unit without records changes for one slot: time has passed; None when that is nothing."""
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot))
        return effects if self._pass_time(effects, slot, unit, timings) else None

    def judge_with(
        self,
        slot: str,
        unit: Unit,
        judged: Batch,
        kept: NDArray[np.intp],
        *,
        version: str | None,
        timings: Timings,
    ) -> Effects:
        """What the assertions of a judge's slot say about records with the answers of judges beside them."""
        effects = Effects(self.name, slot, unit.last_seq, owner=owner_of(slot))
        place = Place.of(unit, judged, kept, self.versions(CHAMPION, judged, version))
        self.assess(effects, judged, place, version, None, ask_live=False, timings=timings)
        return effects

    def due_at(self, slot: str) -> list[Offered]:
        """Assertions that run at a slot: behind the last of the judges that they need, in their order."""
        order = [f"{PREFIX}{name}" for name in self._settings.judges]
        here = []
        for judge in self.offered:
            at = max(
                _judges_of(judge),
                key=lambda name: order.index(name) if name in order else len(order),
                default=None,
            )
            if judge.kind == "assertion" and (at == slot or (at is None and not slot.startswith(PREFIX))):
                here.append(judge)
        return here

    def judged(
        self, slot: str, batch: Batch, outputs: Outputs | None, stored: Mapping[str, Batch]
    ) -> Batch | None:
        """The records with the outputs under judgement in ``outputs.*``; None where there are none."""
        if slot != CHAMPION:
            return None if outputs is None else batch.with_outputs(outputs).with_answers(stored)
        answered = batch if outputs is None else batch.with_answers({CHAMPION: outputs})
        target = f"outputs.{self._settings.target}"
        if outputs is None or (batch.has(target) and not batch.is_null(target).any()):
            return answered
        if not batch.has(target):
            return answered.with_outputs(outputs)
        return answered.with_columns(_coalesced(batch, outputs))

    def assess(
        self,
        effects: Effects,
        judged: Batch,
        place: "Place",
        version: str | None,
        outputs: Outputs | None,
        *,
        ask_live: bool,
        timings: Timings,
    ) -> None:
        """Judge the answered records of one unit, and what its passing of time gives to judge."""
        slot = effects.slot
        now_us = place.unit.received_us
        state = self.slots.setdefault(slot, SlotState())
        judges = [o for o in self.due_at(slot) if set(_judges_of(o)) <= set(judged.answer_slots)]
        # Suspended ones too: their windows go on.
        views = state.views(judges, _stamped(judged, place.versions), place.tags)
        effects.counts["late"] += state.new_late()
        tests = [o for o in self.offered if o.kind == "live_test"] if slot == CHAMPION else []
        live = [o.name for o in tests if outputs is not None and state.suspended.get(o.name, 0) <= now_us]
        plain = [o.name for o in judges if o.window is None]
        judgement, failures = self._ask_host(slot, judged, place, views, plain, live)
        timings.stage("assertions")
        timings.tasks = judgement.seconds
        by_name = {o.name: o for o in self.offered}
        for name, found in judgement.found.items():
            seen = views.get(name)
            located = place.of_views(seen) if isinstance(seen, list) else place
            located.note(effects, by_name[name], found)
        if live and outputs is not None and version is not None:
            lived, late = self._live(effects, judgement, judged, place, version, outputs, ask_live=ask_live)
            failures += late
            asked = place.judging([version] * judged.rows)
            for name, found in lived:
                asked.note(effects, by_name[name], found)
            timings.stage("live_tests")
        self._strike(effects, failures, now_us)
        self._pass_time(effects, slot, place.unit, timings)

    def _pass_time(self, effects: Effects, slot: str, unit: Unit, timings: Timings) -> bool:
        """Judge what windows give up by the end of the unit without a new record; whether there was any."""
        state = self.slots.setdefault(slot, SlotState())
        judges = [o for o in self.due_at(slot) if o.window is not None]
        views = state.views_at(judges, unit.received_us)
        if not views:
            return False
        nothing = Batch.from_columns({}, model=self.name, rows=0)
        place = Place.of(unit, nothing, np.zeros(0, dtype=np.intp))
        judgement, failures = self._ask_host(slot, nothing, place, views, [], [])
        by_name = {o.name: o for o in judges}
        for name, found in judgement.found.items():
            seen = views[name]
            assert isinstance(seen, list)
            place.of_views(seen).note(effects, by_name[name], found)
        self._strike(effects, failures, unit.received_us)
        timings.stage("assertions")
        return True

    def _ask_host(
        self,
        slot: str,
        judged: Batch,
        place: "Place",
        views: Mapping[str, Views | Failure],
        plain: Sequence[str],
        live: Sequence[str],
    ) -> tuple[Judgement, list[Failure]]:
        """Verdicts of those assertions that are not suspended, and who gave none."""
        suspended, now_us = self.slots[slot].suspended, place.unit.received_us
        due = {name: given for name, given in views.items() if suspended.get(name, 0) <= now_us}
        failures = [given for given in due.values() if isinstance(given, Failure)]
        seen = {name: given for name, given in due.items() if isinstance(given, list)}
        active = [name for name in plain if judged.rows and suspended.get(name, 0) <= now_us]
        asked = list(live) if judged.rows else []
        if not (active or seen or asked):
            return Judgement(), failures
        # In the order of the file, windowed or not: a replay finds the same one running.
        names = [o.name for o in self.offered if o.name in seen or o.name in active]
        judgement = self._host.judge(judged, assertions=names, live=asked, seq=place.seq, views=seen)
        return judgement, failures + judgement.failures

    def _live(
        self,
        effects: Effects,
        judgement: Judgement,
        judged: Batch,
        place: "Place",
        version: str,
        outputs: Outputs,
        *,
        ask_live: bool,
    ) -> tuple[list[tuple[str, Findings]], list[Failure]]:
        """Ask the replica the questions and let the host judge its answers."""
        answered: dict[str, tuple[Batch, Batch]] = {}
        for name, asked in judgement.questions.items():
            if not ask_live or asked.batch is None:
                status = "not_applicable" if ask_live else "shed"
                self._note_live(effects, name, place, version, {status: asked.sampled})
                continue
            answers, poison = self.shadows.answer(version, asked.batch, blame=False)
            if answers is None or poison:
                self._note_live(effects, name, place, version, {"shed": asked.sampled})
                continue
            original = judged.take(asked.rows).with_outputs({n: v[asked.rows] for n, v in outputs.items()})
            answered[name] = original, asked.batch.with_outputs(answers)
        verdicts, failures = self._host.judge_answers(self.name, answered) if answered else ({}, [])
        found = []
        for name, (failed, severity) in verdicts.items():
            asked = judgement.questions[name]
            rows = asked.rows[failed]
            outcome = {
                "failed": rows,
                "passed": asked.rows[~failed],
                "not_applicable": np.setdiff1d(asked.sampled, asked.rows),
            }
            self._note_live(effects, name, place, version, outcome)
            original, perturbed = answered[name]
            severe = np.maximum(severity[failed], np.finfo(np.float64).tiny)
            evidence = _evidence(original.take(failed), perturbed.take(failed))
            found.append((name, Findings(rows, severe, evidence=evidence)))
        return found, failures

    def _note_live(
        self,
        effects: Effects,
        name: str,
        place: "Place",
        version: str,
        outcome: dict[str, NDArray[np.int64]],
    ) -> None:
        for status, rows in outcome.items():
            effects.live_answers += place.live_answers(name, version, status, rows)
            effects.counts[f"live:{name}:{status}"] += len(rows)

    def _strike(self, effects: Effects, failures: list[Failure], now_us: int) -> None:
        """Count failures of assertions; suspend those with too many in the window, for this slot."""
        state = self.slots[effects.slot]
        for failure in failures:
            effects.strikes.append(
                (self.name, failure.name, now_us, effects.seq, failure.reason, failure.detail, effects.slot)
            )
            effects.counts[f"strikes:{failure.reason}"] += 1
            recent = state.strikes.setdefault(failure.name, deque())
            recent.append(now_us)
            while recent[0] < now_us - self._limits.strike_window_s * 1e6:
                recent.popleft()
            if len(recent) >= self._limits.strikes:
                state.suspended[failure.name] = int(now_us + SUSPENSION_S * 1e6)
                if effects.slot == CHAMPION:
                    effects.suspended[failure.name] = state.suspended[failure.name]
                recent.clear()

    def restore_strikes(self, strikes: list[tuple[str, int]], suspended: dict[str, int]) -> None:
        """Continue counting the champion's from what the database holds: (assertion, time) in order."""
        state = self.slots[CHAMPION]
        for name, at_us in strikes:
            state.strikes.setdefault(name, deque()).append(at_us)
        state.suspended = dict(suspended)


class Place:
    """Where the rows of a batch lie in the journal; makes the ledger's tuples from columns.

    Parameters
    ----------
    keys, times
        Id and event time of every record, shape (rows,).
    seq, row
        Journal block and row in it of every record, shape (rows,).
    versions
        Judged model version of every record.
    """

    def __init__(
        self,
        unit: Unit,
        keys: NDArray[np.object_],
        times: NDArray[np.datetime64],
        seq: NDArray[np.int64],
        row: NDArray[np.int64],
        versions: Sequence[str | None] = (),
    ) -> None:
        self.unit = unit
        self.seq = seq
        self.row = row
        self.versions = versions
        self.keys = keys
        self.ts_us: NDArray[np.int64] = times.astype("datetime64[us]").astype(np.int64)

    @classmethod
    def of(
        cls, unit: Unit, batch: Batch, kept: NDArray[np.intp], versions: Sequence[str | None] = ()
    ) -> "Place":
        """Where the records of ``batch`` lie: the rows ``kept`` of a unit."""
        return cls(unit, batch.keys, batch.column("ts"), unit.seq[kept], unit.row[kept], versions)

    def judging(self, versions: Sequence[str | None]) -> "Place":
        """The same records, judged as answers of other versions."""
        return Place(self.unit, self.keys, self.ts_us.view("datetime64[us]"), self.seq, self.row, versions)

    @property
    def tags(self) -> NDArray[np.int64]:
        """Block and row, shape (rows, 2)."""
        return np.stack([self.seq, self.row], axis=1)

    def of_views(self, views: Views) -> "Place":
        """The same for the rows of views, of which some came in earlier units."""
        batches = [view.batch for view in views]
        tags = np.concatenate([view.tags for view in views])
        versions = [version for batch in batches for version in batch.column("version").tolist()]
        keys = np.concatenate([batch.keys for batch in batches])
        times = np.concatenate([batch.column("ts") for batch in batches])
        return Place(self.unit, keys, times, tags[:, 0], tags[:, 1], versions)

    def records(
        self, judged: Batch, digests: NDArray[np.uint64], settings: ModelSettings
    ) -> list[tuple[Any, ...]]:
        """Tuples that register the records; the predicted value is what is under judgement."""
        sliced = f"attrs.{settings.slice_by}" if settings.slice_by else ""
        return list(
            zip(
                [self.unit.model] * judged.rows,
                self.keys.tolist(),
                self.seq.tolist(),
                self.row.tolist(),
                self.ts_us.tolist(),
                digests.view(np.int64).tolist(),
                text_of(judged, "version"),
                text_of(judged, "entity"),
                text_of(judged, sliced),
                text_of(judged, f"outputs.{settings.target}"),
                judged.column("weight").tolist(),
                strict=True,
            )
        )

    def dead_letter(self, row: int, reason: str, detail: str) -> tuple[Any, ...]:
        """Tuple of one dead letter."""
        at = (int(self.seq[row]), int(self.row[row]))
        return (*at, self.unit.model, self.keys[row], reason, detail, self.unit.received_us)

    def answers(self, model: str, version: str, batch: Batch) -> list[tuple[Any, ...]]:
        """One payload per journal block, its rows in the order of the kept records."""
        names = [name for name in batch.names if name.startswith("outputs.")]
        table = batch.to_arrow()
        narrow = Batch.from_columns(
            {name: table.column(name) for name in ["id", *names]}, model=model, rows=batch.rows
        )
        blocks, starts = np.unique(self.seq, return_index=True)
        stops = np.append(starts[1:], len(self.seq))
        return [
            (model, version, seq, narrow.slice(start, stop - start).to_ipc())
            for seq, start, stop in zip(blocks.tolist(), starts.tolist(), stops.tolist(), strict=True)
        ]

    def note(self, effects: Effects, judge: Offered, found: Findings) -> None:
        """Add what one assertion found: flags, their members, weak labels and the count."""
        rows = found.row
        located = zip(
            rows.tolist(),
            self.keys[rows].tolist(),
            found.subject or [None] * len(rows),
            found.severity.tolist(),
            self.seq[rows].tolist(),
            self.row[rows].tolist(),
            self.ts_us[rows].tolist(),
            found.evidence or [None] * len(rows),
            strict=True,
        )
        model, slot, versions = self.unit.model, effects.owner, self.versions
        name, revision, level = judge.name, judge.revision, judge.level
        flags = [
            (
                flag_id(model, versions[at], name, revision, key if subject is None else subject),
                model,
                key,
                name,
                revision,
                slot,
                versions[at],
                severity,
                level,
                None if evidence is None else _json(evidence),
                seq,
                row,
                ts_us,
            )
            for at, key, subject, severity, seq, row, ts_us, evidence in located
        ]
        effects.flags += flags
        effects.counts[f"flags:{name}"] += len(flags)
        for flag, members in zip(flags, found.members, strict=False):
            effects.members += [
                (flag[0], self.keys[at], model, int(self.seq[at]), int(self.row[at])) for at in members
            ]
        effects.weak_labels += self._weak_labels(judge, slot, [flag[0] for flag in flags], found.weak_labels)

    def _weak_labels(
        self, judge: Offered, slot: str, flags: Sequence[str], weak: WeakLabels
    ) -> list[tuple[Any, ...]]:
        """Tuples of corrections, each with the flag that it comes from."""
        rows = []
        for n, at in enumerate(weak.row.tolist()):
            flag, key = flags[weak.finding[n]], self.keys[at]
            kind, name, element = weak.kind[n], weak.field[n], int(weak.element[n])
            value = _json(weak.value[n])
            rows.append(
                (
                    weak_label_id(flag, key, kind, name, element, value),
                    self.unit.model,
                    key,
                    flag,
                    judge.name,
                    judge.revision,
                    slot,
                    self.versions[at],
                    kind,
                    name,
                    element,
                    value,
                    float(weak.confidence[n]),
                    int(self.seq[at]),
                    int(self.row[at]),
                    int(self.ts_us[at]),
                )
            )
        return rows

    def live_answers(
        self, test: str, version: str, status: str, rows: NDArray[np.int64]
    ) -> list[tuple[Any, ...]]:
        """Tuples of sampled questions with one outcome."""
        model = self.unit.model
        located = zip(
            self.keys[rows].tolist(), self.seq[rows].tolist(), self.ts_us[rows].tolist(), strict=True
        )
        return [(model, test, key, version, seq, ts_us, status) for key, seq, ts_us in located]


def window_digest(window: Window | Group) -> str:
    """Names the state of one window in the database; other settings, other state."""
    return blake2b(repr(window).encode(), digest_size=8).hexdigest()


def owner_of(slot: str) -> str:
    """Slot whose answers are judged at a slot: a judge speaks of the champion's."""
    return CHAMPION if slot.startswith(PREFIX) else slot


def _judges_of(judge: Offered) -> list[str]:
    """Slots of the judges whose answers an assertion needs."""
    return [name for name in judge.needs if name.startswith(PREFIX)]


def _versions(judged: Batch, version: str | None, *, recorded: bool) -> list[str | None]:
    """Judged version per record: what production said it ran, else the replica's."""
    if not recorded:
        return [version] * judged.rows
    said: list[str | None] = judged.column("version").tolist()
    return [version if value is None else value for value in said]


def _coalesced(batch: Batch, outputs: Outputs) -> dict[str, Any]:
    """Recorded outputs, with the replica's where a record has none and both are of one kind."""
    table = batch.to_arrow()
    merged = {}
    for name, values in outputs.items():
        full = f"outputs.{name}"
        if not batch.has(full) or np.ndim(values) > 1:
            continue
        recorded = table.column(full)
        # texts beside class numbers cannot be joined: the records then stay without
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            merged[full] = pc.coalesce(recorded, pa.array(values).cast(recorded.type, safe=False))
    return merged


def _stamped(judged: Batch, versions: Sequence[str | None]) -> Batch:
    """The records with their judged version: what is held back may be judged under the next champion."""
    if not judged.is_null("version").any() or not any(versions):
        return judged
    return judged.with_columns({"version": pa.array(versions, pa.string())})


def _evidence(original: Batch, perturbed: Batch) -> list[dict[str, Any] | None]:
    """Per failed question: the perturbed inputs, and both answers."""
    return [
        {
            "inputs": after.get("inputs", {}),
            "outputs": after.get("outputs", {}),
            "original": before.get("outputs", {}),
        }
        for before, after in zip(original.to_records(), perturbed.to_records(), strict=True)
    ]


def _json(value: Any) -> str:
    """JSON text; NaN becomes null, and dates and bytes have a form."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def text_of(batch: Batch, name: str) -> list[str | None]:
    """Values of a column as text, None for null; what labels and predictions are compared by."""
    if not batch.has(name):
        return [None] * batch.rows
    return texts(batch.to_arrow().column(name))


def texts(column: pa.Array) -> list[str | None]:
    """Values as text: integral floats without their point, so that 3 and 3.0 agree.

    Lists are told apart by their number of elements and a hash: a text would be their payload again.
    """
    if pa.types.is_list(column.type):
        lengths = pc.list_value_length(column).to_pylist()
        hashes = row_hashes(column, "").tolist()
        return [
            None if length is None else f"{length} element{'s' * (length != 1)} #{digest:016x}"
            for length, digest in zip(lengths, hashes, strict=True)
        ]
    if pa.types.is_floating(column.type):
        values = column.to_pylist()
        return [None if v is None else str(int(v)) if float(v).is_integer() else str(v) for v in values]
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        cast: list[str | None] = column.cast(pa.string()).to_pylist()
        return cast
    return [None if pd.api.types.is_scalar(v) and pd.isna(v) else str(v) for v in column.to_pylist()]
