"""What happens to one unit of records: answer, judge, ask, count. Returns effects; commits nothing."""

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch, Window
from outrider.assertions.window_state import View as WindowView
from outrider.assertions.window_state import WindowState
from outrider.dataops.ledger import Effects, flag_id
from outrider.dataops.sketches import HourlySketches

from .config import HostSettings, ModelSettings
from .host_client import Failure, Fires, HostClient, Judgement, Offered, View
from .shadow import Outputs, ShadowModels
from .units import Unit

CHAMPION = "champion"
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
        self.windows: dict[Window, WindowState] = {}
        self.sketches = HourlySketches()
        # A challenger whose answers break an assertion must not silence it for the champion.
        self.strikes: dict[str, deque[int]] = {}
        self.suspended: dict[str, int] = {}

    def views(self, batch: Batch, offered: list[Offered]) -> dict[str, View | Failure]:
        """Windowed view per assertion name, or why there is none; equal windows share one."""
        made: dict[Window, View | str] = {}
        for window in dict.fromkeys(judge.window for judge in offered if judge.window is not None):
            state = self.windows.setdefault(window, WindowState(window))
            try:
                made[window] = _last_view(state.update(batch), batch)
            except Exception as error:  # noqa: BLE001 - a user's window costs its own verdicts only
                made[window] = f"{type(error).__name__}: {error}"
        return {
            judge.name: Failure(judge.name, "raised", view) if isinstance(view, str) else view
            for judge in offered
            if judge.window is not None and (view := made[judge.window])
        }


class Pipeline:
    """Judges units of one model."""

    def __init__(
        self,
        name: str,
        settings: ModelSettings,
        limits: HostSettings,
        *,
        shadows: ShadowModels,
        host: HostClient,
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
        place = Place(unit, kept, batch)
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
            place = Place(unit, kept, batch)
        judged = self.judged(slot, batch, outputs, stored or {})
        if slot != CHAMPION and judged is None:
            effects.counts["unanswered"] += batch.rows
            return effects
        assert judged is not None
        if outputs is not None and version is not None:
            effects.answers += place.answers(self.name, version, batch.with_outputs(outputs))
        self._assert(effects, slot, judged, place, version, outputs, ask_live=ask_live, timings=timings)
        if digests is not None:
            effects.records += place.records(judged, digests, self._settings)
        state = self.slots.setdefault(slot, SlotState())
        effects.sketches = state.sketches.update(judged, unit.received_us)
        effects.counts["records"] += judged.rows
        timings.stage("sketch")
        return effects

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

    def _assert(
        self,
        effects: Effects,
        slot: str,
        judged: Batch,
        place: "Place",
        version: str | None,
        outputs: Outputs | None,
        *,
        ask_live: bool,
        timings: Timings,
    ) -> None:
        now_us = place.unit.received_us
        state = self.slots.setdefault(slot, SlotState())
        judges = [o for o in self.offered if o.kind == "assertion"]
        views = state.views(judged, judges)  # suspended ones too: their windows go on
        due = [o.name for o in judges if state.suspended.get(o.name, 0) <= now_us]
        failures = [view for name in due if isinstance(view := views.get(name), Failure)]
        active = [name for name in due if not isinstance(views.get(name), Failure)]
        tests = [o for o in self.offered if o.kind == "live_test"] if slot == CHAMPION else []
        live = [o.name for o in tests if outputs is not None and state.suspended.get(o.name, 0) <= now_us]
        if not judged.rows or not (active or live):
            self._strike(effects, failures, now_us)
            return
        judgement = self._host.judge(
            judged,
            assertions=active,
            live=live,
            seq=place.seq,
            views={name: view for name, view in views.items() if name in active and isinstance(view, View)},
        )
        timings.stage("assertions")
        timings.tasks = judgement.seconds
        by_name = {o.name: o for o in self.offered}
        versions = _versions(judged, version, recorded=slot == CHAMPION)
        for name, fires in judgement.fires.items():
            effects.flags += place.flags(slot, by_name[name], fires, versions)
            effects.counts[f"flags:{name}"] += len(fires.rows)
        flagged = [fires.rows for fires in judgement.fires.values()]
        failures += judgement.failures
        if live and outputs is not None and version is not None:
            lived, late = self._live(effects, judgement, judged, place, version, outputs, ask_live=ask_live)
            failures += late
            for name, fires, evidence in lived:
                effects.flags += place.flags(slot, by_name[name], fires, [version] * judged.rows, evidence)
                effects.counts[f"flags:{name}"] += len(fires.rows)
                flagged.append(fires.rows)
            timings.stage("live_tests")
        if flagged:
            effects.counts["flagged"] += len(np.unique(np.concatenate(flagged)))
        self._strike(effects, failures, now_us)

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
    ) -> tuple[list[tuple[str, Fires, list[str]]], list[Failure]]:
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
            fires = Fires(rows, np.maximum(severity[failed], np.finfo(np.float64).tiny))
            found.append((name, fires, _evidence(original.take(failed), perturbed.take(failed))))
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
    """Where the rows of a judged batch lie in the journal; makes the ledger's tuples from columns."""

    def __init__(self, unit: Unit, kept: NDArray[np.intp], batch: Batch) -> None:
        self.unit = unit
        self.seq = unit.seq[kept]
        self.row = unit.row[kept]
        self.keys = batch.keys
        self.ts_us: NDArray[np.int64] = batch.column("ts").astype("datetime64[us]").astype(np.int64)

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

    def flags(
        self,
        slot: str,
        judge: Offered,
        fires: Fires,
        versions: list[str | None],
        evidence: list[str] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Tuples of the fired rows of one assertion."""
        model, rows = self.unit.model, fires.rows
        notes: Sequence[str | None] = evidence or [None] * len(rows)
        located = zip(
            rows.tolist(),
            self.keys[rows].tolist(),
            fires.severity.tolist(),
            self.seq[rows].tolist(),
            self.row[rows].tolist(),
            self.ts_us[rows].tolist(),
            notes,
            strict=True,
        )
        name, revision, level = judge.name, judge.revision, judge.level
        return [
            (
                flag_id(model, versions[at], name, revision, key),
                model,
                key,
                name,
                revision,
                slot,
                versions[at],
                severity,
                level,
                note,
                seq,
                row,
                ts_us,
            )
            for at, key, severity, seq, row, ts_us, note in located
        ]

    def live_answers(
        self, test: str, version: str, status: str, rows: NDArray[np.int64]
    ) -> list[tuple[Any, ...]]:
        """Tuples of sampled questions with one outcome."""
        model = self.unit.model
        located = zip(
            self.keys[rows].tolist(), self.seq[rows].tolist(), self.ts_us[rows].tolist(), strict=True
        )
        return [(model, test, key, version, seq, ts_us, status) for key, seq, ts_us in located]


def _last_view(views: Sequence[WindowView], batch: Batch) -> View:
    """The view that holds the new records of a unit, which spans too little time for there to be two."""
    if not views:
        return View(batch.slice(0, 0), np.zeros(0, dtype=np.intp))
    last = views[-1]
    told = last.batch.is_new & (last.positions >= 0)
    return View(last.batch.with_marks(told, last.batch.is_last), last.positions[told])


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


def _evidence(original: Batch, perturbed: Batch) -> list[str]:
    """JSON per failed question: the perturbed inputs, and both answers."""
    return [
        msgspec.json.encode(  # NaN becomes null, and dates and bytes have a form
            {
                "inputs": after.get("inputs", {}),
                "outputs": after.get("outputs", {}),
                "original": before.get("outputs", {}),
            },
            enc_hook=str,
        ).decode()
        for before, after in zip(original.to_records(), perturbed.to_records(), strict=True)
    ]


def text_of(batch: Batch, name: str) -> list[str | None]:
    """Values of a column as text, None for null; what labels and predictions are compared by."""
    if not batch.has(name):
        return [None] * batch.rows
    return texts(batch.to_arrow().column(name))


def texts(column: pa.Array) -> list[str | None]:
    """Values as text: integral floats without their point, so that 3 and 3.0 agree."""
    if pa.types.is_floating(column.type):
        values = column.to_pylist()
        return [None if v is None else str(int(v)) if float(v).is_integer() else str(v) for v in values]
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        cast: list[str | None] = column.cast(pa.string()).to_pylist()
        return cast
    return [None if pd.api.types.is_scalar(v) and pd.isna(v) else str(v) for v in column.to_pylist()]
